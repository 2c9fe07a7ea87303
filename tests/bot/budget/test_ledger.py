import errno
import random
from pathlib import Path

import anyio
import pytest

from bot.budget import ledger as ledger_module
from bot.budget.budgets import Carried, Commit, Grant, Reserve, Warned, record_adapter
from bot.budget.ledger import Ledger, Part, parts
from bot.ports.model import Usage
from tests.bot.budget.ledgers import (
    CALL,
    THREAD,
    Time,
    disk_of,
    empty_disk,
    failing,
    files,
    ledger_on,
    opened,
    power_cut,
    reopened,
)
from tests.explorer.model import ModelDisk, Read, Sync, SyncFolder, Write
from tests.fakes.http import Reply, Stall
from tests.fakes.openai import FakeOpenAI
from tests.serving import compatible, serving
from threads.background import background_tasks
from threads.errors import NewerSchema, StoreUnavailable
from threads.store.checksummed_lines import encode, read_records


def reserve(amount: int = 100) -> Reserve:
    return Reserve(call=CALL, micros=amount)


def commit(of: Reserve | None, amount: int | None = 30, usage: Usage = Usage(10, 5, 4)) -> Commit:
    return Commit(call=CALL, usage=usage, micros=amount, reserve=of.seq if of else 0)


def used(ledger: Ledger) -> int:
    return ledger.budgets.total(THREAD).used


def reopened_reading(disk: ModelDisk, time: Time) -> tuple[Ledger, set[str]]:
    """Return the ledger as a start reads it, and the names of the files that it read."""
    read: set[str] = set()
    disk.faults = lambda op: read.add(Path(op.path).name) or op if isinstance(op, Read) else op
    return reopened(disk, time), read


async def test_a_reservation_is_on_disk_when_its_append_returns():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(reserve())
    for seed in range(20):
        assert used(reopened(power_cut(disk, random.Random(seed)), Time())) == 100


async def test_a_commit_takes_the_place_of_its_reservation_also_after_a_restart():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(record := reserve())
        batch = ledger.put(commit(record))
        assert used(ledger) == 30
        await batch.done.wait()
    again = reopened(disk, Time())
    assert (used(again), again.budgets.total(THREAD).cached) == (30, 4)


async def test_grants_and_warnings_survive():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(Grant(scope="thread", key="t1", micros=7, by="admin"))
        await ledger.append(Warned(scope="thread", key="t1", level="warning"))
    total = reopened(disk, Time()).budgets.total(THREAD)
    assert (total.granted, total.warned) == (7, "warning")


async def test_a_commit_alone_costs_no_fsync():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(record := reserve())
        disk.ops.clear()
        await ledger.put(commit(record)).done.wait()
    assert [type(op) for op in disk.ops] == [Write]


async def test_a_new_month_begins_a_new_file_that_carries_all_that_counts():
    disk, time = empty_disk(), Time("2026-11-30T23:59:00")
    async with opened(disk, time) as ledger:
        await ledger.append(running := reserve(50))
        await ledger.append(record := reserve())
        ledger.put(commit(record))
        time.set("2026-12-01T00:00:01")
        await ledger.put(commit(running, 20)).done.wait()
    assert sorted(files(disk)) == ["2026-11.jsonl", "2026-12.jsonl"]
    again, read = reopened_reading(disk, time)
    assert used(again) == 50
    assert again.budgets.total(("month", "2026-11")).used == 50
    assert read == {"2026-12.jsonl"}


async def test_a_clock_that_goes_back_goes_on_in_the_newest_file():
    disk, time = empty_disk(), Time("2026-12-01T00:00:01")
    async with opened(disk, time) as ledger:
        await ledger.append(reserve())
        time.set("2026-11-03T00:00:00")
        await ledger.append(reserve())
    async with opened(disk, time) as again:
        await again.append(reserve())
        assert used(again) == 300
    assert sorted(files(disk)) == ["2026-12.jsonl"]


