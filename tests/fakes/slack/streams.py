"""chat.startStream, appendStream, stopStream: one message, written while people look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fakes.slack import rules
from tests.fakes.slack.chat import changed, fires, own, place, streaming, thread
from tests.fakes.slack.records import APP, BOT, BOT_USER, Json, Message, Session, Stream
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import Args, method

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack


@method("chat.startStream", "chat:write")
def start_stream(slack: FakeSlack, args: Args) -> Json:
    channel = place(slack, args.need("channel"))
    args.need("thread_ts")
    root = thread(args)
    assert root
    if channel.kind != "im":
        for name in ("recipient_user_id", "recipient_team_id"):
            if not args.get(name):
                raise Refusal(f"missing_{name}")
    if args.get("task_display_mode") not in (None, "timeline", "plan", "dense"):
        raise Refusal("invalid_arguments", "task_display_mode")
    stream = Stream(slack.clock(), args.get("recipient_user_id"))
    message = Message(channel.id, slack.next_ts(), "", BOT_USER, BOT, APP, thread_ts=root, stream=stream)
    _append(slack, message, stream, args)
    slack.put(message)
    slack.sessions.setdefault((channel.id, root), Session("active"))
    slack.echo(message)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.appendStream", "chat:write")
def append_stream(slack: FakeSlack, args: Args) -> Json:
    message, stream = _running(slack, args)
    if not args.get("markdown_text") and not args.get("chunks"):
        raise Refusal("no_text")
    _append(slack, message, stream, args)
    return {"channel": message.channel, "ts": message.ts}


@method("chat.stopStream", "chat:write")
def stop_stream(slack: FakeSlack, args: Args) -> Json:
    message, stream = _running(slack, args)
    blocks = args.json("blocks", "invalid_blocks_format")
    if blocks is not None:
        if len(blocks) > rules.BLOCKS:
            raise Refusal("msg_blocks_too_many")
        rules.check_blocks(blocks)
    metadata = args.json("metadata", "invalid_metadata_format")
    rules.check_metadata(metadata)
    status = args.get("session_status")
    slack.check_session_status(status)
    _append(slack, message, stream, args)
    before = message.view()
    stream.state = "stopped"
    message.metadata = metadata or message.metadata
    message.blocks = [{"type": "markdown", "text": message.text}] if message.text else []
    message.blocks += blocks or ()
    if status:
        slack.set_session(message.channel, message.root, status)
    slack.clear_words(message.channel, message.root)
    changed(slack, message, before)
    return {"channel": message.channel, "ts": message.ts, "message": message.view()}


def _running(slack: FakeSlack, args: Args) -> tuple[Message, Stream]:
    message = own(slack, args, "message_not_owned_by_app")
    place(slack, message.channel)
    if message.stream and message.stream.state == "stopped_by_user":
        raise Refusal("stopped_by_user")
    stream = streaming(slack, message)
    if stream is None:
        raise Refusal("message_not_in_streaming_state")
    return message, stream


def _append(slack: FakeSlack, message: Message, stream: Stream, args: Args) -> None:
    """Add text and chunks; once more than about 11,900 bytes were asked for, every later append is refused."""
    text, chunks = _pieces(args)
    if not text and not chunks:
        return
    rules.check_markdown(text)
    stream.size += len(text.encode())
    if stream.size > slack.stream_bytes:
        raise Refusal("msg_too_long")
    stream.chunks += chunks
    stream.pieces.append(text)
    message.text += text
    fires(message, rules.set_off(message.text, chunks))
    slack.changed()


def _pieces(args: Args) -> tuple[str, list[Json]]:
    """The text, and the chunks that are none."""
    text: list[str] = [args.text("markdown_text")]
    chunks: list[Json] = []
    given: Any = args.json("chunks") or []
    if not isinstance(given, list):
        raise Refusal("invalid_chunks")
    if given and text[0]:
        raise Refusal("invalid_arguments", "markdown_text and chunks exclude each other")
    for chunk in given:
        match chunk:
            case {"type": "markdown_text", "text": str(piece)}:
                text.append(piece)
            case {"type": "task_update", "id": str(), "title": str(), "status": status} if status in _TASK:
                chunks.append(chunk)
            case _:
                raise Refusal("invalid_chunks")
    return "".join(text), chunks


_TASK = ("pending", "in_progress", "complete", "error")
