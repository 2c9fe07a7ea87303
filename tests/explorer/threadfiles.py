"""Scenarios of a thread's own files: the conversation (context.jsonl and its archive) and the history (log.jsonl)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.log import Log, LogEntry, entries
from threads.model import Message, Text, ToolCall, ToolResult
from threads.store import disk as disks
from threads.store.checksummed_lines import read_line, scan
from threads.store.context import ContextFile, line_adapter

from .model import ModelDisk
from .scenarios import ROOT, Step, demand, inline, kept_aside, reached, sound

FOLDER = ROOT / "threads" / "fake" / "W~C~1"
OTHER = ROOT / "threads" / "fake" / "W~C~2"

Talk = tuple[Message, ...]


def said(text: str, role: str = "user") -> Message:
    return Message(
        "assistant" if role == "assistant" else "user", (Text(f"{text} \u2028 \N{SNOWMAN}"),), source=text
    )


def talk() -> list[Talk]:
    """Return the versions of a conversation: it grows, uses a tool, is mended, and grows again."""
    call = Message("assistant", (ToolCall("c1", "read_file", {"path": "x"}),), model="fake/one")
    result = Message("user", (ToolResult("c1", '{"success": true}'),))
    one = (said("m1"),)
    two = (*one, call)
    three = (*two, result, said("done", "assistant"))
    return [one, two, three, (one[0], said("mended", "assistant"))]


def lines_of(disk: ModelDisk, path: Path) -> list[Message]:
    data = disk.seen().get(str(path)) or b""
    return [read_line(line_adapter(), line).message for line in scan(data).good if sound(line)]


@dataclass(slots=True, kw_only=True)
class Saved(Step):
    """A checkpoint, or with *archives* the putting aside of that conversation."""

    version: Talk
    archives: Talk = ()


@dataclass(slots=True)
class ContextScenario:
    """The conversation is the last one saved or one asked for since, never a mixture and never unreadable."""

    folder: Path = FOLDER
    saves: list[Saved] = field(default_factory=list)
    before: list[Talk] = field(default_factory=lambda: [()])
    archived: list[Talk] = field(default_factory=list)

    async def save(self, disk: ModelDisk, file: ContextFile, version: Talk, archives: Talk = ()) -> None:
        step = Saved(version=version, archives=archives, asked=len(disk.ops))
        self.saves.append(step)
        try:
            await (file.archive() if archives else file.save(list(version)))
        except StoreUnavailable:
            return
        step.keep(len(disk.ops))

    def stage(self, at: int) -> Hashable:
        return reached(self.saves, at)

    def allowed(self, at: int) -> list[Talk]:
        versions = self.before
        for save in self.saves:
            if save.done is not None and save.done <= at:
                versions = [save.version]
            elif save.asked <= at:
                versions = [*versions, save.version]
        return versions

    async def judge(self, disk: ModelDisk, at: int, *, power: bool) -> tuple[ContextFile, Talk]:
        path = self.folder / "context.jsonl"
        found = disk.seen().get(str(path)) or b""
        file = open_context(disk, self.folder)
        loaded = await file.load()
        version = tuple(loaded.messages)
        allowed = self.allowed(at)
        demand(version in allowed, "the conversation is none of those allowed", version, *allowed)
        demand(loaded.damaged == 0, "a crash damaged the conversation", found)
        kept_aside(found, disk, path)
        promised = [*self.archived]
        for save in self.saves:
            if save.archives and save.asked <= at:
                cut = save.done is None or save.done > at
                promised += [] if cut and version == save.archives else [save.archives]
        old = lines_of(disk, self.folder / "context.old.jsonl")
        for part in promised:
            demand(all(message in old for message in part), "an archived conversation is gone", part, old)
        return file, version

    async def recover(self, disk: ModelDisk, at: int, *, power: bool) -> ContextScenario:
        file, version = await self.judge(disk, at, power=power)
        archived = [
            *self.archived,
            *(s.archives for s in self.saves if s.archives and (s.done or at + 1) <= at),
        ]
        scenario = ContextScenario(self.folder, before=[version, *self.allowed(at)], archived=archived)
        longer = (*version, said(f"after-{at}"))
        await scenario.save(disk, file, longer)
        await scenario.save(disk, file, (), archives=longer)
        fresh = (said(f"anew-{at}"),)
        await scenario.save(disk, file, fresh)
        demand(all(save.done is not None for save in scenario.saves), "a save fails on a healthy disk")
        return scenario


def open_context(disk: ModelDisk, folder: Path) -> ContextFile:
    """Do what the program's start does before anything is read."""
    for parent in (ROOT, folder.parent.parent, folder.parent):
        disk.mkdir(parent)
    return ContextFile(disk, folder, inline, partial(inline, disks.replace_file, disk))


