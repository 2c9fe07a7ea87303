"""Makes the store that the settings name: files for one machine, or what an extension brings for many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread

from bot.agent.prompt.memory_files import MemoryFiles
from bot.budget.ledger import Ledger
from bot.config.settings import Settings
from bot.host.extension import store_kind
from bot.host.storage import Resources, Storage
from bot.observe.audit import AuditFiles
from bot.store.data_version import prepare
from bot.store.restored_answers import restored
from threads.file_store import FileStore
from threads.ports import Store
from threads.store.disk import Offload, PosixDisk
from threads.store.json_file import JsonFiles, States


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
    if kind := store_kind(settings):
        return kind.open(settings, environ, resources)
    return _files(settings, resources, journal_offload)


def _files(settings: Settings, resources: Resources, journal_offload: Offload) -> Storage:
    disk, data, offload, now = resources.disk, settings.data, resources.offload, resources.now
    ledger = Ledger(disk, data / "usage", offload=offload, now=now)

    def open_all() -> None:
        prepare(data)
        ledger.open()

    store = FileStore(data, disk, offload=offload, journal_offload=journal_offload, now=now)
    return Storage(
        store,
        ledger,
        JsonFiles(disk, data, offload),
        MemoryFiles(disk, data, offload),
        AuditFiles(disk, data / "audit", offload).append,
        now,
        partial(offload, open_all),
        partial(offload, restored, data),
        on_erase=[store.journal.forget],
    )


def states_beside(settings: Settings, environ: Mapping[str, str]) -> AbstractAsyncContextManager[States]:
    """Return the small values of the store for a command beside a running bot: nothing is locked or migrated.

    Raises `ConfigInvalid` on entry.
    """
    if kind := store_kind(settings):
        return kind.states(settings, environ)
    return nullcontext(JsonFiles(PosixDisk(), settings.data, anyio.to_thread.run_sync))
