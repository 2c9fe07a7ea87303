import io
import json
import tracemalloc

import anyio
import pytest
from click.testing import CliRunner

from bot.admin.cli import main
from bot.admin.reports import usage as usage_report
from bot.admin.reports.files import FileReader
from bot.budget.budgets import Call, Carried, Commit, Reserve, record_adapter
from bot.budget.ledger import Ledger
from bot.ports.model import Usage
from tests.bot.budget.ledgers import Time, inline
from threads.store.checksummed_lines import encode
from threads.store.disk import PosixDisk

OPUS, DEMO = "anthropic/claude-opus-5-5", "offline/demo"


async def spend(data, time: Time, *records) -> None:
    ledger = Ledger(PosixDisk(), data / "usage", offload=inline, now=time)
    ledger.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.run)
        for record in records:
            await ledger.append(record)
        tasks.cancel_scope.cancel()


def call(day: str, *, user="ann", thread="slack:T1:C1:1.0", model=OPUS) -> Call:
    return Call(thread, user, "m1", model, day)


@pytest.fixture
def data(tmp_path):
    time = Time("2026-10-30T10:00:00")
    october = Commit(call=call("2026-10-30"), usage=Usage(1000, 500), micros=14_000)
    anyio.run(spend, tmp_path, time, Reserve(call=call("2026-10-30"), micros=99_000), october)
    time.set("2026-11-20T10:00:00")
    anyio.run(
        spend,
        tmp_path,
        time,
        reserve := Reserve(call=call("2026-11-20"), micros=400_000),
        Commit(
            call=call("2026-11-20"),
            usage=Usage(1000, 500, 7000, 2000),
            micros=250_000,
            reserve=reserve.seq + 3,
        ),
        Commit(call=call("2026-11-21", user="bob", model=DEMO), usage=Usage(20_000, 5), micros=0),
        Commit(call=call("2026-11-21", user="bob", thread="new:x\x1b[31m"), usage=Usage(5, 5), micros=None),
        Reserve(call=call("2026-11-21"), micros=500_000),
    )
    return tmp_path


def run(data, *arguments: str):
    return CliRunner().invoke(main, ["usage", "--data", str(data), *arguments])


def lines(data, *arguments: str) -> dict:
    result = run(data, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


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
    assert (second["calls"], second["usd"], second["calls_without_price"], second["calls_not_ended"]) == (
        3,
        0.5,
        1,
        1,
    )
    assert found["total"]["usd"] == 0.75
    assert found["damaged_lines"] == 0


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("user", ["ann", "bob"]),
        ("thread", ["slack:T1:C1:1.0", "new:x\x1b[31m"]),
        ("model", [OPUS, DEMO]),
    ],
)
def test_other_groups_come_with_the_dearest_first(data, by, names):
    assert [line[by] for line in lines(data, "--since", "2026-11-01", "--by", by)["lines"]] == names


def test_one_month(data):
    assert [line["day"] for line in lines(data, "--month", "2026-10")["lines"]] == ["2026-10-30"]
    assert lines(data, "--month", "2026-10")["total"]["calls_not_ended"] == 1
    assert lines(data, "--month", "2026-09")["lines"] == []


def test_through_a_pipe_it_is_plain_columns(data):
    result = run(data, "--since", "2026-01-01")
    assert "\x1b" not in run(data, "--since", "2026-01-01", "--by", "thread").stdout
    assert result.stdout.isascii()
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["Day", "Calls", "Prompt", "Cached", "Output", "Cost"]
    assert rows[2] == ["2026-11-20", "1", "10k", "70%", "500", "$0.25"]
    assert rows[4] == ["Total", "6", "31k", "23%", "1,010", "$0.86"]
    assert "2 calls not ended: the most that can cost is counted." in result.stdout
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
    usage_report.show(usage_report.report(FileReader(data), "thread", ("2026-01-01", None)), out)
    assert "█" * usage_report.BAR in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


def test_nothing_was_spent_yet(tmp_path):
    assert run(tmp_path).stdout == "Nothing has been spent yet.\n"
    assert run(tmp_path).exit_code == 0
    assert lines(tmp_path)["lines"] == []


def test_nothing_was_spent_in_that_time(data):
    told = run(data, "--since", "2026-12-24").stdout
    assert told.startswith("Nothing was spent from 2026-12-24 to now.\n")


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
    (data / "usage" / "2026-12.jsonl").write_bytes(
        encode(record_adapter(), Carried(seq=1, rows=[], open=[], v=99))
    )
    result = run(data, "--since", "2026-01-01")
    assert result.exit_code == 78
    assert "newer Threadfast" in result.stderr


def test_a_line_that_was_written_twice_counts_once(data):
    file = data / "usage" / "2026-11.jsonl"
    (data / "usage" / "2026-11.2.jsonl").write_bytes(file.read_bytes())
    assert lines(data, "--since", "2026-11-01")["total"]["usd"] == 0.75


def test_a_long_file_is_read_a_line_at_a_time(data):
    with (data / "usage" / "2026-11.jsonl").open("ab") as file:
        for seq in range(100, 5000):
            record = Commit(seq=seq, call=call("2026-11-22"), usage=Usage(1, 1), micros=1)
            file.write(encode(record_adapter(), record))
        size = file.tell()
    tracemalloc.start()
    try:
        made = usage_report.report(FileReader(data), "day", ("2026-11-22", None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.total.calls == 4900
    assert peak < size


def test_since_and_month_are_not_used_together(data):
    assert run(data, "--since", "2026-11-01", "--month", "2026-11").exit_code == 2
    assert run(data, "--month", "soon").exit_code == 2
