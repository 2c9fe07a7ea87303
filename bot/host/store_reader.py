"""Opens what reads the store that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.host.extension import store_kind
from bot.reports.files import FileReader

if TYPE_CHECKING:
    from bot.store.reader import Reader, SharedReader


def open_reader(settings: Settings, environ: Mapping[str, str]) -> Reader:
    """Return what reads the store of the settings. Raises `ConfigInvalid` and OSError."""
    return open_shared(settings, environ) or FileReader(settings.data)


def open_shared(settings: Settings, environ: Mapping[str, str]) -> SharedReader | None:
    """Return what reads a store that many workers share; None for files. Raises `ConfigInvalid` and OSError."""
    kind = store_kind(settings)
    return kind.read(settings, environ) if kind else None
