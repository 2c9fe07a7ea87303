"""The stream of events: what is in it, how a reader resumes, and what a slow one loses."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.observe.audit import Audit, AuditRecord
from bot.observe.audit_sinks import AuditLog
from bot.observe.event_lines import KINDS, encode, event_schema
from bot.observe.event_stream import BATCH, EventStream, WantedKinds
from bot.observe.turn_events import Observing
from bot.ports.errors import ModelUnavailable, ToolTimeout
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.errors import error_fields, retry_fields

IDS = {"thread_id": "fake:W:C1:1.0", "message_id": "m1", "correlation_id": "1a2b3c4d"}


async def lines_of(stream, wanted=WantedKinds(), since=None):
    return [line async for lines in stream.read(wanted, since, follow=False) for line in lines]


def settle(stream, count=1, ids=IDS):
    for _ in range(count):
        stream.settled("fake", "answered", 1.0, ids)


async def test_a_turn_is_told_with_its_steps_and_tools_under_one_reference():
    stream = EventStream()
    observing = Observing(stream)
    with observing.work("turn", "fake", IDS, 1):
        observing.step("one/m")
        with observing.work("model_call", "one/m"):
            pass
        with pytest.raises(ToolTimeout), observing.work("tool", "shell", {"call_id": "c1"}):
            raise ToolTimeout
    observing.settled("fake", "answered", 2.5, IDS)
    lines = await lines_of(stream)
    assert [(line.kind, getattr(line, "state", "")) for line in lines] == [
        ("turn", "began"),
        ("step", "began"),
        ("model_call", "ended"),
        ("tool", "began"),
        ("tool", "ended"),
        ("step", "ended"),
        ("turn", "ended"),
        ("settled", ""),
    ]
    assert {(line.thread_id, line.message_id, line.correlation_id) for line in lines} == {(*IDS.values(),)}
    assert [line.seq for line in lines] == [*range(lines[0].seq, lines[0].seq + 8)]
    assert lines[4].outcome == "tool_timeout"
    assert lines[6].steps == 1
    assert (lines[7].outcome, lines[7].seconds) == ("answered", 2.5)


async def append(lines):
    """Write nothing."""


async def test_what_the_audit_records_is_an_event_with_the_same_report():
    stream = EventStream()
    audit = Audit(append, lambda: datetime(2026, 11, 21, 10, tzinfo=UTC), stream.audited)
    log, taking = logging.getLogger("threads.made_up"), AuditLog(audit, str)
    log.addHandler(taking)
    log.setLevel(logging.INFO)
    failure = ModelUnavailable("529 with a payload", status=529)
    try:
        log.info("model.retry: no", extra={**IDS, **retry_fields(failure, 2, 4.0, model="one/m")})
        fields = {**error_fields(failure), "model": "two/m", "from_model": "one/m"}
        log.warning("model.failover: no", extra=fields)
        log.info("circuit.opened: no", extra={**error_fields(failure), "model": "one/m"})
        log.info("circuit.closed: yes", extra={"model": "one/m"})
        log.info(
            "budget.warning: no",
            extra={"scope": "day", "state": "warning", "spent_usd": 4.0, "limit_usd": 5.0},
        )
        log.info(
            "budget.paused: no", extra={**error_fields(failure), "scope": "turn, day", "needed_usd": 0.5}
        )
        log.error("turn.failed: no", exc_info=failure)
        log.info("turn.settled: answered")
    finally:
        log.removeHandler(taking)
    audit.tell("grant", {"scope": "day", "key": "2026", "usd": "1.500000"}, author="U1")
    audit.tell("decision", {"verdict": "denied", "about": "up to $1", "scopes": "day"}, author="U1")
    audit.tell("approval", {"about": "rm -rf / of somebody"}, author="U1")
    lines = await lines_of(stream)
    assert [(line.kind, getattr(line, "state", "")) for line in lines] == [
        ("retry", ""),
        ("failover", ""),
        ("circuit", "opened"),
        ("circuit", "closed"),
        ("budget", "warning"),
        ("budget", "paused"),
        ("failure", ""),
        ("budget", "granted"),
        ("budget", "declined"),
    ]
    retry, failover, opened, _, warning, paused, failed, granted, _ = lines
    assert (retry.event, retry.attempt, retry.wait_s, retry.model) == ("model.retry", 2, 4.0, "one/m")
    assert (retry.thread_id, retry.correlation_id) == (IDS["thread_id"], IDS["correlation_id"])
    reports = [line.error for line in (retry, failover, opened, paused, failed)]
    assert {(one.type, one.recoverable, one.ways, one.message) for one in reports} == {
        ("unavailable", True, ("retry",), "")
    }
    assert (failover.from_model, failover.model) == ("one/m", "two/m")
    assert (warning.spent_usd, warning.limit_usd) == (4.0, 5.0)
    assert (paused.scope, paused.needed_usd) == ("turn, day", 0.5)
    assert granted.granted_usd == 1.5
    text = b"".join(encode(line) for line in lines).decode()
    assert "payload" not in text
    assert "somebody" not in text
    assert "U1" not in text


async def test_a_reader_that_resumes_has_no_gap_and_no_double():
    stream = EventStream()
    settle(stream, 250)
    first = await lines_of(stream)
    settle(stream, 10)
    then = await lines_of(stream, since=first[-1].seq)
    assert len(first) == 250 > 2 * BATCH
    assert [line.seq for line in then] == [*range(first[-1].seq + 1, first[-1].seq + 11)]


@given(st.integers(1, 30), st.integers(0, 80), st.integers(-5, 90))
def test_a_reader_has_all_that_the_ring_has_and_is_told_of_the_rest(size, count, place):
    stream = EventStream(size=size, clock=lambda: 100.0)
    begin = 100 * 100_000
    settle(stream, count)
    oldest, end = begin + max(0, count - size), begin + count
    lines = anyio.run(lines_of, stream, WantedKinds(), begin + place)
    gap = [line for line in lines if line.kind == "gap"]
    events = [line.seq for line in lines if line.kind != "gap"]
    since = begin + place
    if oldest - 1 <= since < end:
        assert not gap
        assert events == [*range(since + 1, end)]
    else:
        assert [line.lost for line in gap] == [oldest - 1 - since if begin <= since < oldest else None]
        assert events == [*range(oldest, end)]


async def test_a_number_of_the_process_before_is_below_those_of_this_one():
    earlier, later = EventStream(clock=lambda: 100.0), EventStream(clock=lambda: 101.0)
    settle(earlier, 50)
    settle(later, 2)
    [*_, last] = await lines_of(earlier)
    gap, *events = await lines_of(later, since=last.seq)
    assert (gap.kind, gap.lost, gap.final) == ("gap", None, False)
    assert len(events) == 2


async def test_a_flood_cuts_a_slow_reader_with_the_number_of_events_it_lost():
    stream = EventStream(size=300)
    settle(stream, 150)
    seen, batches = [], stream.read()
    seen += await anext(batches)  # and now it is busy with something else
    settle(stream, 1000)
    with anyio.fail_after(WITHIN_S):
        rest = [line async for lines in batches for line in lines]
    assert [line.kind for line in rest] == ["gap"]
    assert rest[0].final
    assert rest[0].lost == 1150 - 300 - len(seen)
    assert rest[0].seq == seen[-1].seq + rest[0].lost


async def test_a_reader_is_woken_by_an_event_and_looks_for_those_of_other_threads_by_itself():
    stream, seen = EventStream(), []

    async def read():
        async for lines in stream.read():
            seen.extend(lines)
            got.set()

    async with background_tasks() as tasks:
        got = anyio.Event()
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        settle(stream)
        with anyio.fail_after(WITHIN_S):
            await got.wait()
        got = anyio.Event()
        threading.Thread(target=settle, args=(stream,)).start()
        with anyio.fail_after(WITHIN_S):
            await got.wait()
    assert len(seen) == 2


async def test_kinds_and_threads_are_chosen_by_the_reader():
    stream = EventStream()
    settle(stream)
    settle(stream, ids={**IDS, "thread_id": "fake:W:C2:2.0"})
    with Observing(stream).work("turn", "fake", IDS, 1):
        pass
    assert {line.kind for line in await lines_of(stream, WantedKinds(frozenset({"turn"})))} == {"turn"}
    for name in ("fake:W:C2:2.0", "C2:2.0", "2.0"):
        assert [line.thread_id for line in await lines_of(stream, WantedKinds(thread=name))] == [
            "fake:W:C2:2.0"
        ]
    assert await lines_of(stream, WantedKinds(thread="0")) == []


@given(st.text(max_size=40))
def test_a_hostile_name_of_a_thread_is_one_line_of_ascii(name):
    stream = EventStream()
    settle(stream, ids={**IDS, "thread_id": f"console:{name}"})
    [line] = anyio.run(lines_of, stream, WantedKinds(thread=f"console:{name}"))
    data = encode(line)
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert not any(byte < 32 for byte in data[:-1])
    assert json.loads(data)["thread_id"] == f"console:{name}"


def test_every_kind_is_in_the_schema():
    schema = event_schema()
    kinds = {
        one["properties"]["kind"]["const"]
        for one in schema["$defs"].values()
        if "kind" in one.get("properties", {})
    }
    assert kinds == set(KINDS)
    for one in ("thread_id", "message_id", "correlation_id", "seq", "at"):
        assert one in schema["$defs"]["TurnLine"]["properties"]


async def test_an_event_that_fits_no_line_is_logged_and_told_as_missing(caplog):
    stream = EventStream()
    stream.audited(AuditRecord(at="", kind="retry", details={"attempt": "many"}))
    [line] = await lines_of(stream)
    assert (line.kind, line.lost) == ("gap", 1)
    assert "events.malformed" in caplog.text
