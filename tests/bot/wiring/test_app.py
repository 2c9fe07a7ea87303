"""The end of the whole program."""

from __future__ import annotations

import threading

import anyio

from bot.wiring import app
from tests.patience import WITHIN_S
from tests.serving import serving
from threads.background import background_tasks
from threads.store.disk import PosixFile


async def test_a_disk_that_hangs_delays_the_end_of_the_process_only_so_long(tmp_path, monkeypatch):
    hung, go_on = threading.Event(), threading.Event()

    def hang(_: PosixFile) -> None:
        hung.set()
        go_on.wait(20)

    monkeypatch.setattr(app, "LAST_WRITES_S", 0.1)
    try:
        with anyio.fail_after(WITHIN_S):
            async with (
                serving(tmp_path / "data", {"model": "offline/demo"}) as chat,
                background_tasks() as tasks,
            ):
                await chat.say("hello")
                monkeypatch.setattr(PosixFile, "fsync", hang)
                tasks.start_soon(chat.send, "again")
                await anyio.to_thread.run_sync(hung.wait)
        assert not go_on.is_set()
    finally:
        go_on.set()
