"""One PostgreSQL for many workers: the store of that name, `threadfast migrate`, and a check of the server."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic.fields import FieldInfo

from bot.config.load import resolve_secret
from bot.config.parts import SettingsPart
from bot.config.settings import Secret, Settings
from bot.host.extension import Extension, StoreKind
from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    from bot.host.checks import Check, Context
    from bot.host.storage import Resources, Storage
    from bot.store.reader import SharedReader
    from threads.store.json_file import States

NO_DRIVER = 'store.kind: "postgres" needs the postgres extra; run: pip install "threadfast[postgres]"'

POOL = SettingsPart[Secret | None](
    "store.pool_dsn",
    Secret | None,
    FieldInfo(
        default=None,
        description="Reference to the address of a pooler of transactions before that PostgreSQL; null uses none.",
    ),
    references=lambda reference: {"": reference},
)


def _open(settings: Settings, environ: Mapping[str, str], resources: Resources) -> Storage:
    try:
        from bot.extensions.postgres.ledger import PostgresLedger  # noqa: PLC0415 - an extra
        from bot.extensions.postgres.store import PostgresStore  # noqa: PLC0415
        from bot.extensions.postgres.worker import WorkerLost  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    from bot.host.storage import Storage  # noqa: PLC0415 - slow

    dsn = resolve_secret(settings.store.dsn, environ)
    name = f"{socket.gethostname()}:{os.getpid()}"
    store = PostgresStore(
        dsn,
        settings.data,
        name=name,
        version=version("threadfast"),
        now=resources.now,
        pool_dsn=pool_of(settings, environ),
    )
    return Storage(
        store,
        PostgresLedger(store.pool, lambda: store.worker.number, store.now, WorkerLost),
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
        [store.forget],
    )


def pool_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the address of the pooler, blank for none. Raises `ConfigInvalid`."""
    reference = POOL.of(settings)
    return resolve_secret(reference, environ) if reference else ""


def _read(settings: Settings, environ: Mapping[str, str]) -> SharedReader:
    try:
        from bot.extensions.postgres.reading import PostgresReader  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    from bot.reports.links import linked  # noqa: PLC0415 - slow

    return PostgresReader(resolve_secret(settings.store.dsn, environ), settings.data, linked)


@asynccontextmanager
async def _states(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[States]:
    try:
        from bot.extensions.postgres.session import Pool  # noqa: PLC0415 - an extra
        from bot.extensions.postgres.states import PostgresStates  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigInvalid(NO_DRIVER) from error
    import anyio.lowlevel  # noqa: PLC0415

    # The others need no notice: who uses such a value reads it again first.
    pool = Pool(resolve_secret(settings.store.dsn, environ), 1)
    try:
        yield PostgresStates(pool, anyio.lowlevel.checkpoint)
    finally:
        await pool.close()


def _checks(context: Context) -> Sequence[Check]:
    if context.settings.store.kind != "postgres":
        return []
    from bot.extensions.postgres.doctor_check import check_store  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("store", check_store)]


extension = Extension(
    "postgres",
    "keeps everything in one PostgreSQL for many workers",
    page="docs/many-workers.md",
    settings=(POOL,),
    stores={"postgres": StoreKind(_open, _read, _states)},
    checks=_checks,
)
