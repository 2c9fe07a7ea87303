"""A whole bot on a real homeserver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread

from bot.wiring.app import utc_now
from tests.transports.bot import bot_over
from tests.transports.matrix.synapse import Synapse
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from transports.matrix.client import Matrix, Options
from transports.matrix.intake import SyncState
from transports.matrix.settings import MatrixSettings


def transport(
    synapse: Synapse, token: str, data: Path, *, may_invite=lambda *_: True, **settings: object
) -> Matrix:
    disk, offload = PosixDisk(), anyio.to_thread.run_sync
    given = MatrixSettings(homeserver=synapse.url, **settings)
    options = Options(given, token, 600.0, may_invite=may_invite)
    edge = Matrix(options, data, disk=disk, offload=offload, now=utc_now)
    edge.open_state = partial(JsonFiles(disk, data, offload).open, "matrix-sync", SyncState())
    return edge


@asynccontextmanager
async def bot_in(
    synapse: Synapse,
    token: str,
    data: Path,
    model: object,
    *,
    options: dict[str, object] | None = None,
    **given: object,
) -> AsyncIterator[Matrix]:
    async with bot_over(transport(synapse, token, data, **(options or {})), data, model, **given) as edge:
        yield edge
