"""Values that all Discord modules share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from threads.model import ThreadId

WEB = "https://discord.com/channels"
"""The address of a message is this, its guild, its channel and its id."""

DIRECT = "@me"
"""The workspace of a direct message, as in Discord's own links: there is no guild."""


@dataclass(frozen=True, slots=True)
class Me:
    """The bot. ``roles`` are those that Discord made for it alone, one in each guild."""

    id: str
    name: str
    application: str
    roles: frozenset[str] = frozenset()


MAX_BUTTONS = 25
"""The most buttons of one message, in 5 rows of 5."""


Style = Literal["primary", "secondary", "success", "danger"]


@dataclass(frozen=True, slots=True)
class Button:
    """``label`` has at most 80 characters, ``custom_id`` 100."""

    label: str
    custom_id: str
    style: Style = "secondary"


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Where an interaction is answered for its person alone. ``thinking``: Discord shows that an answer follows."""

    application: str
    token: str = field(repr=False)
    thinking: bool

    def __str__(self) -> str:
        return f"{'command' if self.thinking else 'press'}:{self.application}:{self.token}"

    @classmethod
    def parse(cls, text: str) -> ReplyAddress | None:
        """Parse what `str` returns. Returns None for any other text."""
        kind, _, rest = text.partition(":")
        application, _, token = rest.partition(":")
        is_one = kind in ("command", "press") and application.isdecimal() and token
        return cls(application, token, kind == "command") if is_one else None


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send: a path, or bytes."""

    source: Path | bytes
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """A channel. ``parent`` is a thread's channel; ``threads``: threads can be opened from its messages.

    ``title`` is a thread's name, when it was last seen; ``owner`` opened it. ``transport`` is the name that the
    settings give this bot.
    """

    id: str
    kind: Literal["direct", "channel", "thread"]
    guild: str = DIRECT
    parent: str = ""
    threads: bool = False
    title: str = field(default="", compare=False)
    owner: str = field(default="", compare=False)
    transport: str = "discord"

    def thread(self, message_id: str = "") -> ThreadId:
        """Return the conversation of a message in this channel, if it does not continue another one.

        A thread that is opened from a message has the message's id. Without an id it is the channel itself.
        """
        match self.kind:
            case "direct":
                return ThreadId(self.transport, DIRECT, self.id, self.id)
            case "thread":
                return ThreadId(self.transport, self.guild, self.parent, self.id)
            case "channel":
                return ThreadId(self.transport, self.guild, self.id, message_id)
