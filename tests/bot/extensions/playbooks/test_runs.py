"""Runs on disk: bounded, fenced against a turn that another has replaced, and directed by people meanwhile."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from bot.extensions.playbooks.run_state import RunsFile
from bot.extensions.playbooks.runs import MOST_RUNS, Runs, TooManyRuns
from bot.host.extension import Unfinished
from tests.bot.extensions.playbooks.test_transitions import run_of, stage
from tests.world import T1, message, state_file
from threads.errors import Fenced
from threads.journal.records import PendingMessage, Received, Started

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def state_in(folder):
    return state_file(folder / "playbooks.json", RunsFile())


def runs_in(folder, now=NOW):
    return Runs(state_in(folder), lambda: now)


def in_thread(number, **fields):
    return run_of(stage("a"), stage("b"), thread=f"fake:W:C:{number}", **fields)


async def test_a_turn_that_was_replaced_writes_no_border(tmp_path):
    runs = runs_in(tmp_path)
    old = await runs.take_up(in_thread(1))
    new = await runs.take_up(old)
    with pytest.raises(Fenced):
        await runs.save(old)
    assert (await runs.save(new)).border_at.startswith("2026-11-25T12:00")


async def test_only_so_many_runs_are_stored_and_those_that_are_over_go_first(tmp_path):
    state = state_in(tmp_path)
    runs, taken_at = Runs(state, lambda: NOW), NOW.isoformat(timespec="milliseconds")
    many = [in_thread(number, taken_at=taken_at) for number in range(MOST_RUNS)]
    await state.change(lambda _: RunsFile(runs={run.thread: run for run in many}))
    with pytest.raises(TooManyRuns):
        await runs.take_up(in_thread("new"))
    many[7:9] = (
        in_thread(7, state="done", stage="end"),
        in_thread(8, taken_at="2026-11-01T12:00:00.000+00:00"),
    )
    await state.change(lambda _: RunsFile(runs={run.thread: run for run in many}))
    await runs.take_up(in_thread("new"))
    await runs.take_up(in_thread("newer"))
    assert not {"fake:W:C:7", "fake:W:C:8"} & set(state.value.runs)
    assert len(state.value.runs) == MOST_RUNS


async def test_what_a_person_chose_survives_a_border_until_it_is_carried_out(tmp_path):
    runs = runs_in(tmp_path)
    run = await runs.take_up(run_of(stage("a"), stage("b"), thread=str(T1)))
    scope = anyio.CancelScope()
    with runs.playing(T1), runs.attempting(T1, scope) as attempt:
        assert await runs.direct(T1, "skip a")
    assert attempt.redirected
    assert scope.cancel_called
    stored = await runs.save(run)
    assert stored.redirect == "skip a"
    assert (await runs.save(stored, carried_out="skip a")).redirect == ""
    assert not await runs.direct(T1, "skip a"), "nothing runs"


def pending(started_at):
    incoming = replace(message(1), thread=T1)
    one = PendingMessage(Received.of(incoming))
    one.started = Started(thread_id=str(T1), message_id="m1", attempt=3, correlation_id="c", at=started_at)
    return one


async def test_a_restart_is_no_attempt_if_a_border_was_passed_or_a_person_was_asked(tmp_path):
    runs = runs_in(tmp_path)
    run = await runs.take_up(run_of(stage("a"), stage("b"), thread=str(T1), message_id="m1"))
    before, after = "2026-11-25T11:00:00.000+00:00", "2026-11-25T12:30:00.000+00:00"
    assert not runs.unfinished(pending(before), 600).continues, "nothing has happened yet"
    run = await runs.save(run)
    assert runs.unfinished(pending(before), 600).continues
    assert not runs.unfinished(pending(after), 600).continues, "it died in the same stage again"
    late = runs_in(tmp_path, NOW + timedelta(hours=3))
    assert not late.unfinished(pending(before), 600).continues, "too long ago"
    await runs.asking(run, NOW + timedelta(minutes=5))
    assert runs.unfinished(pending(after), 600) == Unfinished(3600, "m1.a.1.1", continues=True)


async def test_a_run_that_this_version_cannot_read_is_dropped_alone(tmp_path, caplog):
    runs = runs_in(tmp_path)
    await runs.take_up(in_thread(1))
    await runs.take_up(in_thread(2))
    path = tmp_path / "playbooks.json"
    path.write_text(path.read_text().replace('"fake:W:C:1","message_id"', '"fake:W:C:1","odd"', 1))
    assert list(state_in(tmp_path).value.runs) == ["fake:W:C:2"]
    assert "playbook.unreadable" in caplog.text


async def test_a_worker_that_has_not_heard_of_a_run_goes_on_with_it(tmp_path):
    runs = runs_in(tmp_path)
    run = await runs.take_up(run_of(stage("a"), stage("b"), thread=str(T1), message_id="m1"))
    await runs.save(run.model_copy(update={"stage": "b", "entries": 2}))
    taken = await runs.take_up(run_of(stage("a"), stage("b"), thread=str(T1), message_id="m1"))
    assert (taken.stage, taken.holder) == ("b", 2)
