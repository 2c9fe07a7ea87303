"""The storage code against every crash and every refusal of a disk; what is explored is told in `tests.explorer`."""

from __future__ import annotations

import errno
import logging
import os
import random
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from tests.explorer.campaign import run_all
from tests.explorer.crashes import power_cuts
from tests.explorer.faults import NthFails, under
from tests.explorer.model import ModelDisk
from tests.explorer.mutants import MUTANTS
from tests.explorer.scenarios import (
    EMPTY,
    ROOT,
    JournalScenario,
    Violation,
    clock,
    incoming,
    inline,
    life,
    received,
    running,
)
from tests.explorer.threadfiles import FOLDER, ContextScenario, conversation, entry_of, open_context, said
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.log import Log, entries
from threads.store.disk import PosixDisk

KINDS = ("io", "full", "read-only")


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize(
    ("disks", "least"),
    [
        ("weak", 30_000),
        ("rot", 1_000),
        # a disk that keeps the order of its writes is in no state that a weak one is not
        pytest.param("ordered", 20_000, marks=pytest.mark.slow),
    ],
)
async def test_every_crash_state_is_recovered_from(disks, least):
    figures = {}
    total = await run_all(figures.__setitem__, only=disks)
    assert total.states >= least
    assert all(found.states > 1000 for found in figures.values()), figures


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_planted_bug_is_found(name):
    case, plant = MUTANTS[name]
    with plant(), pytest.raises(Violation):
        await run_all(lambda *_: None, only=case)


def faulty_runs():
    """Yield each kind of fault at each operation until one comes too late to strike."""
    for kind, sticky in product(KINDS, (False, True)):
        faults = NthFails(0, kind, sticky)
        while faults.hit or faults.n == 0:
            faults = NthFails(faults.n + 1, kind, sticky)
            yield faults
        assert faults.n > 3, "the fault never struck"


async def test_a_journal_survives_a_fault_at_every_operation():
    for faults in faulty_runs():
        disk, scenario = ModelDisk.holding(EMPTY), JournalScenario()
        await under(faults, disk, lambda disk=disk, scenario=scenario: life(disk, scenario))
        at = len(disk.ops)
        for image in power_cuts(disk, most=1):
            await scenario.recover(ModelDisk.holding(image), at, power=True)
        await scenario.recover(disk, at, power=False)


async def test_a_journal_goes_on_in_the_same_process_when_the_fault_is_gone():
    for faults in faulty_runs():
        disk, scenario = ModelDisk.holding(EMPTY), JournalScenario()
        journal = FileJournal(disk, ROOT / "journal.jsonl", offload=inline, now=clock())
        async with running(journal):
            disk.faults = faults
            for name in ("a", "b"):
                await scenario.ask(disk, journal, received(incoming(name)))
            disk.faults = lambda op: op
            for name in ("a", "b", "c"):  # a platform delivers again what was not acknowledged
                again = await journal.receive(incoming(name))
                assert again != any(
                    step.done and step.records[0].message_id == name for step in scenario.steps
                )
        assert sorted(pending.incoming.id for pending in journal.ledger.pending.values()) == ["a", "b", "c"]
        reopened = FileJournal(disk, ROOT / "journal.jsonl", offload=inline, now=clock())
        reopened.open()
        assert list(reopened.ledger.pending) == list(journal.ledger.pending)


async def test_a_conversation_survives_a_fault_at_every_operation():
    for faults in faulty_runs():
        disk, scenario = ModelDisk.holding(EMPTY), ContextScenario()
        try:
            await under(faults, disk, lambda disk=disk, scenario=scenario: conversation(disk, scenario))
        except StoreUnavailable:
            assert scenario.saves == []  # it could not even be loaded
        at = len(disk.ops)
        for image in power_cuts(disk, most=1):
            await scenario.recover(ModelDisk.holding(image), at, power=True)
        await scenario.recover(disk, at, power=False)


