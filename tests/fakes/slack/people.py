"""What people do: each verb changes the workspace and delivers the events that follow from it."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Literal

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.pressing import Pressing
from tests.fakes.slack.records import APP, BOT_USER, TEAM, Channel, File, Json, Message

Order = Literal["message_first", "mention_first", "message_only", "mention_only"]


@dataclass
class Said:
    """What somebody did. ``await`` it: every event of it was acknowledged."""

    message: Message
    events: list[Delivery] = field(default_factory=list)

    @property
    def ts(self) -> str:
        return self.message.ts

    @property
    def acked(self) -> bool:
        return all(event.acked for event in self.events)

    def __await__(self) -> Generator[Any, None, Said]:
        return self.delivered().__await__()

    async def delivered(self, limit: float = 10.0) -> Said:
        for event in self.events:
            await event.delivered(limit)
        return self


class People(Pressing):
    def say(
        self,
        user: str,
        channel: str,
        text: str,
        *,
        thread_ts: str | None = None,
        subtype: str | None = None,
        files: Sequence[File] = (),
        client_msg_id: str | None = None,
        order: Order = "message_first",
        quiet: bool = False,
        blocks: list[Json] | None = None,
        attachments: list[Json] | None = None,
        **more: Any,
    ) -> Said:
        """Say *text* (as on the wire: ``&lt;`` and ``<@U1>``) and deliver the event, or both twins for a mention.

        Subtypes: file_share (set when there are files), thread_broadcast, me_message. A client that sends again is
        the same ``client_msg_id`` twice. ``blocks`` and ``attachments`` stand in place of those that a client would
        send along; *more* are further fields of the event, ``name=None`` leaves one out.
        *quiet*: the message is there, but its events got lost.
        """
        if files and subtype is None:
            subtype = "file_share"
        message = self.put(
            Message(
                channel,
                self.next_ts(),
                text,
                user,
                thread_ts=thread_ts,
                subtype=subtype,
                client_msg_id=client_msg_id or f"c-{next(self.serial)}",
                files=list(files),
                blocks=blocks or (None if subtype else _rich_text(text)),
                attachments=attachments,
            )
        )
        return Said(message, [] if quiet else self._twins(message, order, more))

    def bot_says(
        self,
        channel: str,
        text: str,
        *,
        thread_ts: str | None = None,
        bot: str = "BOTHER",
        legacy: bool = False,
    ) -> Said:
        """Another app's bot posts: ``bot_id`` and a user, or (*legacy*) subtype bot_message without one."""
        message = Message(
            channel, self.next_ts(), text, None if legacy else f"U{bot}", bot, thread_ts=thread_ts
        )
        if legacy:
            message.subtype, message.username = "bot_message", "Other"
        return Said(self.put(message), self._twins(message, "message_first", {}))

    def file(self, name: str, content: bytes, mimetype: str = "text/plain", user: str = "U1") -> File:
        """A file that a person holds, to be said with ``say(files=[...])``."""
        return self.new_file(name, content, mimetype, user=user)

    def clip(self, user: str, content: bytes) -> File:
        """Return what the record button makes of a person's voice: an audio clip, which Slack may transcribe, too."""
        clip = {"subtype": "slack_audio", "media_display_type": "audio", "duration_ms": 4_200}
        clip |= {"transcription": {"status": "processing"}, "aac": "https://files.slack.com/aac"}
        return self.new_file("audio_message.m4a", content, "audio/mp4", user=user, clip=clip)

    def new_file(self, name: str, content: bytes, mimetype: str, **more: Any) -> File:
        raise NotImplementedError

    def edit(self, ts: str, text: str) -> Said:
        """A person edits their message: message_changed. What was pasted or forwarded with it stays."""
        message = self.message(ts)
        before = message.view()
        message.text = text
        message.texts.append(text)
        if message.blocks and message.blocks[0].get("block_id") == "r1":
            message.blocks = [*_rich_text(text), *message.blocks[1:]]
        message.edited = {"user": message.user, "ts": self.next_ts()}
        return Said(message, [self.echo_change(message, before, force=True)])

    def unfurl(self, ts: str) -> Said:
        """Slack adds a preview: message_changed with the same text."""
        message = self.message(ts)
        before = message.view()
        message.attachments = [{"id": 1, "from_url": "https://example.com", "title": "Example"}]
        return Said(message, [self.echo_change(message, before, force=True)])

    def delete(self, ts: str) -> Said:
        """A person deletes a message: message_deleted."""
        message = self.message(ts)
        message.deleted = True
        return Said(message, [self.echo_delete(message, force=True)])

    def _twins(self, message: Message, order: Order, more: Json) -> list[Delivery]:
        channel = self.channels[message.channel]
        if not channel.member:
            return []
        mentioned = channel.kind != "im" and f"<@{BOT_USER}>" in message.text
        wanted = {
            "message_first": ("message", "app_mention"),
            "mention_first": ("app_mention", "message"),
            "message_only": ("message",),
            "mention_only": ("app_mention",),
        }[order]
        return [self.message_event(message, kind, more) for kind in wanted if kind == "message" or mentioned]

    def react(self, user: str, ts: str, name: str) -> Delivery:
        """A person puts a reaction on a message: reaction_added, which needs ``reactions:read``."""
        message = self.message(ts)
        message.reactions.setdefault(name, []).append(user)
        item = {"type": "message", "channel": message.channel, "ts": ts}
        event = {"type": "reaction_added", "user": user, "reaction": name, "item": item}
        return self.event(event | {"item_user": message.user, "event_ts": self.next_ts()})

    def open_home(self, user: str, tab: str = "messages") -> Delivery:
        """app_home_opened."""
        channel = self.dm(user)
        return self.event(
            {
                "type": "app_home_opened",
                "user": user,
                "channel": channel.id,
                "tab": tab,
                "event_ts": self.next_ts(),
            }
        )

    def stop(self, user: str, channel: str, thread_ts: str) -> Delivery:
        """Press Slack's own stop button: the thread's streams end, then agent_session_stopped."""
        stopped = []
        for message in self.thread(channel, thread_ts):
            if message.stream and message.stream.state == "streaming":
                message.stream.state = "stopped_by_user"
                stopped.append(message.ts)
        self.changed()
        event = {"type": "agent_session_stopped", "channel": channel, "thread_ts": thread_ts, "user": user}
        return self.event(event | {"streaming_message_ts": stopped, "event_ts": self.next_ts()})

    def join(self, user: str, channel: str) -> Delivery:
        """member_joined_channel; the bot itself becomes a member by it."""
        place = self.channels[channel]
        if user == BOT_USER:
            place.member = True
        event = {"type": "member_joined_channel", "user": user, "channel": channel, "team": TEAM}
        kind = "G" if place.kind == "private" else "C"
        return self.event(event | {"channel_type": kind, "event_ts": self.next_ts()})

    def rate_limit_events(self) -> Delivery:
        """app_rate_limited: an outer type of its own, without an event."""
        payload = {"token": "verification", "type": "app_rate_limited", "team_id": TEAM, "api_app_id": APP}
        return self.sockets.deliver("events_api", payload | {"minute_rate_limited": int(self.wall())})

    def dm(self, user: str) -> Channel:
        return next(channel for channel in self.channels.values() if channel.user == user)


_MENTION = re.compile(r"<@(\w+)>")


def _rich_text(text: str) -> list[Json]:
    """The blocks that a client sends along with a person's text. Their text is plain, without entities."""
    elements: list[Json] = []
    for place, part in enumerate(_MENTION.split(text)):
        if part:
            elements.append(
                {"type": "user", "user_id": part} if place % 2 else {"type": "text", "text": unescape(part)}
            )
    return [
        {
            "type": "rich_text",
            "block_id": "r1",
            "elements": [{"type": "rich_text_section", "elements": elements}],
        }
    ]
