"""The page without a bot, and without a history, for tests of the transport alone."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio.to_thread

from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from transports.web.address import Address
from transports.web.client import Options, WebTransport
from transports.web.events import Past
from transports.web.sessions import WebState
from transports.web.thread_list import NotesState


class NoHistory:
    async def threads(self, *_):
        return []

    async def past(self, *_):
        return Past()


async def at_once(function, /, *args):
    return function(*args)


def transport(data: Path, *, history=NoHistory(), notices=None, **options) -> WebTransport:
    states = JsonFiles(PosixDisk(), data, at_once)
    given = {
        "address": Address("127.0.0.1", 0),
        "name": "threadfast",
        "folder": data / "web",
        "most_file_bytes": 1_000_000,
        "commands": {},
        "is_admin": lambda _: False,
        **options,
    }
    return WebTransport(
        Options(**given),
        history,
        partial(states.open, "web", WebState()),
        lambda person: states.open(f"web-threads-{person}", NotesState()),
        offload=anyio.to_thread.run_sync,
        now=partial(datetime.now, UTC),
        notices=notices,
    )