async def test_a_checkpoint_that_failed_is_whole_at_the_next_one():
    for faults in faulty_runs():
        disk = ModelDisk.holding(EMPTY)
        file = open_context(disk, FOLDER)
        await file.load()
        disk.faults = faults
        talk = [said("one")]
        for text in ("two", "three"):
            talk.append(said(text))
            with suppress(StoreUnavailable):
                await file.save(talk)
        disk.faults = lambda op: op
        await file.save(talk)
        assert (await open_context(disk, FOLDER).load()).messages == talk


async def test_a_log_loses_no_line_to_a_fault_at_any_operation():
    for faults in faulty_runs():
        disk = ModelDisk.holding(EMPTY)
        log = Log(disk, folder=Path, offload=inline)
        written = [entry_of(name, kind) for name in "abcd" for kind in ("message", "settled")]
        async with background_tasks() as tasks:
            tasks.start_soon(log.run)
            disk.faults = faults
            for n in (0, 2, 4):
                await log.put(FOLDER, written[n : n + 2], bool).done.wait()
            disk.faults = lambda op: op
            await log.put(FOLDER, written[6:], bool).done.wait()
        found = list(entries(disk, FOLDER / "log.jsonl"))
        assert list(dict.fromkeys(found)) == written
        assert len(found) <= len(written) + 1  # what a full disk took half of may be told twice


def test_the_model_disk_does_what_the_real_one_does(tmp_path):
    seen = set()
    for seed in range(60):
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        root.mkdir()
        real, model = PosixDisk(), ModelDisk.holding(dict.fromkeys(map(str, (root, *root.parents[:-1]))))
        paths = [root / "a", root / "b", root / "x" / "a", root / "x" / "y" / "b"]
        for _ in range(40):
            path, other = rng.choice(paths), rng.choice(paths)
            act = rng.choice(ACTS)
            outcomes = [outcome(act, disk, path, other, random.Random(seed)) for disk in (real, model)]
            assert outcomes[0] == outcomes[1], (seed, act.__name__, path, other)
            seen.add((act.__name__, type(outcomes[0]).__name__))
        for path in paths:
            assert path.is_file() == (str(path) in model.seen())
    assert {name for name, kind in seen if kind != "str"} == {act.__name__ for act in ACTS}


def outcome(act, disk, path, other, rng):
    """Return the result of an act, or the name of its error."""
    try:
        return (act(disk, path, other, rng),)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def create(disk, path, other, rng):
    file = disk.create(path)
    wrote = file.write(b"new")
    file.fsync()
    file.close()
    return wrote


def append(disk, path, other, rng):
    file = disk.append(path)
    wrote = file.write(rng.randbytes(rng.randrange(1, 9)))
    file.close()
    return wrote


def read(disk, path, other, rng):
    return disk.read(path)


def tail(disk, path, other, rng):
    return disk.tail(path, 3)


def truncate(disk, path, other, rng):
    return disk.truncate(path, rng.randrange(6))


def rename(disk, path, other, rng):
    return disk.rename(path, path.with_name("b"))


def unlink(disk, path, other, rng):
    return disk.unlink(path)


def mkdir(disk, path, other, rng):
    return disk.mkdir(path.parent)


def fsync_folder(disk, path, other, rng):
    return disk.fsync_folder(path.parent)


ACTS = (create, append, read, tail, truncate, rename, unlink, mkdir, fsync_folder)


def test_the_real_disk_syncs_what_the_model_counts_as_durable(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(fd):
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    disk = PosixDisk()
    disk.mkdir(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    disk.mkdir(tmp_path / "a" / "b")
    assert synced[2:] == [tmp_path / "a"]
    disk.append(tmp_path / "f").close()
    disk.truncate(tmp_path / "f", 0)
    disk.fsync_folder(tmp_path)
    assert synced[3:] == [tmp_path / "f", tmp_path]
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
