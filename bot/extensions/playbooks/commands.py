"""`/play` in a thread: what is answered at once, and what becomes a turn.

| words                        | becomes                                                                   |
|------------------------------|---------------------------------------------------------------------------|
| none, `list`                 | the playbooks, at once                                                    |
| `status`, `stop`             | at once                                                                   |
| `at WHEN ZONE NAME words…`   | a schedule, at once; only a person's own words make one                   |
| `skip`, `retry [STAGE]`      | at once while a stage runs here; else a turn that goes on with the run    |
| `NAME words…`                | a turn that plays it                                                      |
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from bot.extensions.playbooks import wording
from bot.extensions.playbooks.folder import Library
from bot.extensions.playbooks.player import may_direct
from bot.extensions.playbooks.run_state import Run
from bot.extensions.playbooks.runs import Runs
from bot.extensions.playbooks.transitions import stopped
from bot.ports.errors import ToolError
from bot.schedules.store import Schedule, Schedules
from bot.schedules.times import find_zone, parse_cron, parse_time
from threads.errors import Fenced
from threads.model import Incoming, ThreadId
from threads.scheduled_messages import due_of
from threads.store.disk import Offload

AT = (
    "Say /play at, the time, the time zone and the playbook: `/play at 0 9 * * 1-5 Europe/Berlin NAME` for every "
    "weekday at 9, or `/play at 2026-11-26T09:00 Europe/Berlin NAME` for once."
)
_ONCE = re.compile(r"\d{4}-\d{2}-\d{2}T\S+")


@dataclass(frozen=True, slots=True)
class PlayCommands:
    """The `/play` commands of a bot. ``schedules`` is None where nothing can be scheduled.

    ``forget_return`` takes back that a parked run goes on by itself.
    """

    playbooks: Library
    runs: Runs
    schedules: Schedules | None
    forget_return: Callable[[Run], Awaitable[None]]
    offload: Offload
    is_admin: Callable[[str], bool]
    min_minutes: int

    def is_playing(self, thread: ThreadId) -> bool:
        """Return whether a stage runs in the thread now."""
        return self.runs.is_playing(thread)

    def stops(self, thread: ThreadId, words: str) -> bool:
        """Return whether the words end the turn that plays here."""
        return words.split()[:1] == ["stop"] and self.is_playing(thread)

    def is_turn(self, thread: ThreadId, words: str) -> bool:
        """Return whether the words after `/play` need a turn of their own."""
        match words.split(maxsplit=1)[:1]:
            case [] | ["list" | "status" | "stop" | "at"]:
                return False
            case ["skip" | "retry"]:
                return not self.is_playing(thread)
            case _:
                return True

    async def command(self, words: str, incoming: Incoming) -> str:
        """Carry out a command that is no turn, and return the reply. Raises `StoreUnavailable`."""
        match words.split():
            case ["at", *when]:
                return await self._schedule(incoming, when)
            case ["status" | "stop" | "skip" | "retry" as verb, *stage]:
                return await self._direct(incoming, verb, " ".join(stage))
            case _:
                return await self._list()

    async def forget(self, thread: ThreadId) -> None:
        """Remove the thread's run: its conversation begins anew. Raises `StoreUnavailable`."""
        if run := await self.runs.drop(thread):
            await self.forget_return(run)

    async def _list(self) -> str:
        entries = await self.offload(self.playbooks.read_all)
        problems = [f"{entry.file_name}: {entry.faults[0]}" for entry in entries if entry.faults]
        return wording.listing([entry.playbook for entry in entries if entry.playbook], problems)

    async def _direct(self, incoming: Incoming, verb: str, stage: str) -> str:
        if (run := self.runs.of(incoming.thread)) is None:
            return wording.NOT_HERE
        if verb == "status":
            return wording.status(run, playing=self.is_playing(incoming.thread))
        if not may_direct(run, incoming.author.id, self.is_admin):
            return wording.ONLY_ASKER
        try:
            return await (
                self._stop(run) if verb == "stop" else self._redirect(run, incoming.thread, verb, stage)
            )
        except Fenced:
            now = self.runs.of(incoming.thread)
            if now is None or now.holder == run.holder:
                raise
            return await self._direct(incoming, verb, stage)  # a turn took the run up meanwhile

    async def _redirect(self, run: Run, thread: ThreadId, verb: str, stage: str) -> str:
        if stage and run.playbook.stage(stage) is None:
            return wording.no_stage(run, stage)
        target = run.stage if verb == "skip" else stage or run.stage
        if not await self.runs.direct(thread, f"{verb} {target}"):
            return wording.NOT_HERE
        return f"I leave out stage {target}." if verb == "skip" else f"I go on in stage {target}."

    async def _stop(self, run: Run) -> str:
        if run.over:
            return wording.NOT_HERE
        await self.runs.save(stopped(run))
        await self.forget_return(run)
        return f"Stopped. {run.playbook.name} will not go on by itself."

    async def _schedule(self, incoming: Incoming, words: list[str]) -> str:
        if self.schedules is None:
            return wording.NO_SCHEDULES
        if due_of(incoming.id):
            return "A scheduled playbook cannot schedule others."
        fields = 1 if words and _ONCE.fullmatch(words[0]) else 5
        when, rest = words[:fields], words[fields:]
        if len(rest) < 2:
            return AT
        zone, name, *more = rest
        playbook = await self.offload(self.playbooks.find, name)
        if isinstance(playbook, str):
            return playbook
        text, thread = " ".join(["/play", name, *more]), str(incoming.thread)
        play = partial(
            Schedule, thread=thread, author=incoming.author, text=text, source=incoming.id, play=True
        )
        try:
            new = await self.offload(_timed, play, when, zone, self.schedules.now(), self.min_minutes)
            schedule = await self.schedules.add(new)
        except ToolError as error:
            return f"{error} {error.suggestion}".rstrip()
        return f"⏰ Scheduled {self.schedules.describe(schedule)} (/schedule cancel {schedule.id})"


def _timed(
    play: Callable[..., Schedule], when: list[str], zone: str, now: datetime, min_minutes: int
) -> Schedule:
    """Return a schedule with its times. Reads the zone database. Raises `ToolInvalidInput`."""
    zone = find_zone(zone).key
    if len(when) == 1:
        return play(next_at=parse_time(when[0], zone, now), zone=zone)
    cron, first = parse_cron(" ".join(when), zone, now, timedelta(minutes=min_minutes))
    return play(cron=cron, next_at=first, zone=zone, until=now + timedelta(days=366))