async def test_a_large_file_is_followed_by_another_of_the_same_month(monkeypatch):
    monkeypatch.setattr(ledger_module, "BEGIN_ANEW_ABOVE", 2000)
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        for _ in range(100):
            await ledger.append(reserve(1))
    assert {"2026-11.jsonl", "2026-11.2.jsonl", "2026-11.3.jsonl"} <= set(files(disk))
    assert used(reopened(disk, Time())) == 100


async def test_a_torn_tail_is_put_aside_and_nothing_sticks_to_it():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(reserve(1))
        await ledger.append(reserve(2))
    torn = files(disk)["2026-11.jsonl"][:-9]
    disk = disk_of(**{"2026-11": torn})
    async with opened(disk, Time()) as again:
        assert used(again) == 1
        await again.append(reserve(4))
    assert used(reopened(disk, Time())) == 5
    assert torn.split(b"\n")[-1] in files(disk)["2026-11.jsonl.broken"]


async def test_a_damaged_line_in_the_middle_is_put_aside_and_the_rest_counts():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        for amount in (1, 2, 4):
            await ledger.append(reserve(amount))
    lines = files(disk)["2026-11.jsonl"].split(b"\n")
    lines[2] = lines[2].replace(b"ann", b"bob")
    disk = disk_of(**{"2026-11": b"\n".join(lines)})
    again = ledger_on(disk, Time())
    assert again.open() == 1
    assert used(again) == 5
    assert lines[2] in files(disk)["2026-11.jsonl.broken"]


async def test_a_damaged_commit_leaves_the_reservation_counted():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(record := reserve())
        ledger.put(commit(record))
        await ledger.append(reserve(1))
    lines = files(disk)["2026-11.jsonl"].split(b"\n")
    lines[2] = b"#" + lines[2]
    disk = disk_of(**{"2026-11": b"\n".join(lines)})
    assert used(reopened(disk, Time())) == 101


async def test_a_file_whose_first_line_is_damaged_is_read_after_the_ones_before_it():
    disk, time = empty_disk(), Time()
    async with opened(disk, time) as ledger:
        await ledger.append(record := reserve())
        time.set("2026-12-01T00:00:00")
        ledger.put(commit(record))
        await ledger.append(reserve(1))
    damaged = files(disk)["2026-12.jsonl"].replace(b'"carried"', b'"carrieD"')
    disk = disk_of(**{"2026-11": files(disk)["2026-11.jsonl"], "2026-12": damaged})
    again = ledger_on(disk, time)
    assert again.open() == 1
    assert used(again) == 31
    assert used(reopened(disk, time)) == 31


async def heads(disk: ModelDisk, time: Time) -> bytes:
    """Write a file with a head of many lines, after one that adds up to the same; return it."""
    async with opened(disk, time) as ledger:
        for n in range(5):
            await ledger.append(Commit(call=_call(n, "2026-11-21"), usage=Usage(1, 1), micros=10))
        await ledger.append(reserve())
        time.set("2026-12-01T00:00:00")
        await ledger.append(reserve(1))
    return files(disk)["2026-12.jsonl"]


async def test_a_head_of_many_lines_is_read_back(monkeypatch):
    monkeypatch.setattr("bot.budget.budgets.ROWS", 3)
    disk, time = empty_disk(), Time()
    december = await heads(disk, time)
    assert december.count(b'"carried"') > 3
    again, read = reopened_reading(disk, time)
    assert used(again) == 111
    assert again.budgets.total(("day", "2026-11-21")).used == 151
    assert read == {"2026-12.jsonl"}


