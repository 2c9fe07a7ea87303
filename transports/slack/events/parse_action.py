"""Buttons and slash commands as messages; pure.

A press of a choice is the command of its button; a second press has the same id. Unknown buttons and commands are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from threads.model import Author, Feedback, Incoming
from transports.base.text import digest
from transports.slack.api.json_fields import identifier, is_direct, part, parts, place_of, stamp, string
from transports.slack.events.decode import decode
from transports.slack.events.parse_message import Me, sent_at

CHOICE, FEEDBACK = "choice", "feedback"
"""How the ``action_id`` of our buttons begins."""

_COMMAND = re.compile(r"/[A-Za-z][A-Za-z-]{0,20}(?: [^\r\n]{1,500})?")
_WORD = re.compile(r"[/!]?([A-Za-z][A-Za-z-]{0,20})(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """A pressed button: ``channel``, ``ts`` and ``blocks`` are its message. ``click`` tells presses of it apart.

    A message that one person alone sees (``ephemeral``) has no blocks.
    """

    incoming: Incoming
    channel: str
    ts: str
    blocks: Sequence[JsonValue]
    label: str
    click: str
    ephemeral: bool = False

    @property
    def place(self) -> str:
        return place_of(self.channel, self.ts)


def parse_action(payload: JsonValue, me: Me) -> ButtonPress | Feedback | None:
    """Read an interactive payload. Never raises."""
    if not isinstance(payload, dict) or string(payload, "type") != "block_actions":
        return None
    message, container = part(payload, "message"), part(payload, "container")
    channel = identifier(part(payload, "channel"), "id") or identifier(container, "channel_id")
    ts = stamp(message, "ts") or stamp(container, "message_ts")
    user = identifier(part(payload, "user"), "id")
    action = next(iter(parts(payload, "actions")), None)
    if action is None or not (channel and ts and user):
        return None
    ephemeral = container.get("is_ephemeral") is True
    root = stamp(message, "thread_ts") or stamp(container, "thread_ts") or ("" if ephemeral else ts)
    thread, author = me.thread(channel, root), Author(user)
    name, value, at = string(action, "action_id"), string(action, "value"), stamp(action, "action_ts")
    id_ = digest(channel, ts, user, value)
    match value:
        case "up" | "down" if name.startswith(FEEDBACK):
            return Feedback(f"feedback-{id_}", thread, author, ts, value)
        case _ if name.startswith(CHOICE) and _COMMAND.fullmatch(value):
            incoming = Incoming(
                id=f"press-{id_}",
                thread=thread,
                author=author,
                text=value,
                sent_at=sent_at(at) if at else "",
                via="direct" if is_direct(channel) else "mention",
                reply_address=string(payload, "response_url"),
            )
            blocks, label = message.get("blocks"), string(part(action, "text"), "text")
            content = tuple(blocks) if isinstance(blocks, list) else ()
            return ButtonPress(incoming, channel, ts, content, label, digest(at), ephemeral)
        case _:
            return None


def parse_command(payload: JsonValue, me: Me) -> Incoming | None:
    """Read a slash command: ``/threadfast TEXT`` is "/TEXT" in the channel itself. Never raises.

    Slack has no slash commands in threads, so the thread's root is blank.
    """
    if not isinstance(payload, dict):
        return None
    channel, user = identifier(payload, "channel_id"), identifier(payload, "user_id")
    trigger = string(payload, "trigger_id")
    if not (channel and user and trigger):
        return None
    text = decode(string(payload, "text"), me.names).strip()
    word = _WORD.match(text)
    return Incoming(
        id=f"slash-{digest(trigger)}",
        thread=me.thread(channel, ""),
        author=Author(user),
        text=f"/{text[word.start(1) :]}" if word else "/help",
        via="direct" if is_direct(channel) else "mention",
        reply_address=string(payload, "response_url"),
    )
