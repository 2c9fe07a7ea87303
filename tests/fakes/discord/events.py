"""What changes in the world, and the events that follow from it, whoever caused the change."""

from __future__ import annotations

import mimetypes
from typing import Any

from tests.fakes.discord.gateway import Gateway
from tests.fakes.discord.ids import FORUM_TYPE, GUILD, NEWS, NEWS_THREAD, PUBLIC, Json
from tests.fakes.discord.records import Attachment, Channel, Message
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import channel_view, member, message_view, thread_view


class Events(Gateway):
    echo = True

    def __init__(self, *times: Any) -> None:
        super().__init__(*times)
        self.files: dict[str, Attachment] = {}
        self.typings: list[str] = []
        """The channels of the bot's typing calls, in order."""
        self.closed_dms: set[str] = set()
        """People whom the bot may not write to: 50007."""

    # messages

    def put(self, message: Message, *, quiet: bool = False) -> Message:
        """Keep a message and tell of it; it wakes an archived thread."""
        channel = self.channels[message.channel]
        if channel.archived:
            self.set_archived(channel, archived=False, locked=channel.locked, quiet=quiet)
        message.contents.append(message.content)
        message.settle = self.settle
        if message.ephemeral:
            self.whispers.append(message)
        else:
            channel.messages[message.id] = message
        if not quiet and (self.echo or not message.ours):
            view = message_view(self, message, event=True)
            if message.nonce:
                view["nonce"] = message.nonce
            self._tell_message("MESSAGE_CREATE", message, view)
        self.changed()
        return message

    def updated(self, message: Message) -> None:
        if self.echo or not message.ours:
            self._tell_message("MESSAGE_UPDATE", message, message_view(self, message, event=True))
        self.changed()

    def erase(self, *messages: Message) -> None:
        """Delete messages, several in bulk."""
        for message in messages:
            message.deleted = True
        channel = self.channels[messages[0].channel]
        whisper = messages[0].ephemeral
        about: Json = {"channel_id": channel.id}
        if channel.guild and not whisper:
            about["guild_id"] = GUILD
        if len(messages) == 1:
            event, about["id"] = "MESSAGE_DELETE", messages[0].id
        else:
            event, about["ids"] = "MESSAGE_DELETE_BULK", [one.id for one in messages]
        self.tell(event, about, family="messages", channel=channel, whisper=whisper)
        self.changed()

    def redeliver(self, said: str | Message) -> Message:
        """The same MESSAGE_CREATE once more."""
        message = self.message(said)
        self._tell_message("MESSAGE_CREATE", message, message_view(self, message, event=True))
        return message

    def _tell_message(self, event: str, message: Message, view: Json) -> None:
        channel = self.channels[message.channel]
        whisper = message.ephemeral
        self.tell(event, view, family="messages", channel=channel, message=message, whisper=whisper)

    # threads and channels

    def open_thread(
        self,
        parent: Channel,
        id: str,
        name: str,
        owner: str,
        minutes: int = 1440,
        *,
        starter: Message | None = None,
        quiet: bool = False,
    ) -> Channel:
        """Open a thread, from a message (*starter*; ids are then the same), or a forum's post."""
        now = self.wall()
        kind = NEWS_THREAD if parent.kind == NEWS else PUBLIC
        thread = Channel(id, kind, name, GUILD, parent.id, owner=owner, archive_after=minutes)
        thread.created_at = thread.changed_at = now
        thread.settle = self.settle
        self.channels[id] = thread
        if not quiet:
            self.tell("THREAD_CREATE", thread_view(self, thread) | {"newly_created": True}, channel=thread)
        if starter:
            if not quiet:
                self.updated(starter)
            self._first_line(thread, starter, owner, quiet=quiet)
        elif parent.kind != FORUM_TYPE:
            notice = Message(self.snowflake(), parent.id, owner, name, 18)
            notice.reference = {"type": 0, "channel_id": id, "guild_id": GUILD}
            self.put(notice, quiet=quiet)
        self.changed()
        return thread

    def _first_line(self, thread: Channel, starter: Message, owner: str, *, quiet: bool) -> None:
        """The system message that begins a thread and refers to the message it was opened from."""
        line = Message(self.snowflake(), thread.id, owner, "", 21)
        place = {"channel_id": starter.channel, "guild_id": GUILD}
        line.reference = {"type": 0, "message_id": starter.id, **place}
        self.put(line, quiet=quiet)

    def set_archived(self, thread: Channel, *, archived: bool, locked: bool, quiet: bool = False) -> None:
        thread.archived, thread.locked, thread.changed_at = archived, locked, self.wall()
        if not quiet:
            self.tell("THREAD_UPDATE", thread_view(self, thread), channel=thread)
        self.changed()

    def made(self, channel: Channel) -> None:
        if channel.guild:
            self.tell("CHANNEL_CREATE", channel_view(self, channel), channel=channel)
        self.changed()

    def remove_channel(self, channel: Channel) -> None:
        """A channel or thread is deleted, and with a channel all its threads."""
        event = "THREAD_DELETE" if channel.is_thread else "CHANNEL_DELETE"
        keys = ("id", "guild_id", "parent_id", "type")
        view = channel_view(self, channel)
        self.tell(event, {key: view[key] for key in keys} if channel.is_thread else view, channel=channel)
        channel.deleted = True
        for thread in self.threads(channel.id):
            thread.deleted = True
        self.changed()

    # reactions

    def reacted(self, message: Message, emoji: str, user: str, *, added: bool) -> None:
        channel = self.channels[message.channel]
        data: Json = {"user_id": user, "channel_id": channel.id, "message_id": message.id}
        data |= {"emoji": {"id": None, "name": emoji}, "burst": False, "type": 0}
        if channel.guild:
            data |= {"guild_id": GUILD} | ({"member": member(self, user)} if added else {})
        if added:
            data |= {"message_author_id": message.author}
        self.tell(
            f"MESSAGE_REACTION_{'ADD' if added else 'REMOVE'}", data, family="reactions", channel=channel
        )
        self.changed()

    def take_reaction(self, message: Message, emoji: str, user: str) -> None:
        users = message.reactions.get(emoji, [])
        if user not in users:
            raise Refusal(400, 10014, "Unknown Emoji")
        users.remove(user)
        if not users:
            del message.reactions[emoji]
        self.reacted(message, emoji, user, added=False)

    def kind_of(self, name: str, told: str = "") -> str:
        """The media type of a file: by its name first, as Discord does."""
        return mimetypes.guess_type(name)[0] or told or "application/octet-stream"