@pytest.mark.parametrize("damaged", [0, 1, -1])
async def test_a_head_with_any_line_damaged_is_not_believed(monkeypatch, damaged):
    monkeypatch.setattr("bot.budget.budgets.ROWS", 3)
    disk, time = empty_disk(), Time()
    lines = (await heads(disk, time)).split(b"\n")
    last = sum(b'"carried"' in line for line in lines) - 1
    place = last if damaged == -1 else damaged
    lines[place] = lines[place].replace(b"carried", b"carrieD")
    disk = disk_of(**{"2026-11": files(disk)["2026-11.jsonl"], "2026-12": b"\n".join(lines)})
    for damage in (1, 0):
        again = ledger_on(disk, time)
        assert again.open() == damage
        assert used(again) == 111
        assert again.budgets.total(("day", "2026-11-21")).used == 151


@pytest.mark.parametrize("restart", [False, True])
async def test_a_file_grows_to_several_times_its_head_before_the_next_one(monkeypatch, restart):
    monkeypatch.setattr(ledger_module, "BEGIN_ANEW_ABOVE", 1000)
    disk, time = empty_disk(), Time()
    async with opened(disk, time) as ledger:
        for n in range(300):
            await ledger.put(Commit(call=_call(n, "2026-11-21"), usage=Usage(1, 1), micros=10)).done.wait()
        time.set("2026-12-01T00:00:00")
        await ledger.append(reserve(1))
    async with opened(disk, time) as ledger:
        while "2026-12.2.jsonl" not in files(disk):
            await ledger.append(reserve(1))
            if restart:
                break
    while "2026-12.2.jsonl" not in files(disk):
        async with opened(disk, time) as ledger:
            for _ in range(20):
                await ledger.append(reserve(1))
    lines = files(disk)["2026-12.jsonl"].splitlines(keepends=True)
    head = sum(len(line) for line in lines if b'"carried"' in line)
    grown = sum(map(len, lines)) - head
    assert head > 10_000
    assert ledger_module.HEADS * head < grown < (ledger_module.HEADS + 0.5) * head


async def test_a_batch_that_was_cancelled_on_its_way_to_the_disk_is_written_at_the_end():
    disk, calls = empty_disk(), []
    taken = anyio.Event()

    async def busy(function, *args):
        calls.append(function)
        if len(calls) == 2:
            taken.set()
            await anyio.sleep_forever()
        return function(*args)

    ledger = reopened(disk, Time(), busy)
    async with background_tasks() as tasks:
        tasks.start_soon(ledger.run)
        await ledger.append(record := reserve())
        ledger.put(commit(record))
        await taken.wait()
    assert used(reopened(disk, Time())) == 30


async def test_what_a_cancelled_block_puts_last_is_written_too():
    disk = empty_disk()
    ledger = reopened(disk, Time())

    async def life() -> None:
        async with ledger.writing(), anyio.create_task_group() as actors:
            actors.start_soon(actor)
            await anyio.sleep_forever()

    async def actor() -> None:
        await ledger.append(record := reserve())
        ready.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()  # last of all
                ledger.put(commit(record))

    ready = anyio.Event()
    async with background_tasks() as tasks:
        tasks.start_soon(life)
        await ready.wait()
    assert used(reopened(disk, Time())) == 30


async def test_a_disk_that_refuses_at_the_end_does_not_hold_up_the_end(caplog):
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        disk.faults = failing()
        ledger.put(reserve())
    assert "No space left" in caplog.text


async def test_an_orderly_shutdown_does_not_charge_a_running_call_its_whole_reservation(tmp_path):
    price = {"input": 1.0, "output": 1000.0}
    asked = anyio.Event()

    def silent(seen: object) -> Reply:
        asked.set()
        return Reply((Stall(),))

    async with FakeOpenAI(silent) as fake:
        given = {
            "model": "cloud/x",
            "providers": compatible("cloud", fake.base_url),
            "prices": {"cloud/x": price},
            "budget": {"limit_usd": {"turn": None, "thread": None, "user_day": None, "day": None}},
        }
        async with serving(tmp_path, given) as seat:
            await seat.send("hello")
            await asked.wait()
    records, _ = read_records(
        record_adapter(), b"".join(path.read_bytes() for path in (tmp_path / "usage").iterdir())
    )
    made = [record for record, _ in records if isinstance(record, Commit)]
    assert [record.outcome for record in made] == ["turn_stopped"]
    assert 0 < made[0].micros < 2_000_000, "the reservation was for 8192 tokens, which are 8 dollars"


