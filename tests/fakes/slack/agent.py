"""agents.sessions.setStatus, assistant.threads.*, apps.connections.open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.slack.chat import place
from tests.fakes.slack.records import Json
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import Args, method

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack


@method("agents.sessions.setStatus", "chat:write")
def set_session_status(slack: FakeSlack, args: Args) -> Json:
    status = args.need("status")
    slack.check_session_status(status)
    key = _session_key(slack, args)
    if len(args.text("title")) > 200:
        raise Refusal("invalid_arguments", "title must be at most 200 characters")
    session = slack.set_session(*key, status, args.text("title"))
    return {"status": session.status, "agent_status": session.status, "title": session.title}


def _session_key(slack: FakeSlack, args: Args) -> tuple[str, str]:
    if not slack.agent:
        raise Refusal("not_authorized")
    return place(slack, args.need("channel_id")).id, args.need("thread_ts")


@method("assistant.threads.setStatus", "chat:write")
def set_status(slack: FakeSlack, args: Args) -> Json:
    channel = place(slack, args.need("channel_id"))
    root = args.need("thread_ts")
    loading = args.json("loading_messages") or []
    if "status" not in args or not isinstance(loading, list) or len(loading) > 10:
        raise Refusal("invalid_arguments")
    slack.say_status(channel.id, root, args.text("status"), loading)
    return {}


@method("assistant.threads.setSuggestedPrompts", "assistant:write")
def set_prompts(slack: FakeSlack, args: Args) -> Json:
    """Under agent_view a call with ``thread_ts`` is answered with ok and does nothing."""
    channel = place(slack, args.need("channel_id"))
    prompts = args.json("prompts")
    match prompts:
        case [{"title": str(), "message": str()}, *rest] if len(rest) <= 3:
            pass
        case _:
            raise Refusal("invalid_arguments", "1 to 4 prompts")
    if not args.get("thread_ts"):
        slack.prompts.append({"channel": channel.id, "title": args.get("title"), "prompts": prompts})
    return {}


@method("apps.connections.open")
def open_connection(slack: FakeSlack, args: Args) -> Json:
    return {"url": slack.sockets.ticket()}
