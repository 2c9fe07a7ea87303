"""Takes steps of forgetting: in a data folder, and in a store that many workers share."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

from bot.extensions.retention.due import DEAD_LETTERS, Step, shared_steps, steps
from bot.extensions.retention.rewritten_lines import drop_messages, sum_calls
from bot.extensions.retention.settings import Retention
from bot.extensions.retention.thread_parts import PARTS, erase, quiet_since
from bot.host.extension import Host
from bot.host.store_reader import open_shared
from bot.store.reader import Forgotten, SharedReader
from threads.model import message_key
from threads.store.data_folder import thread_folder

QUIET_THREAD = timedelta(days=1)
"""How long nothing was said in a thread whose history is rewritten."""


class KeptFiles:
    """A `bot.extensions.retention.sweep.Kept`: the data folder of a running bot."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def due(self, rules: Retention) -> list[Step]:
        return [*steps(self._host.settings.data, rules, self._host.now())]

    async def take(self, step: Step) -> bool:
        host, taken = self._host, False
        if step.thread is None:
            work = partial(sum_calls, host.disk) if step.kind == "spending" else Path.unlink
            await host.work(work, step.path)
            return True

        async def work_on_thread() -> None:
            nonlocal taken
            taken = await host.work(self._take_of_thread, step)

        return await host.erase(step.thread, [step.kind], work_on_thread) and taken

    def _take_of_thread(self, step: Step) -> bool:
        """Erase a part of a thread, unless something was said there meanwhile. Blocking."""
        assert step.thread
        folder = thread_folder(self._host.settings.data, step.thread)
        quiet = quiet_since(folder)
        if step.quiet_since and quiet > step.quiet_since:
            return False
        if step.quiet_since:
            erase(self._host.disk, folder, [part for part in PARTS if part == step.kind])
        elif self._host.now() - quiet >= QUIET_THREAD:
            drop_messages(self._host.disk, folder / "log.jsonl", step.ids)
        return True


class KeptTogether:
    """A `bot.extensions.retention.sweep.Kept`: the store of many workers. Any of them takes what nobody serves."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def due(self, rules: Retention) -> list[Step]:
        with closing(self._reader()) as reader:
            return [*shared_steps(reader, rules, self._host.now())]

    async def take(self, step: Step) -> bool:
        return await self._host.work(self._take, step)

    def _take(self, step: Step) -> bool:
        if step.thread is None:
            with closing(self._reader()) as reader:
                return reader.drop_months("audit" if step.kind == "audit" else "spending", step.until) > 0
        keys = [message_key(step.thread, one) for one in step.ids]
        parts = [] if step.kind == DEAD_LETTERS else [step.kind]
        until = step.quiet_since or self._host.now() - QUIET_THREAD
        with closing(self._reader()) as reader:
            return not reader.forget(Forgotten({str(step.thread): parts}, messages=keys, until=until))

    def _reader(self) -> SharedReader:
        reader = open_shared(self._host.settings, self._host.environ)
        assert reader
        return reader
