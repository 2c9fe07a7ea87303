"""Makes the store that the settings name: files for one machine, or PostgreSQL for many."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import version

import anyio
import anyio.lowlevel
import anyio.to_thread

from bot.agent.prompt.memory import MemoryStore
from bot.agent.prompt.memory_files import MemoryFiles
from bot.budget.accounts import SpendingLedger
from bot.budget.ledger import Ledger
from bot.config.load import resolve_secret
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.observe.audit import Append, AuditFiles, AuditRecord, ignore
from bot.observe.turn_events import Observing
from bot.ports.config_error import NO_DRIVER, ConfigInvalid
from bot.store.data_version import prepare
from bot.store.restored_answers import Restored, restored
from bot.wiring.escalation import Claim, always
from threads.file_store import FileStore
from threads.ports import Store
from threads.store.disk import Disk, Offload, PosixDisk
from threads.store.json_file import JsonFiles, States
from transports.web.relay import Notices


@dataclass(frozen=True, slots=True)
class Resources:
    """What all parts of a bot use. ``offload`` runs short jobs that people wait for, ``work`` the jobs of tools.

    ``on_audit`` gets each record of the audit.
    """

    disk: Disk
    offload: Offload
    work: Offload
    now: Callable[[], datetime]
    mask: Masker
    observing: Observing
    on_audit: Callable[[AuditRecord], None] = ignore


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything that outlives the process. Call ``open`` first. It raises `NewerSchema` and OSError."""

    store: Store
    ledger: SpendingLedger
    states: States
    memory: MemoryStore
    append_audit: Append
    now: Callable[[], datetime]
    open: Callable[[], Awaitable[object]]
    restored: Callable[[], Awaitable[Restored | None]]
    notices: Notices | None = None
    """Texts to all workers of the store; None if this process is the only one."""
    worker: str = ""
    """The name of this process among the workers; blank if it is the only one."""
    trouble: Callable[[], str] = lambda: ""
    """Returns what is wrong with the store now, for people; blank if nothing is."""
    claim_report: Claim = always
    """Returns whether this process is to report something to the operators."""


@asynccontextmanager
async def leaving(store: Store) -> AsyncIterator[None]:
    """Give up the threads that the process owns when the block ends."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await store.leave()


def make_storage(
    settings: Settings, environ: Mapping[str, str], resources: Resources, journal_offload: Offload
) -> Storage:
    """Return the storage of the settings, not yet open. Raises `ConfigInvalid`."""
    return (_files if settings.store.kind == "files" else _postgres)(
        settings, environ, resources, journal_offload
    )


def _files(
    settings: Settings, _: Mapping[str, str], resources: Resources, journal_offload: Offload
) -> Storage:
    disk, data, offload, now = resources.disk, settings.data, resources.offload, resources.now
    ledger = Ledger(disk, data / "usage", offload=offload, now=now)

    def open_all() -> None:
        prepare(data)
        ledger.open()

    return Storage(
        FileStore(data, disk, offload=offload, journal_offload=journal_offload, now=now),
        ledger,
        JsonFiles(disk, data, offload),
        MemoryFiles(disk, data, offload),
        AuditFiles(disk, data / "audit", offload).append,
        now,
        partial(offload, open_all),
        partial(offload, restored, data),
    )


def _postgres(settings: Settings, environ: Mapping[str, str], resources: Resources, _: Offload) -> Storage:
    try:
        from bot.budget.postgres_ledger import PostgresLedger  # noqa: PLC0415 - an extra
        from bot.store.postgres.store import PostgresStore  # noqa: PLC0415
        from bot.store.postgres.worker import WorkerLost  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    dsn = resolve_secret(settings.store.dsn, environ)
    name = f"{socket.gethostname()}:{os.getpid()}"
    store = PostgresStore(dsn, settings.data, name=name, version=version("threadfast"), now=resources.now)
    ledger = PostgresLedger(store.pool, lambda: store.worker.number, store.now, WorkerLost)
    return Storage(
        store,
        ledger,
        store.states,
        store.memory,
        store.append_audit,
        store.now,
        store.prepare,
        store.restored,
        store.worker.notices,
        name,
        lambda: store.trouble,
        store.claim_report,
    )


@asynccontextmanager
async def states_beside(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[States]:
    """Yield the small values of the store for a command beside a running bot: nothing is locked or migrated.

    Raises `ConfigInvalid`.
    """
    if settings.store.kind == "files":
        yield JsonFiles(PosixDisk(), settings.data, anyio.to_thread.run_sync)
        return
    try:
        from bot.store.postgres.session import Pool  # noqa: PLC0415 - an extra
        from bot.store.postgres.states import PostgresStates  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    # The others need no notice: who uses such a value reads it again first.
    pool = Pool(resolve_secret(settings.store.dsn, environ), 1)
    try:
        yield PostgresStates(pool, anyio.lowlevel.checkpoint)
    finally:
        await pool.close()
