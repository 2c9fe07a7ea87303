"""The settings of the transport, as its parts take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Streaming = Literal["edits", "progress", "off"]


@dataclass(frozen=True, slots=True)
class Options:
    """``commands`` has the meaning of each command by its usage, such as "/deny [ID | all]".

    `/model` completes ``models``. ``roles`` returns those that grant rights; all others are dropped. ``bots`` are
    other bots that may write to this one.
    """

    token: str = field(repr=False)
    api_base_url: str | None = None
    gateway_url: str | None = None
    streaming: Streaming = "edits"
    reactions: bool = True
    typing: bool = True
    feedback: bool = False
    in_place: frozenset[str] = frozenset()
    ask_shortcut: bool = False
    ask_reaction: str = ""
    bots: frozenset[str] = frozenset()
    roles: Callable[[], frozenset[str]] = frozenset
    commands: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    max_age_s: float = 600