async def conversation(disk: ModelDisk, scenario: ContextScenario, *, short: bool = False) -> None:
    file = open_context(disk, scenario.folder)
    try:
        await file.load()
    except StoreUnavailable:  # that turn fails; the next one tries again
        await file.load()
    versions = talk()[:2] if short else talk()
    steps: list[tuple[Talk, Talk]] = [
        *((version, ()) for version in versions),
        ((), versions[-1]),
        (versions[0], ()),
    ]
    for version, archives in steps:
        for _ in range(3):
            await scenario.save(disk, file, version, archives)
            if scenario.saves[-1].done is not None:
                break
        else:
            return  # the disk refuses for good


Line = tuple[Path, LogEntry]


@dataclass(slots=True, kw_only=True)
class Added(Step):
    lines: tuple[Line, ...]


@dataclass(slots=True)
class LogScenario:
    """A killed process loses no line; a power cut may, but what is left is sound, in order, and can be added to."""

    added: list[Added] = field(default_factory=list)
    before: dict[Path, list[LogEntry]] = field(default_factory=dict)

    async def add(self, disk: ModelDisk, log: Log, folder: Path, *names: str) -> None:
        lines = tuple(entry_of(name, kind) for name in names for kind in ("message", "settled"))
        step = Added(lines=tuple((folder, line) for line in lines), asked=len(disk.ops))
        self.added.append(step)
        await log.put(folder, list(lines), bool).done.wait()
        step.keep(len(disk.ops))

    def stage(self, at: int) -> Hashable:
        return reached(self.added, at)

    async def judge(self, disk: ModelDisk, at: int, *, power: bool) -> dict[Path, list[LogEntry]]:
        found = {}
        for folder in (FOLDER, OTHER):
            sure = [*self.before.get(folder, ())]
            asked = [*self.before.get(folder, ())]
            for step in self.added:
                own = [line for where, line in step.lines if where == folder]
                asked += own if step.asked <= at else []
                sure += own if step.done is not None and step.done <= at else []
            read = found[folder] = list(entries(disk, folder / "log.jsonl"))
            demand(
                ordered_in(read, asked),
                "the log holds what was never written, or in another order",
                read,
                asked,
            )
            if not power:
                demand(ordered_in(sure, read), "a killed process lost log lines", sure, read)
        return found

    async def recover(self, disk: ModelDisk, at: int, *, power: bool) -> LogScenario:
        raw = {folder: disk.seen().get(str(folder / "log.jsonl")) or b"" for folder in (FOLDER, OTHER)}
        found = await self.judge(disk, at, power=power)
        scenario = LogScenario(before=found)
        log = Log(disk, folder=Path, offload=inline)
        async with background_tasks() as tasks:
            tasks.start_soon(log.run)
            for folder in (FOLDER, OTHER):
                await scenario.add(disk, log, folder, f"after-{at}")
        for folder, before in raw.items():
            read = list(entries(disk, folder / "log.jsonl"))
            new = [line for step in scenario.added for where, line in step.lines if where == folder]
            demand(read == [*found[folder], *new], "a line is lost beside a torn one", read)
            if before and not before.endswith(b"\n"):
                torn = before.rpartition(b"\n")[2]
                demand(
                    torn in (disk.seen().get(f"{folder / 'log.jsonl'}.broken") or b""),
                    "a torn tail is gone",
                    torn,
                )
        return scenario


def entry_of(name: str, kind: str) -> LogEntry:
    return LogEntry(
        at="2026-11-21T10:00:00+00:00",
        kind="settled" if kind == "settled" else "message",
        message_id=name,
        text=f"{kind} \u2028 {name}",
    )


def ordered_in(part: Sequence[LogEntry], whole: Sequence[LogEntry]) -> bool:
    """Say whether *part* can be had from *whole* by leaving some out."""
    rest = iter(whole)
    return all(any(entry == other for other in rest) for entry in part)


async def history(disk: ModelDisk, scenario: LogScenario) -> None:
    log = Log(disk, folder=Path, offload=inline)
    async with background_tasks() as tasks:
        tasks.start_soon(log.run)
        await scenario.add(disk, log, FOLDER, "m1")
        await scenario.add(disk, log, OTHER, "n1")
        async with anyio.create_task_group() as together:
            together.start_soon(scenario.add, disk, log, FOLDER, "m2")
            together.start_soon(scenario.add, disk, log, OTHER, "n2")
        await scenario.add(disk, log, FOLDER, "m3", "m4")
