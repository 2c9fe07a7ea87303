"""The store that the settings name: files of one machine, or one PostgreSQL for many."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version

import anyio

from bot.config.load import resolve_secret
from bot.config.settings import Settings
from bot.ports.config_error import ConfigInvalid
from bot.wiring.tool_set import Resources
from threads.file_store import FileStore
from threads.store.disk import Offload
from threads.stores import Store

NO_DRIVER = 'store.kind: "postgres" needs the postgres extra; run: pip install "threadfast[postgres]"'


@asynccontextmanager
async def leaving(store: Store) -> AsyncIterator[None]:
    """Give up what the process owns when the block ends, however it ends."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await store.leave()


def make_store(
    settings: Settings, environ: Mapping[str, str], resources: Resources, journal_offload: Offload
) -> Store:
    """Return the store of the settings, not opened yet. Raises `ConfigInvalid`."""
    if settings.store.kind == "files":
        return FileStore(
            settings.data,
            resources.disk,
            offload=resources.offload,
            journal_offload=journal_offload,
            now=resources.now,
        )
    try:
        from bot.store.postgres.store import PostgresStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    return PostgresStore(
        resolve_secret(settings.store.dsn, environ),
        settings.data / "scratch",
        name=f"{socket.gethostname()}:{os.getpid()}",
        version=version("threadfast"),
        now=resources.now,
    )