async def test_a_ledger_of_a_newer_version_is_left_alone():
    line = encode(record_adapter(), Carried(seq=1, rows=[], open=[], v=99))
    disk = disk_of(**{"2026-11": line})
    with pytest.raises(NewerSchema):
        ledger_on(disk, Time()).open()
    assert files(disk) == {"2026-11.jsonl": line}


async def test_a_disk_that_fails_is_told_and_no_line_is_lost_or_counted_twice():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(first := reserve())
        disk.faults = failing(Sync, errno.EIO)
        with pytest.raises(StoreUnavailable):
            await ledger.append(second := reserve())
        await ledger.put(commit(second, 0)).done.wait()
        disk.faults = lambda op: op
        ledger.put(commit(first))
        await ledger.append(reserve(1))
        assert used(ledger) == 31
    assert used(reopened(disk, Time())) == 31
    seqs = [
        record.seq
        for name in ("2026-11.jsonl", "2026-11.2.jsonl")
        for record, _ in read_records(record_adapter(), files(disk)[name])[0]
        if not isinstance(record, Carried)
    ]
    assert set(seqs) == set(range(1, 7)), "and the end of the call that the last start found open"


async def test_a_folder_that_is_left_of_a_failed_try_is_made_durable_by_the_next_one():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        disk.faults = failing(SyncFolder, errno.EIO)
        with pytest.raises(StoreUnavailable):
            await ledger.append(reserve())
        disk.faults = lambda op: op
        await ledger.append(reserve(7))
    for seed in range(20):
        assert used(reopened(power_cut(disk, random.Random(seed)), Time())) == 107


async def test_what_a_failed_fsync_left_in_view_is_written_anew_at_the_start():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        await ledger.append(reserve())
        disk.faults = failing(Sync, errno.EIO)
        with pytest.raises(StoreUnavailable):
            await ledger.append(reserve(7))
        disk.faults = lambda op: op
    ledger_on(disk, Time()).open()
    assert used(reopened(power_cut(disk, random.Random(1)), Time())) == 107


@pytest.mark.parametrize(("most_turns", "turns"), [(1, 1), (3, 2)])
async def test_a_new_file_forgets_what_is_long_past(monkeypatch, most_turns, turns):
    for name, kept in {"KEPT_TURNS": most_turns, "KEPT_DAYS": 8, "KEPT_USER_DAYS": 2}.items():
        monkeypatch.setattr(f"bot.budget.budgets.{name}", kept)
    disk, time = empty_disk(), Time("2026-01-01T10:00:00")
    async with opened(disk, time) as ledger:
        for month in range(1, 13):
            time.set(f"2026-{month:02}-15T10:00:00")
            await ledger.put(
                Commit(call=_call(month, ledger.today), usage=Usage(1, 1), micros=10)
            ).done.wait()
    scopes = [scope for scope, _ in ledger.budgets.totals]
    # The last file began when its first record had been counted.
    names = ("thread", "turn", "user_day", "day", "month")
    assert [scopes.count(name) for name in names] == [8, turns, 2, 8, 3]
    async with opened(disk, time) as again:
        assert again.budgets.totals == ledger.budgets.totals


def _call(n: int, day: str):
    return type(CALL)(f"t{n}", "ann", f"m{n}", "fake/one", day)


def test_the_order_of_files_is_by_month_and_number():
    names = ["2026-11.jsonl", "2026-11.10.jsonl", "2026-11.2.jsonl", "2025-12.jsonl", "x.jsonl"]
    names += ["2026-11.jsonl.broken", "2026-11.jsonl.tmp", "2026-11.0.jsonl"]
    assert parts(names) == [Part("2025-12"), Part("2026-11"), Part("2026-11", 2), Part("2026-11", 10)]
