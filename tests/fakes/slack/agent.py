"""agents.sessions.*, assistant.threads.*, views.open, blocks.validate, apps.connections.open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.slack import rules
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
    answer: Json = {"status": session.status, "agent_status": session.status, "title": session.title}
    if not slack.stop_event_subscribed:
        answer["warning"] = "missing_agent_session_stopped_event_subscription"
        answer["response_metadata"] = {"warnings": [answer["warning"]]}
    return answer


@method("agents.sessions.rename", "chat:write")
def rename_session(slack: FakeSlack, args: Args) -> Json:
    title = args.need("title")
    if len(title) > 200:
        raise Refusal("invalid_arguments", "title must be at most 200 characters")
    session = slack.sessions.get(_session_key(slack, args))
    if session is None:
        raise Refusal("session_not_found")
    session.title = title
    session.titles.append(title)
    return {"title": title}


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


@method("assistant.threads.setTitle", "assistant:write")
def set_title(slack: FakeSlack, args: Args) -> Json:
    channel = place(slack, args.need("channel_id"))
    slack.titles[channel.id, args.need("thread_ts")] = args.need("title")
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


@method("blocks.validate")
def validate(slack: FakeSlack, args: Args) -> Json:
    blocks = args.json("blocks", "invalid_blocks_format")
    message = args.json("message")
    rules.check_blocks(blocks if blocks is not None else (message or {}).get("blocks"))
    return {}


@method("views.open")
def open_view(slack: FakeSlack, args: Args) -> Json:
    trigger = args.need("trigger_id")
    born = slack.triggers.pop(trigger, None)
    if born is None:
        raise Refusal("exchanged_trigger_id" if trigger in slack.used_triggers else "invalid_trigger")
    slack.used_triggers.add(trigger)
    if slack.clock() - born > 3:
        raise Refusal("expired_trigger_id")
    view = args.json("view")
    match view:
        case {"type": "modal", "title": dict(), "blocks": list(blocks)}:
            rules.check_blocks(blocks)
        case _:
            raise Refusal("invalid_arguments", "view")
    shown = {
        "callback_id": "",
        "private_metadata": "",
        **view,
        "id": f"V{next(slack.serial)}",
        "team_id": "T1",
        "app_id": "A1",
        "bot_id": "BBOT",
    }
    shown |= {"state": {"values": {}}, "hash": "1.x"}
    slack.views[shown["id"]] = shown
    return {"view": shown}


@method("apps.connections.open")
def open_connection(slack: FakeSlack, args: Args) -> Json:
    return {"url": slack.sockets.ticket()}
