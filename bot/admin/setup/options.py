"""The options of `threadfast init`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class InitOptions:
    """None and empty mean not given. ``files`` hold secrets, by the field they are for."""

    settings: Path
    platform: str = ""
    data: Path | None = None
    name: str = ""
    model: str = ""
    base_url: str = ""
    key_file: Path | None = None
    free: bool = False
    price: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    api_base_url: str = ""
    gateway_url: str = ""
    verify: bool = True
    yes: bool = False
    users: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
