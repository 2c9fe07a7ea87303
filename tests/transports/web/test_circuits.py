"""When circuits were open."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.observe.audit import AuditRecord
from transports.web.look.circuits import minutes_open, openings

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def at(minute: int, day: int = 20) -> str:
    return f"2026-11-{day}T{minute // 60:02}:{minute % 60:02}:00.000+00:00"


def opened(minute: int, model: str = "a/b", day: int = 20, worker: str = "", **more: str) -> AuditRecord:
    title = f"{model}, key {more['key']}" if more else model
    details = {"event": "circuit.opened", "model": model, "reason": f"{title}: overloaded", **more}
    return AuditRecord(at=at(minute, day), kind="circuit", details=details, worker=worker)


def closed(minute: int, model: str = "a/b", worker: str = "") -> AuditRecord:
    details = {"event": "circuit.closed", "model": model}
    return AuditRecord(at=at(minute), kind="circuit", details=details, worker=worker)


def start(minute: int, worker: str = "") -> AuditRecord:
    return AuditRecord(at=at(minute), kind="start", worker=worker)


def stop(minute: int, worker: str = "") -> AuditRecord:
    return AuditRecord(at=at(minute), kind="stop", details={"how": "stopped"}, worker=worker)


def gone(minute: int, dead: str, worker: str) -> AuditRecord:
    details = {"event": "worker.gone", "worker": dead}
    return AuditRecord(at=at(minute), kind="stop", details=details, worker=worker)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([opened(1), closed(4)], [(1, 4)]),
        ([opened(1)], [(1, None)]),
        ([closed(1)], []),
        ([opened(1), start(3)], [(1, 3)]),
        ([opened(1), stop(2), start(3)], [(1, 2)]),
        ([start(1), opened(2)], [(2, None)]),
        ([opened(1), start(3), start(4), opened(5), closed(6)], [(1, 3), (5, 6)]),
        ([opened(1), start(3), closed(5)], [(1, 5)]),
        ([opened(1), opened(2), closed(4), closed(5)], [(1, 4)]),
    ],
    ids=[
        "closed", "still open", "opened before", "a process that ended", "a process that stopped",
        "open since the start", "open again", "another worker's start", "two workers",
    ],
)  # fmt: skip
def test_an_opening_lasts_until_its_circuit_is_closed(records, found):
    times = [(one.began_at, one.ended_at) for one in openings(records)]
    assert times == [(at(began), "" if ended is None else at(ended)) for began, ended in found]


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([closed(3, worker="b")], [1, None]),
        ([closed(3, worker="b"), closed(4, worker="a")], [1, 4]),
        ([start(3, "c")], [1, None]),
        ([stop(3, "b")], [1, None]),
        ([stop(3, "a")], [1, 3]),
        ([start(3, "a")], [1, 3]),
        ([gone(3, "a", "b")], [1, 3]),
        ([gone(3, "b", "a")], [1, None]),
        ([gone(3, "a", "b"), closed(4, worker="a"), gone(5, "a", "b")], [1, 4]),
        ([start(3)], [1, 3]),
    ],
    ids=[
        "another's close", "its own", "another's start", "another's stop", "its own stop", "a process of its name",
        "it is dead", "another is dead", "it was only cut off", "all moved to files",
    ],
)  # fmt: skip
def test_only_a_worker_itself_or_its_end_ends_its_openings(records, found):
    mine, *others = openings([opened(1, worker="a"), opened(2, worker="b"), *records])
    began, ended = found
    assert (mine.worker, mine.began_at, mine.ended_at) == ("a", at(began), at(ended) if ended else "")
    assert [one.worker for one in others] == ["b"]


def test_the_first_start_of_a_version_that_names_workers_ends_what_is_open_without_a_name():
    [old] = openings([opened(1), start(3, "a"), closed(4, worker="a")])
    assert old.ended_at == at(3)


def test_a_time_in_which_two_workers_had_it_open_counts_once():
    found = openings(
        [
            *(opened(0, worker="a"), opened(10, worker="b"), closed(20, worker="a"), closed(30, worker="b")),
            *(opened(40, worker="a"), opened(45, worker="b"), closed(50, worker="b"), closed(60, worker="a")),
        ]
    )
    assert len(found) == 4
    assert minutes_open(found, NOW) == {"a/b": {"2026-11-20": 50}}


def test_each_model_and_key_has_a_circuit_of_its_own():
    records = [opened(1), opened(2, "c/d"), opened(3, key="2"), closed(4, "c/d")]
    found = [(one.title, one.why, bool(one.ended_at)) for one in openings(records)]
    assert found == [
        ("a/b", "overloaded", False),
        ("c/d", "overloaded", True),
        ("a/b, key 2", "overloaded", False),
    ]


def test_an_opening_over_midnight_counts_on_both_days():
    found = openings([opened(23 * 60, day=19), closed(30), opened(40), closed(50)])
    assert [one.seconds(NOW) for one in found] == [90 * 60, 600]
    assert minutes_open(found, NOW) == {"a/b": {"2026-11-19": 60, "2026-11-20": 40}}


def test_what_is_open_lasts_until_now():
    assert minutes_open(openings([opened(11 * 60)]), NOW) == {"a/b": {"2026-11-20": 60}}
