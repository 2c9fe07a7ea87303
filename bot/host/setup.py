"""What `threadfast init` needs to know of a chat platform to set it up."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from bot.config.settings import Settings
from bot.config.transports import TransportSection

T = TypeVar("T")


class Screen(Protocol):
    """Where a person is asked and told."""

    def title(self, name: str, about: str) -> None: ...

    def steps(self, steps: Sequence[tuple[str, str]]) -> None:
        """Print what a person has to do: sentences, each with the address that it links to or a blank."""

    def ask(self, question: str, read: Callable[[str], T], default: str = "") -> T: ...

    def address(self, url: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """How secrets of a ``kind`` look, such as "a Slack user token". ``is_certain``: nothing else looks the same."""

    kind: str
    pattern: re.Pattern[str]
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Token:
    """One secret of a platform. ``kind`` is that of its form, and ``variable`` where the environment may have it."""

    name: str
    kind: str
    title: str
    variable: str

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}-file"


@dataclass(frozen=True, slots=True)
class Members:
    """How a platform names its people. ``where`` is where they find their own id."""

    form: re.Pattern[str]
    example: str
    where: str
    everyone: str


@dataclass(frozen=True, slots=True)
class PlatformSetup:
    """How a platform is set up.

    ``forms`` are those of its tokens, also of those that are not wanted. ``addresses`` are its settings with an
    address, and what each is for; a person is asked for those in ``asks``. ``log_in`` gets the settings of the
    transport, a name and a password, and returns a token or raises `ConfigInvalid`. ``files`` are written beside the
    settings, and ``guide`` says where to click: both get the name of the transport. ``hello`` is what a person does
    to hear from the bot.
    """

    title: str
    tokens: Sequence[Token]
    forms: Sequence[Form]
    people: Members
    guide: Callable[[Screen, Settings, str], None]
    hello: Callable[[Settings], str]
    addresses: Mapping[str, str] = field(default_factory=dict)
    asks: Collection[str] = ()
    log_in: Callable[[TransportSection, str, str], Awaitable[str]] | None = None
    files: Callable[[Settings, str], dict[str, bytes]] = lambda *_: {}
