"""Buttons and slash commands, as what the person says by them; pure.

A press of a choice is the command that its button stands for; pressed twice, it is the same message. What is no
command of ours, and every button that we do not know, is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from threads.model import Author, Feedback, Incoming, ThreadId
from transports.slack.api.json_fields import Shape, digest, identifier, is_direct, part, parts, stamp, string
from transports.slack.events.decode import decode
from transports.slack.events.parse_message import Me, sent_at

CHOICE, FEEDBACK = "choice", "feedback"
"""How the ``action_id`` of our buttons begins; with several choices each has its own ending."""

_COMMAND = re.compile(r"/[A-Za-z][A-Za-z-]{0,20}(?: [^\r\n]{1,500})?")
_WORD = re.compile(r"[/!]?([A-Za-z][A-Za-z-]{0,20})(?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """A choice that a person made: ``channel``, ``ts`` and ``blocks`` are the message with the button.

    ``blocks`` are as Slack shows them; there are none in a message that one person alone sees (``ephemeral``).
    """

    incoming: Incoming
    channel: str
    ts: str
    blocks: Sequence[JsonValue]
    label: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    feedback: Feedback


def parse_action(payload: JsonValue, me: Me) -> ButtonPress | Judged | None:
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
    place = _Place(me.thread(channel, _root(message, container, ts)), ts, Author(user), action)
    name = string(action, "action_id")
    if name.startswith(FEEDBACK):
        return place.judged()
    return place.pressed(message, container) if name.startswith(CHOICE) else None


def _root(message: Shape, container: Shape, ts: str) -> str:
    """Return the thread of a message; one that a single person sees is no thread, so outside one it has none."""
    alone = container.get("is_ephemeral") is True
    return stamp(message, "thread_ts") or stamp(container, "thread_ts") or ("" if alone else ts)


@dataclass(frozen=True, slots=True)
class _Place:
    thread: ThreadId
    ts: str
    author: Author
    action: Shape

    def id(self, kind: Literal["press", "feedback"]) -> str:
        return f"{kind}-{digest(self.thread.channel, self.ts, self.author.id, string(self.action, 'value'))}"

    def judged(self) -> Judged | None:
        match string(self.action, "value"):
            case "up" | "down" as verdict:
                return Judged(Feedback(self.id("feedback"), self.thread, self.author, self.ts, verdict))
            case _:
                return None

    def pressed(self, message: Shape, container: Shape) -> ButtonPress | None:
        command, at = string(self.action, "value"), stamp(self.action, "action_ts")
        if not _COMMAND.fullmatch(command):
            return None
        incoming = Incoming(
            id=self.id("press"),
            thread=self.thread,
            author=self.author,
            text=command,
            sent_at=sent_at(at) if at else "",
            via="direct" if is_direct(self.thread.channel) else "mention",
        )
        blocks = message.get("blocks")
        return ButtonPress(
            incoming,
            self.thread.channel,
            self.ts,
            tuple(blocks) if isinstance(blocks, list) else (),
            string(part(self.action, "text"), "text"),
            ephemeral=container.get("is_ephemeral") is True,
        )


def reply_address(payload: JsonValue) -> str:
    """Return where this press or command can be answered to its person alone, for 30 minutes; "" for nowhere."""
    return string(payload, "response_url") if isinstance(payload, dict) else ""


def parse_command(payload: JsonValue, me: Me) -> Incoming | None:
    """Read a slash command: ``/threadfast TEXT`` is "/TEXT", said to the channel itself. Never raises.

    Slack has no slash commands in threads, so the thread's root is blank.
    """
    if not isinstance(payload, dict):
        return None
    channel, user = identifier(payload, "channel_id"), identifier(payload, "user_id")
    trigger = string(payload, "trigger_id")
    if not (channel and user and trigger):
        return None
    said = decode(string(payload, "text"), me.names).strip()
    word = _WORD.match(said)
    return Incoming(
        id=f"slash-{digest(trigger)}",
        thread=me.thread(channel, ""),
        author=Author(user),
        text=f"/{said[word.start(1) :]}" if word else "/help",
        via="direct" if is_direct(channel) else "mention",
    )
