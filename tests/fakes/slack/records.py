"""What a workspace is made of: people, channels, messages, streams, files, sessions, calls; and how Slack shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

TEAM, BOT_USER, BOT, APP = "T1", "UBOT", "BBOT", "A1"

Kind = Literal["public", "private", "im", "mpim"]
Json = dict[str, Any]

KIND_IN_EVENTS: dict[str, str] = {"public": "channel", "private": "group", "im": "im", "mpim": "mpim"}


@dataclass(slots=True)
class User:
    id: str
    name: str = ""
    is_bot: bool = False
    deleted: bool = False
    tz: str = "Europe/Berlin"

    def view(self) -> Json:
        name = self.name or self.id.lower()
        return {
            "id": self.id,
            "team_id": TEAM,
            "name": name,
            "real_name": name,
            "deleted": self.deleted,
            "tz": self.tz,
            "is_bot": self.is_bot,
            "is_app_user": False,
            "profile": {"real_name": name, "display_name": name, "team": TEAM},
        }


@dataclass(slots=True)
class Stream:
    """A message that is being streamed; ``size`` counts UTF-8 bytes since the start, ``pieces`` the chunks."""

    started: float
    recipient: str | None
    state: Literal["streaming", "stopped", "stopped_by_user"] = "streaming"
    size: int = 0
    pieces: list[str] = field(default_factory=list)
    chunks: list[Json] = field(default_factory=list)
    """Chunks that are not text: task_update."""


@dataclass(slots=True)
class Message:
    """``texts`` are all texts it ever had, ``pings`` and ``unfurls`` all it ever fired (edits included)."""

    channel: str
    ts: str
    text: str
    user: str | None = None
    bot_id: str | None = None
    app_id: str | None = None
    username: str | None = None
    thread_ts: str | None = None
    subtype: str | None = None
    client_msg_id: str | None = None
    blocks: list[Json] | None = None
    attachments: list[Json] | None = None
    metadata: Json | None = None
    files: list[File] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None
    edited: Json | None = None
    deleted: bool = False
    stream: Stream | None = None
    texts: list[str] = field(default_factory=list)
    pings: list[str] = field(default_factory=list)
    unfurls: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        return self.thread_ts or self.ts

    @property
    def in_channel(self) -> bool:
        """Whether the channel itself shows it: a root, or a reply that was sent to the channel as well."""
        return self.thread_ts in (None, self.ts) or self.subtype == "thread_broadcast"

    @property
    def ours(self) -> bool:
        return self.bot_id == BOT

    def view(self, *, metadata: bool = False) -> Json:
        """As the Web API and the events show it."""
        shown: Json = {"type": "message", "ts": self.ts, "text": self.text, "team": TEAM}
        if self.bot_id:
            shown["bot_id"] = self.bot_id
        if self.ours:
            shown["app_id"] = APP
            shown["bot_profile"] = {"id": BOT, "app_id": APP, "team_id": TEAM, "name": "threadfast"}
        for name in ("user", "subtype", "thread_ts", "client_msg_id", "username", "blocks", "attachments"):
            if (value := getattr(self, name)) is not None:
                shown[name] = value
        if self.files:
            shown["files"] = [file.view() for file in self.files]
            shown["upload"] = self.ours
        if self.edited:
            shown["edited"] = self.edited
        if self.reactions:
            shown["reactions"] = [
                {"name": name, "users": users, "count": len(users)} for name, users in self.reactions.items()
            ]
        if metadata and self.metadata:
            shown["metadata"] = self.metadata
        return shown


@dataclass(slots=True)
class Channel:
    id: str
    name: str = ""
    kind: Kind = "public"
    member: bool = True
    """Whether the bot is in it."""
    archived: bool = False
    user: str | None = None
    """The other side of a DM."""
    messages: dict[str, Message] = field(default_factory=dict)
    """By ts, in order."""
    replies: dict[str, list[str]] = field(default_factory=dict)
    """The ts of every reply by its root's ts."""

    def view(self) -> Json:
        shown: Json = {
            "id": self.id,
            "created": 1760000000,
            "is_archived": self.archived,
            "is_im": self.kind == "im",
            "is_mpim": self.kind == "mpim",
            "is_channel": self.kind == "public",
            "is_group": self.kind == "private",
            "is_private": self.kind != "public",
            "is_member": self.member,
            "context_team_id": TEAM,
        }
        return shown | ({"user": self.user} if self.kind == "im" else {"name": self.name or self.id.lower()})

    def thread(self, root: str) -> list[Message]:
        """The root and its replies in order, the deleted ones left out."""
        stamps = [root, *self.replies.get(root, ())]
        return [message for ts in stamps if (message := self.messages.get(ts)) and not message.deleted]


@dataclass(slots=True)
class File:
    id: str
    name: str
    mimetype: str
    content: bytes
    url: str
    title: str = ""
    user: str = BOT_USER
    length: int = 0
    uploaded: bool = True
    shared: bool = False
    clip: Json = field(default_factory=dict)
    """What only a recording made in Slack has."""
    shown: Json = field(default_factory=dict)
    """What differs for a file that is no download."""
    withheld: bool = False
    """Whether messages give its id alone, as of another company's file; files.info gives all of it."""

    def view(self) -> Json:
        """As messages show it."""
        if self.withheld:
            return {"id": self.id, "mode": "file_access", "file_access": "check_file_info", "created": 0}
        return self.info()

    def info(self) -> Json:
        whole = self.clip | {
            "id": self.id,
            "name": self.name,
            "title": self.title or self.name,
            "mimetype": self.mimetype,
            "filetype": self.name.rpartition(".")[2],
            "size": len(self.content),
            "user": self.user,
            "mode": "hosted",
            "is_external": False,
            "url_private": self.url,
            "url_private_download": self.url,
        }
        return whole | self.shown


@dataclass(slots=True)
class Ephemeral:
    """Seen by ``user`` alone, kept apart from the channel's messages."""

    channel: str
    user: str
    ts: str
    thread_ts: str | None
    text: str
    blocks: list[Json] | None
    pings: list[str]
    unfurls: list[str]


@dataclass(slots=True)
class Words:
    """An assistant status text: gone at ``until``, or with the next message of ours in the thread."""

    text: str
    loading: list[str]
    at: float
    until: float


@dataclass(slots=True)
class Session:
    """An agent session of one thread; ``statuses`` is its history."""

    status: str
    title: str = ""
    statuses: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """One call of the Web API. ``at`` is in the fake's clock; ``error`` what it was answered ("" = ok)."""

    method: str
    args: Json
    token: str | None
    at: float
    connection: int
    status: int = 0
    error: str | None = None
    answer: Json | None = None
