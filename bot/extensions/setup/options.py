"""The options of `threadfast init`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class InitOptions:
    """None and empty mean not given.

    ``transport`` is what the settings call the platform. ``files`` hold secrets, and ``addresses`` are in the
    platform's place; both by the setting that they are for.
    """

    settings: Path
    platform: str = ""
    transport: str = ""
    data: Path | None = None
    name: str = ""
    model: str = ""
    base_url: str = ""
    key_file: Path | None = None
    free: bool = False
    price: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    verify: bool = True
    yes: bool = False
    users: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
