"""Opens what reads the store that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bot.config.load import resolve_secret
from bot.config.settings import Settings
from bot.ports.config_error import NO_DRIVER, ConfigInvalid
from bot.reports.files import FileReader
from bot.reports.links import linked

if TYPE_CHECKING:
    from bot.store.postgres.reading import PostgresReader
    from bot.store.reader import Reader


def open_reader(settings: Settings, environ: Mapping[str, str]) -> Reader:
    """Return what reads the store of the settings. Raises `ConfigInvalid` and OSError."""
    if settings.store.kind == "postgres":
        return open_postgres(settings, environ)
    return FileReader(settings.data)


def open_postgres(settings: Settings, environ: Mapping[str, str]) -> PostgresReader:
    """Return what reads the database of the settings. Raises `ConfigInvalid` and OSError."""
    try:
        from bot.store.postgres.reading import PostgresReader
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    return PostgresReader(resolve_secret(settings.store.dsn, environ), settings.data, linked)
