"""playbooks.json: the last run of each thread. A change is durable before anybody acts on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio

from bot.extensions.playbooks.run_state import MOST_ANSWERS, Run, RunsFile
from bot.host.extension import Unfinished
from threads.errors import Fenced
from threads.journal.records import PendingMessage
from threads.model import ThreadId, WallClock
from threads.store.json_file import State

log = logging.getLogger(__name__)

MOST_RUNS = 200
"""Runs that are stored; those that are over go first."""


LEFT_ALONE = timedelta(days=14)
"""A run that no turn has taken up for so long is not under way: none may work for more than a week."""


class TooManyRuns(Exception):
    """As many runs as may be stored are not over yet."""


@dataclass(slots=True)
class Attempt:
    """The attempt that a process plays. ``redirected``: a person chose another stage, and ``scope`` was cancelled."""

    scope: anyio.CancelScope
    redirected: bool = False


class Runs:
    """All runs. Those that this process plays now are in memory too, so that a person can direct them."""

    def __init__(self, state: State[RunsFile], now: WallClock) -> None:
        self.now = now
        self._state = state
        self._attempts: dict[ThreadId, Attempt] = {}
        self._playing = set[ThreadId]()

    def of(self, thread: ThreadId) -> Run | None:
        """Return the last run of a thread, or None."""
        return self._state.value.runs.get(str(thread))

    def is_playing(self, thread: ThreadId) -> bool:
        """Return whether a turn of this process plays in the thread now, also between two stages."""
        return thread in self._playing

    async def take_up(self, run: Run) -> Run:
        """Store a run that a turn begins or goes on with, and return it with its new holder.

        If the same message has begun a run already, that one goes on, as far as any worker has brought it.
        Raises `TooManyRuns` and `StoreUnavailable`.
        """
        taken = run

        def change(old: RunsFile) -> RunsFile:
            nonlocal taken
            before = old.runs.get(run.thread)
            continues = before is not None and before.message_id == run.message_id
            holder = (before.holder if before else 0) + 1
            update = {"holder": holder, "taken_at": self._at(timedelta())}
            taken = (before if before and continues else run).model_copy(update=update)
            runs = {**old.runs, run.thread: taken}
            return RunsFile(runs=_with_room(runs, run.thread, self._at(LEFT_ALONE)))

        await self._state.change(change)
        return taken

    async def save(self, run: Run, carried_out: str = "") -> Run:
        """Store a border of a run, and return the run with what a person chose meanwhile, unless it is *carried_out*.

        Raises `Fenced` if another turn has taken the run up, and `StoreUnavailable`.
        """
        saved = run.model_copy(update={"border_at": self._at(timedelta())})

        def replaced(before: Run) -> Run:
            redirect = "" if before.redirect == carried_out else before.redirect
            return saved.model_copy(update={"redirect": redirect})

        return await self._replace(run, replaced)

    async def keep_answer(self, run: Run, check: str, *, approved: bool, asking_until: str = "") -> Run:
        """Store that a check of this attempt holds, or that a person said no. Raises as `save`."""

        def answered(before: Run) -> Run:
            answers = dict([*before.answers.items(), (check, approved)][-MOST_ANSWERS:])
            return before.model_copy(update={"answers": answers, "asking_until": asking_until})

        return await self._replace(run, answered)

    async def asking(self, run: Run, until: datetime) -> Run:
        """Store that a person is asked until then: a restart meanwhile is no attempt. Raises as `save`."""
        return await self._replace(
            run, lambda before: before.model_copy(update={"asking_until": until.isoformat()})
        )

    async def direct(self, thread: ThreadId, redirect: str) -> bool:
        """Store where a person wants the run that plays now to go on, and end its attempt. Raises as `save`."""
        run = self.of(thread)
        if run is None or run.state != "running" or not self.is_playing(thread):
            return False
        await self._replace(run, lambda before: before.model_copy(update={"redirect": redirect}))
        if attempt := self._attempts.get(thread):
            attempt.redirected = True
            attempt.scope.cancel()
        return True

    async def drop(self, thread: ThreadId) -> Run | None:
        """Remove the run of a thread and return it, or None. Raises `StoreUnavailable`."""
        run = self.of(thread)

        def change(old: RunsFile) -> RunsFile:
            return RunsFile(runs={name: one for name, one in old.runs.items() if name != str(thread)})

        if run is not None:
            await self._state.change(change)
        return run

    @contextmanager
    def playing(self, thread: ThreadId) -> Iterator[None]:
        """Let people stop and direct the run of the thread during the block."""
        self._playing.add(thread)
        try:
            yield
        finally:
            self._playing.discard(thread)

    @contextmanager
    def attempting(self, thread: ThreadId, scope: anyio.CancelScope) -> Iterator[Attempt]:
        """Let what people decide end the attempt during the block."""
        self._attempts[thread] = attempt = Attempt(scope)
        try:
            yield attempt
        finally:
            del self._attempts[thread]

    def unfinished(self, pending: PendingMessage, max_age_s: float) -> Unfinished | None:
        """Return how far the run of a message came before a restart, None if it plays nothing."""
        run = self.of(pending.incoming.thread)
        if run is None or run.message_id != pending.incoming.id:
            return None
        stage_id = f"{run.message_id}.{run.visit_id}"
        return Unfinished(run.playbook.limits.time_s, stage_id, self._continues(run, pending, max_age_s))

    def _continues(self, run: Run, pending: PendingMessage, max_age_s: float) -> bool:
        """Return whether the run was at a person, or has passed a border since its last attempt, not too long ago."""
        now = self.now()
        if run.asking_until > now.isoformat():
            return True
        oldest = now - timedelta(seconds=min(max_age_s + run.playbook.limits.time_s, 1e9))
        began = pending.started.at if pending.started else ""
        return run.border_at > max(began, oldest.isoformat(timespec="milliseconds"))

    def _at(self, ago: timedelta) -> str:
        return (self.now() - ago).isoformat(timespec="milliseconds")

    async def _replace(self, run: Run, function: Callable[[Run], Run]) -> Run:
        replaced = run

        def change(old: RunsFile) -> RunsFile:
            nonlocal replaced
            before = old.runs.get(run.thread)
            if before is None or (before.id, before.holder) != (run.id, run.holder):
                raise Fenced(thread_id=run.thread)
            replaced = function(before)
            return RunsFile(runs={**old.runs, run.thread: replaced})

        await self._state.change(change)
        return replaced


def _with_room(runs: dict[str, Run], newest: str, oldest: str) -> dict[str, Run]:
    """Return the runs without the oldest of those that are over or left alone, if there are too many."""
    if (surplus := len(runs) - MOST_RUNS) <= 0:
        return runs
    over = sorted(
        (run for run in runs.values() if run.thread != newest and (run.over or run.taken_at < oldest)),
        key=lambda run: run.taken_at,
    )
    if len(over) < surplus:
        raise TooManyRuns
    gone = {run.thread for run in over[:surplus]}
    return {thread: run for thread, run in runs.items() if thread not in gone}
