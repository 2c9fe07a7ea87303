import io
import tracemalloc

import anyio
import pytest

from bot.budget.budgets import Call, Carried, Commit, Reserve, record_adapter
from bot.budget.ledger import Ledger
from bot.extensions.reports import usage as usage_report
from bot.ports.model import Usage
from bot.reports.files import FileReader
from bot.reports.usage import report as read_report
from tests.bot.budget.ledgers import Time, inline
from tests.bot.cli.data_folders import document, threadfast, write_records
from threads.background import background_tasks
from threads.store.disk import PosixDisk

OPUS, DEMO = "anthropic/claude-opus-5-5", "offline/demo"


async def spend(data, time: Time, *records) -> None:
    ledger = Ledger(PosixDisk(), data / "usage", offload=inline, now=time)
    ledger.open()
    async with background_tasks() as tasks:
        tasks.start_soon(ledger.run)
        for record in records:
            await ledger.append(record)


def call(day: str, *, user="ann", thread="slack:T1:C1:1.0", model=OPUS) -> Call:
    return Call(thread, user, "m1", model, day)


@pytest.fixture
def data(tmp_path):
    time = Time("2026-10-30T10:00:00")
    october = Commit(call=call("2026-10-30"), usage=Usage(1000, 500), micros=14_000)
    anyio.run(spend, tmp_path, time, Reserve(call=call("2026-10-30"), micros=99_000), october)
    time.set("2026-11-20T10:00:00")
    november = call("2026-11-20")
    reserve = Reserve(call=november, micros=400_000)
    records = [
        reserve,
        Commit(call=november, usage=Usage(1000, 500, 7000, 2000), micros=250_000, reserve=reserve.seq + 4),
        Commit(call=call("2026-11-21", user="bob", model=DEMO), usage=Usage(20_000, 5), micros=0),
        Commit(call=call("2026-11-21", user="bob", thread="new:x\x1b[31m"), usage=Usage(5, 5), micros=None),
        Reserve(call=call("2026-11-21"), micros=500_000),
    ]
    anyio.run(spend, tmp_path, time, *records)
    return tmp_path


def run(data, *arguments: str):
    return threadfast(data, "usage", *arguments)


def lines(data, *arguments: str) -> dict:
    return document(data, "usage", *arguments)


def test_days_add_up_and_a_call_that_never_ended_counts_at_its_most(data):
    found = lines(data, "--since", "2026-11-01")
    assert [line["day"] for line in found["lines"]] == ["2026-11-20", "2026-11-21"]
    first, second = found["lines"]
    assert first == {
        "day": "2026-11-20",
        "calls": 1,
        "prompt_tokens": 10_000,
        "cached_tokens": 7000,
        "cached_share": 0.7,
        "output_tokens": 500,
        "usd": 0.25,
        "calls_without_price": 0,
        "calls_not_ended": 0,
    }
    assert second == {**second, "calls": 3, "usd": 0.5, "calls_without_price": 1, "calls_not_ended": 1}
    assert found["total"]["usd"] == 0.75
    assert found["damaged_lines"] == 0


def test_other_groups_come_with_the_most_expensive_first(data):
    groups = {"user": ["ann", "bob"], "thread": ["slack:T1:C1:1.0", "new:x\x1b[31m"], "model": [OPUS, DEMO]}
    for by, names in groups.items():
        assert [line[by] for line in lines(data, "--since", "2026-11-01", "--by", by)["lines"]] == names


def test_one_month(data):
    assert [line["day"] for line in lines(data, "--month", "2026-10")["lines"]] == ["2026-10-30"]
    october = lines(data, "--month", "2026-10")["total"]
    assert (october["calls_not_ended"], october["calls"]) == (0, 2), (
        "the next start has counted the one cut short"
    )
    assert lines(data, "--month", "2026-09")["lines"] == []


def test_through_a_pipe_it_is_plain_columns(data):
    result = run(data, "--since", "2026-01-01")
    assert "\x1b" not in run(data, "--since", "2026-01-01", "--by", "thread").stdout
    assert result.stdout.isascii()
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["Day", "Calls", "Prompt", "Cached", "Output", "Cost"]
    assert rows[2] == ["2026-11-20", "1", "10k", "70%", "500", "$0.25"]
    assert rows[4] == ["Total", "6", "31k", "23%", "1,010", "$0.86"]
    assert "1 call not ended: the most that can cost is counted." in result.stdout
    assert "1 call with no known price: not in the cost." in result.stdout
    assert not any(line.endswith(" ") for line in result.stdout.splitlines())


def test_a_terminal_gets_bars_and_fits_into_eighty_columns(data, monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    usage_report.show(read_report(FileReader(data), "thread", ("2026-01-01", None)), out)
    assert "█" * usage_report.BAR in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


def test_an_empty_report_says_whether_anything_was_ever_spent(data, tmp_path_factory):
    never = tmp_path_factory.mktemp("never")
    assert (run(never).exit_code, run(never).stdout) == (0, "Nothing has been spent yet.\n")
    assert lines(never)["lines"] == []
    report = run(data, "--since", "2026-12-24").stdout
    assert report.startswith("Nothing was spent from 2026-12-24 to now.\n")


def test_damaged_lines_are_skipped_with_a_count_and_nothing_is_changed(data):
    file = data / "usage" / "2026-11.jsonl"
    before = file.read_bytes().replace(b"7000", b"7001") + b'{"half'
    file.write_bytes(before)
    found = lines(data, "--since", "2026-11-01")
    assert found["damaged_lines"] == 1
    assert found["total"]["usd"] == 0.9
    assert "1 line of the ledger damaged: not counted." in run(data, "--since", "2026-11-01").stdout
    assert file.read_bytes() == before


def test_a_ledger_of_a_newer_version_is_told(data):
    newer = Carried(seq=1, rows=[], open=[], v=99)
    write_records(data / "usage" / "2026-12.jsonl", record_adapter(), newer)
    result = run(data, "--since", "2026-01-01")
    assert result.exit_code == 78
    assert "newer Threadfast" in result.stderr


def test_a_line_that_was_written_twice_counts_once(data):
    file = data / "usage" / "2026-11.jsonl"
    (data / "usage" / "2026-11.2.jsonl").write_bytes(file.read_bytes())
    assert lines(data, "--since", "2026-11-01")["total"]["usd"] == 0.75


def test_a_long_file_is_read_a_line_at_a_time(data):
    one = {"call": call("2026-11-22"), "usage": Usage(1, 1), "micros": 1}
    file = data / "usage" / "2026-11.jsonl"
    write_records(file, record_adapter(), *(Commit(seq=seq, **one) for seq in range(100, 5000)))
    tracemalloc.start()
    try:
        made = read_report(FileReader(data), "day", ("2026-11-22", None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.total.calls == 4900
    assert peak < file.stat().st_size


def test_since_and_month_are_not_used_together(data):
    assert run(data, "--since", "2026-11-01", "--month", "2026-11").exit_code == 2
    assert run(data, "--month", "soon").exit_code == 2
