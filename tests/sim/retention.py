"""The extension that forgets, in a simulated life: a day is short, and people have their threads forgotten.

The extension looks at a real folder that shows what the simulated disk does. What it takes goes from the simulated
disk, where that may fail or be cut short, and then from the folder.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bot.config.extensions import settings_model
from bot.extensions.retention import sweep
from bot.extensions.retention.extension import COMMAND, extension
from bot.extensions.retention.thread_command import ASK, SURE
from bot.routing.commands import ExtensionCommand
from bot.schedules.store import Schedules, SchedulesFile
from bot.wiring.core import Parts
from bot.wiring.tool_set import ToolSet
from tests.judge.crash import FORGOTTEN
from tests.judge.journal import BEGAN, START, clock
from tests.judge.records import read_lines
from threads.model import Incoming, Outgoing, ThreadId
from threads.store.data_folder import thread_folder
from threads.store.disk import Offload
from threads.store.json_file import JsonFiles

from .disk import SimDisk
from .fate import Fate
from .record import Record

FORGET = f"/{COMMAND.name}"
KEPT = {f"{part}_days": 1 for part in ("conversation", "log", "attachments", "workspace", "dead_letters")}


class ShownDisk:
    """A `threads.store.disk.Disk`: the simulated one, with the real *folder* in place of *data*.

    ``owed`` says by folder what is open in a thread that is being forgotten.
    """

    def __init__(self, disk: SimDisk, data: Path, folder: Path, record: Record) -> None:
        self._disk, self._data, self._folder, self._record = disk, data, folder, record
        self.owed: dict[Path, list[str]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: getattr(self._disk, name)(*map(self._there, given))

    def _there(self, one: Any) -> Any:
        return self._data / one.relative_to(self._folder) if isinstance(one, Path) else one

    def look(self) -> None:
        """Show in the folder what the kernel shows now."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for path, inode in self._disk.walk():
            shown = self._folder / Path(path).relative_to(self._data)
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.write_bytes(inode.shown)
            os.utime(shown, (BEGAN.timestamp() + inode.at - START,) * 2)

    def unlink(self, path: Path) -> None:
        self._record.violations += [f"{what}: taken, {path.name}" for what in self.owed.get(path.parent, ())]
        self._disk.unlink(self._there(path))
        path.unlink()


class Forgetting:
    """The extension of one seed, and how fast it forgets."""

    def __init__(self, seed: int, disk: SimDisk, data: Path, fate: Fate, record: Record) -> None:
        rng = random.Random(f"{seed} pace")
        self._late = timedelta(days=1, seconds=-rng.choice((30.0, 300.0)))
        self._paces = {"LOOK_EVERY_S": rng.choice((100.0, 1000.0)), "QUIET_S": rng.choice((0.0, 5.0, 60.0))}
        self._disk, self._data, self._fate, self._record = disk, data, fate, record

    def answers(self, outgoing: Outgoing) -> Iterator[tuple[float, str, str]]:
        """Yield what a person says to the question whether they are sure."""
        if ASK[-30:] in outgoing.text and self._fate.rng.random() < 0.8:
            yield self._fate.rng.uniform(0, 30), self._record.sent[outgoing.key].author, f"{FORGET} {SURE}"

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Make the folder, and the waits of the sweep short."""
        with TemporaryDirectory() as folder, patch.multiple(sweep, **self._paces):
            self._folder = Path(folder) / "bot"
            self._shown = ShownDisk(self._disk, self._data, self._folder, self._record)
            yield

    @asynccontextmanager
    async def open(self, parts: Parts, offload: Offload, schedules: Schedules | None) -> AsyncIterator[Parts]:
        """Yield the parts with the command."""
        began, wished = self._fate.clock(), set[ThreadId]()
        states = JsonFiles(self._disk, self._data, offload)
        tool_set = ToolSet(*(None,) * 5, [parts.store.journal.forget])
        tool_set.questions = SimpleNamespace()

        async def work(function: Callable[..., Any], *given: object) -> Any:
            return await offload(lambda: (self._shown.look(), function(*given))[1])

        async def erase(
            thread: ThreadId, which: Collection[str], take: Callable[[], Awaitable[None]]
        ) -> bool:
            # What is only to be refused, or too old, needs nothing of its thread.
            owed = self._open_in(thread, *(("started", began) if thread in wished else ("received", 0.0)))

            async def watched() -> None:
                self._shown.owed[thread_folder(self._folder, thread)] = owed
                self._record.forgotten[str(thread)] = self._fate.clock()
                await take()

            return await tool_set.erase(thread, which, watched)

        async def obey(words: str, incoming: Incoming) -> str:
            log = self._disk.files().get(str(thread_folder(self._data, incoming.thread) / "log.jsonl"), b"")
            logged = {one["message_id"] for one in read_lines(log) if one and one["kind"] == "settled"}
            wished.add(incoming.thread)
            reply = await running.obey[COMMAND.name](words, incoming)
            wished.discard(incoming.thread)
            # What is still on its way to the history gets there afterwards.
            self._record.gone |= logged if FORGOTTEN in reply else set()
            return reply

        given = {"data": str(self._folder), "retention": KEPT}
        host = SimpleNamespace(environ={}, disk=self._shown, work=work, states=states, erase=erase)
        host.settings = settings_model().model_validate(given, strict=False)
        host.schedules = schedules or Schedules(await states.open("schedules", SchedulesFile()), parts.now)
        host.now, host.is_admin = lambda: parts.now() + self._late, lambda _: True
        command = ExtensionCommand(COMMAND.usage, COMMAND.meaning, COMMAND.off, COMMAND.is_turn, obey)
        async with extension.open(host) as running:
            extensions = {**parts.extensions, COMMAND.name: command}
            self.receiving = running.receiving
            yield replace(parts, extensions=extensions, attach=tool_set.attach)

    def _open_in(self, thread: ThreadId, kind: str, since: float) -> list[str]:
        """Return what is owed in a thread of what was received or started after *since*, and what is scheduled."""
        sent, lines = self._record.sent, read_lines(self._disk.durable(self._data / "journal.jsonl"))
        here = [line for line in lines if line and line["thread_id"] == str(thread)]
        begun = {line["message_id"] for line in here if line["kind"] == kind and clock(line["at"]) >= since}
        begun -= {line["message_id"] for line in here if line["kind"] == "settled"}
        waits = {one.id for one in sent.values() if one.acknowledged and not one.command}
        owed = sorted(begun & waits - {key.rpartition(":")[2] for key in self._record.shown})
        scheduled = f'"{thread}"'.encode() in self._disk.durable(self._data / "schedules.json")
        return [*owed, "a schedule"] if scheduled else owed
