"""Where a server is, everything looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Program:
    """A server to be started."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """A server to be reached."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
