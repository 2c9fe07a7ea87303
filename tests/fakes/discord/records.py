"""What the fake remembers: users, roles, channels (threads are channels), messages, files and calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.discord.ids import BOT, EPHEMERAL, SUPPRESS_EMBEDS, THREAD_TYPES, Json


@dataclass
class User:
    id: str
    name: str
    bot: bool = False
    roles: list[str] = field(default_factory=list)
    member: bool = True

    def view(self) -> Json:
        more: Json = {"bot": True} if self.bot else {}
        return {
            "id": self.id,
            "username": self.name,
            "global_name": None if self.bot else self.name.title(),
            "discriminator": "0001" if self.bot else "0",
            "avatar": None,
            "public_flags": 0,
            **more,
        }

    def member_view(self) -> Json:
        """A member without its user, as messages carry it."""
        return {
            "roles": list(self.roles),
            "nick": None,
            "avatar": None,
            "joined_at": "2020-04-14T00:00:00+00:00",
            "premium_since": None,
            "deaf": False,
            "mute": False,
            "pending": False,
            "flags": 0,
            "communication_disabled_until": None,
        }


@dataclass
class Role:
    id: str
    name: str
    permissions: int = 0
    mentionable: bool = True
    bot: str = ""
    """The bot whose own role it is."""

    def view(self, position: int) -> Json:
        more: Json = {"tags": {"bot_id": self.bot}} if self.bot else {}
        return {
            "id": self.id,
            "name": self.name,
            "color": 0,
            "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
            "hoist": False,
            "icon": None,
            "unicode_emoji": None,
            "position": position,
            "permissions": str(self.permissions),
            "managed": bool(self.bot),
            "mentionable": self.mentionable,
            "flags": 0,
            **more,
        }


@dataclass
class Attachment:
    id: str
    channel: str
    name: str
    content: bytes
    kind: str


@dataclass(eq=False)
class Message:
    """``author`` is a user's id; ``contents`` all texts that it ever had, ``pings`` whom it notified.

    ``parts`` are further fields, as Discord sends them.
    """

    id: str
    channel: str
    author: str
    content: str = ""
    type: int = 0
    reply_to: str = ""
    reference: Json | None = None
    snapshots: list[Json] = field(default_factory=list)
    nonce: str = ""
    flags: int = 0
    attachments: list[Attachment] = field(default_factory=list)
    embeds: list[Json] = field(default_factory=list)
    components: list[Json] = field(default_factory=list)
    mentions: list[str] = field(default_factory=list)
    mention_roles: list[str] = field(default_factory=list)
    mention_everyone: bool = False
    pings: list[str] = field(default_factory=list)
    unfurls: list[str] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    contents: list[str] = field(default_factory=list)
    edits: int = 0
    edited_at: float | None = None
    deleted: bool = False
    pinned: bool = False
    webhook: str = ""
    author_name: str = ""
    parts: Json = field(default_factory=dict)
    interaction: Json | None = None
    settle: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Short: it is read in failed assertions."""
        gone = " deleted" if self.deleted else ""
        return f"<{self.id} in {self.channel} by {self.author} type {self.type}{gone}: {self.content!r} {self.buttons}>"

    @property
    def ours(self) -> bool:
        return self.author == BOT

    @property
    def ephemeral(self) -> bool:
        return bool(self.flags & EPHEMERAL)

    @property
    def suppressed(self) -> bool:
        return bool(self.flags & SUPPRESS_EMBEDS)

    @property
    def buttons(self) -> list[tuple[str, str]]:
        """(label, custom id) of its buttons, row by row."""
        return [
            (item.get("label", ""), item["custom_id"])
            for row in self.components
            for item in row.get("components", ())
            if item.get("type") == 2 and "custom_id" in item
        ]

    @property
    def files(self) -> dict[str, bytes]:
        return {file.name: file.content for file in self.attachments}

    def __await__(self) -> Generator[Any, None, Message]:
        return self._settled().__await__()

    async def _settled(self) -> Message:
        if self.settle:
            await self.settle()
        return self


@dataclass(eq=False)
class Channel:
    """``kind`` is Discord's type; a thread has a parent. ``denied``: permissions that the bot lacks there."""

    id: str
    kind: int
    name: str = ""
    guild: str = ""
    parent: str = ""
    user: str = ""
    owner: str = ""
    archived: bool = False
    locked: bool = False
    archive_after: int = 1440
    created_at: float = 0.0
    changed_at: float = 0.0
    denied: set[str] = field(default_factory=set)
    messages: dict[str, Message] = field(default_factory=dict, repr=False)
    deleted: bool = False
    settle: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)

    @property
    def is_thread(self) -> bool:
        return self.kind in THREAD_TYPES

    @property
    def last(self) -> str | None:
        return next(reversed(self.messages), None)

    def __await__(self) -> Generator[Any, None, Channel]:
        return self._settled().__await__()

    async def _settled(self) -> Channel:
        if self.settle:
            await self.settle()
        return self


@dataclass(eq=False)
class Call:
    """A call as it came in: ``path`` are the parts of the address, ``body`` the JSON, ``files`` what came along."""

    route: str
    path: dict[str, str]
    query: dict[str, str]
    body: Json
    token: str
    at: float
    connection: int = 0
    files: dict[str, Attachment] = field(default_factory=dict)
    status: int = 0
    code: int = 0
    answer: Any = None
    refused: Literal["", "limit", "fault"] = ""

    @property
    def channel(self) -> str:
        return self.path.get("channel", "")

    @property
    def content(self) -> str:
        return str(self.body.get("content") or "")
