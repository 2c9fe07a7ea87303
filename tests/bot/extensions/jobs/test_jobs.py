"""Jobs that several processes know, and threads that do not take a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import pytest

from bot.extensions.jobs.jobs import LOST_S, MOST_ATTEMPTS, Jobs
from bot.extensions.jobs.records import Job, JobsFile, JobStore, Slot
from bot.extensions.jobs.settings import SLOTS
from bot.ports.errors import ToolDenied
from tests.world import ANN, T1
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    now = BEGAN


async def stored(tmp_path, clock):
    files = JsonFiles(PosixDisk(), tmp_path, anyio.to_thread.run_sync)
    slots = [await files.open(f"job-{slot}", Slot()) for slot in range(SLOTS)]
    return JobStore(await files.open("jobs", JobsFile()), slots, lambda: clock.now)


def job(source="m1 c1", holder="", **given):
    until = BEGAN + timedelta(hours=1)
    limits = {"usd": 1.0, "steps": 9, "began_at": BEGAN, "until": until, "seen_at": BEGAN}
    return Job(
        id="",
        thread=str(T1),
        asker=ANN,
        message_id="m1",
        source=source,
        prompt="x",
        holder=holder,
        **limits,
        **given,
    )


async def test_a_report_that_the_thread_does_not_take_is_handed_in_again_and_not_for_ever(tmp_path):
    store = await stored(tmp_path, Clock())
    added = await store.add(job(), SLOTS)
    await store.change(added.id, state="done", report="Seven.")
    jobs, taken = Jobs(store, lambda: None, None, None, alone=True), []

    async def refuse(incoming):
        taken.append(incoming.id)
        return "refused"

    jobs.receiving(refuse)
    while (one := store.find(added.id)).state == "done":
        await jobs._hand_in(one)
    assert len({*taken}) == len(taken) == MOST_ATTEMPTS


@pytest.mark.parametrize(
    ("alone", "silent_s", "takes"), [(True, 0, 1), (False, LOST_S, 0), (False, LOST_S + 1, 1)]
)
async def test_a_job_of_another_process_is_taken_over_once_that_is_gone(
    tmp_path, monkeypatch, alone, silent_s, takes
):
    clock, begun = Clock(), []
    store = await stored(tmp_path, clock)
    added = await store.add(job(holder="another"), SLOTS)
    jobs = Jobs(store, lambda: None, None, None, alone)
    monkeypatch.setattr(Jobs, "begin", lambda _, taken: begun.append(taken))
    clock.now = BEGAN + timedelta(seconds=silent_s)
    await jobs._go_on(added)
    assert [(one.holder, one.attempts) for one in begun] == [(jobs.me, 2)] * takes


async def test_who_lost_a_job_to_another_process_stops(tmp_path):
    store = await stored(tmp_path, Clock())
    jobs = Jobs(store, lambda: None, None, None, alone=False)
    added = await store.add(job(holder=jobs.me), SLOTS)
    jobs._running[added.id] = scope = anyio.CancelScope()
    jobs.stop_those_that_are_over()
    assert not scope.cancel_called
    await store.change(added.id, holder="another")
    jobs.stop_those_that_are_over()
    assert scope.cancel_called


async def test_the_same_call_leaves_one_job_and_no_more_than_so_many_run_at_once(tmp_path):
    store = await stored(tmp_path, Clock())
    first = await store.add(job(), 1)
    assert await store.add(job(), 1) == first
    with pytest.raises(ToolDenied, match="are running: 1"):
        await store.add(job("m2 c1"), 1)
    await store.change(first.id, state="stopped")
    assert (await store.add(job("m2 c1"), 1)).slot == first.slot
