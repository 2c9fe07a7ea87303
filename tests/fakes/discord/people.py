"""What people do: each verb changes the world and sends the events that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fakes.discord import rules
from tests.fakes.discord.events import Events
from tests.fakes.discord.ids import GUILD, Json, made_at, stamp
from tests.fakes.discord.records import Attachment, Channel, Message
from tests.fakes.discord.views import attachment_view

VOICE_MESSAGE = 1 << 13
"""The flag of a message that was recorded in Discord."""

FORWARDED = ("attachments", "components", "embeds", "flags", "sticker_items")
"""The parts of a message that a forward of it has."""

OTHER_BOT = "700000000000000299"
FileOf = tuple[str, bytes, str]


class People(Events):
    def say(
        self,
        user: str,
        channel: str,
        text: str = "",
        *,
        reply_to: str | Message | None = None,
        ping: bool = True,
        files: Sequence[FileOf] = (),
        forward_of: str | Message | None = None,
        type: int = 0,
        quiet: bool = False,
        **more: Any,
    ) -> Message:
        """Say *text* in a channel, thread or DM. *ping*: a reply notifies whom it answers.

        *forward_of*: a message is forwarded instead. *quiet*: it is there, but its event got lost. *more*: attributes of
        the message (``embeds``, ``flags``, ...).
        """
        message = Message(self.snowflake(), self.place(channel).id, user, text, type, **more)
        message.attachments = [self._file(channel, *file) for file in files]
        self._mention(message)
        if reply_to:
            self._reply(message, self.message(reply_to), ping=ping)
        if forward_of:
            self._forward(message, self.message(forward_of))
        return self.put(message, quiet=quiet)

    def record(self, user: str, channel: str, content: bytes, **more: Any) -> Message:
        """Send a voice message: it has no words, and one file."""
        return self.say(
            user, channel, files=[("voice-message.ogg", content, "audio/ogg")], flags=VOICE_MESSAGE, **more
        )

    def _mention(self, message: Message) -> None:
        named = rules.mentions_in(message.content)
        message.mentions = [one for one in named.users if one in self.users]
        message.mention_roles = [one for one in named.roles if one in self.roles]
        message.mention_everyone = named.everyone and bool(self.channels[message.channel].guild)

    def _file(self, channel: str, name: str, content: bytes, kind: str) -> Attachment:
        file = Attachment(self.snowflake(), channel, name, content, kind)
        self.files[file.id] = file
        return file

    def _reply(self, message: Message, to: Message, *, ping: bool) -> None:
        message.type, message.reply_to = 19, to.id
        message.reference = self._pointer(to, 0)
        if ping and to.author in self.users and to.author not in message.mentions:
            message.mentions.append(to.author)

    def _forward(self, message: Message, of: Message) -> None:
        message.reference = self._pointer(of, 1)
        message.snapshots = [
            {
                "type": of.type,
                "content": of.content,
                "embeds": of.embeds,
                "attachments": [attachment_view(self, file) for file in of.attachments],
                "timestamp": stamp(made_at(of.id)),
                "edited_timestamp": None,
                "flags": of.flags,
                "mentions": [],
                "mention_roles": [],
                "components": list(of.components),
                **{part: of.parts[part] for part in FORWARDED if part in of.parts},
            }
        ]

    def _pointer(self, to: Message, kind: int) -> Json:
        guild = self.channels[to.channel].guild
        place = {"channel_id": to.channel} | ({"guild_id": guild} if guild else {})
        return {"type": kind, "message_id": to.id, **place}

    def edit(self, said: str | Message, text: str, *, quiet: bool = False) -> Message:
        """A person edits their message."""
        message = self.message(said)
        message.content, message.edited_at = text, self.wall()
        message.contents.append(text)
        self._mention(message)
        if not quiet:
            self.updated(message)
        return message

    def unfurl(self, said: str | Message, url: str = "https://example.com/") -> Message:
        """Discord adds a preview: an update of a message that nobody edited."""
        message = self.message(said)
        message.embeds = [*message.embeds, {"type": "link", "url": url, "title": "Example"}]
        self.updated(message)
        return message

    def delete(self, said: str | Message) -> Message:
        message = self.message(said)
        self.erase(message)
        return message

    def bulk_delete(self, *said: str | Message) -> list[Message]:
        messages = [self.message(one) for one in said]
        self.erase(*messages)
        return messages

    # others than people

    def bot_says(self, channel: str, text: str, *, bot: str = OTHER_BOT, **more: Any) -> Message:
        """Another bot speaks."""
        if bot not in self.users:
            other = self.user("other", bot=True)
            self.users[bot] = self.users.pop(other.id)
            self.users[bot].id = bot
        return self.say(bot, channel, text, **more)

    def webhook_says(self, channel: str, text: str, *, name: str = "Build") -> Message:
        hook = self.snowflake()
        message = Message(self.snowflake(), channel, hook, text, webhook=hook, author_name=name)
        self._mention(message)
        return self.put(message)

    def system(self, channel: str, type: int, *, user: str, text: str = "") -> Message:
        """A system message: 6 a message was pinned, 7 somebody joined, 8 a boost, 18 and 21 of threads."""
        return self.put(Message(self.snowflake(), channel, user, text, type))

    # threads

    def thread(self, user: str, said: str | Message, name: str, *, quiet: bool = False) -> Channel:
        """A person opens a thread from a message."""
        message = self.message(said)
        parent = self.place(message.channel)
        return self.open_thread(parent, message.id, name, user, starter=message, quiet=quiet)

    def loose_thread(self, user: str, channel: str, name: str) -> Channel:
        """A thread that was opened from no message."""
        return self.open_thread(self.place(channel), self.snowflake(), name, user)

    def post(
        self, user: str, forum: str, name: str, text: str, *, quiet: bool = False, **more: Any
    ) -> Message:
        """A new post in a forum; its thread has the id of this first message."""
        thread = self.open_thread(self.place(forum), self.snowflake(), name, user, quiet=quiet)
        message = Message(thread.id, thread.id, user, text, **more)
        self._mention(message)
        return self.put(message, quiet=quiet)

    def archive(self, thread: str, *, locked: bool = False, quiet: bool = False) -> None:
        self.set_archived(self.place(thread), archived=True, locked=locked, quiet=quiet)

    def lock(self, thread: str) -> None:
        """Nobody without MANAGE_THREADS may write there."""
        place = self.place(thread)
        self.set_archived(place, archived=place.archived, locked=True)

    def delete_channel(self, channel: str) -> None:
        self.remove_channel(self.place(channel))

    def kick(self) -> None:
        """The bot is removed from the guild."""
        self.tell("GUILD_DELETE", {"id": GUILD})
        self.in_guild = False
