"""jobs.json: the jobs of all threads, and what the conversations of those that run have come to.

| state      | means                                                  | then                                |
|------------|--------------------------------------------------------|-------------------------------------|
| `running`  | a process works at it, or the next one will            | `done` or `stopped`                 |
| `done`     | it has a report, which is on its way into the thread   | `reported`                          |
| `reported` | the report is in the thread                            | dropped once there are `MOST_KEPT`  |
| `stopped`  | a person stopped it                                    | the same                            |
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from bot.extensions.jobs.settings import SLOTS
from bot.ports.errors import ToolDenied
from threads.model import Author, Incoming, Message, ThreadId, WallClock
from threads.scheduled_messages import shortened
from threads.store.json_file import JsonState, State

MOST_KEPT = 100
"""Jobs that are over and still listed."""


class Job(BaseModel):
    """``source`` is the call that left it, in the message ``message_id``. It ends at ``until``.

    ``playbook`` is the name of the playbook that it plays with ``prompt`` as its words, blank for a prompt alone.
    ``outside``: what left it, or what it read, has text from outside. ``slot`` numbers its stored conversation.
    ``holder`` is the process that works at it, which said so last at ``seen_at``. ``refusals`` counts how often the
    thread did not take its report.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    thread: str
    asker: Author
    message_id: str
    source: str
    prompt: str
    playbook: str = ""
    outside: bool = False
    usd: float
    steps: int
    began_at: AwareDatetime
    until: AwareDatetime
    state: Literal["running", "done", "reported", "stopped"] = "running"
    report: str = ""
    slot: int = 0
    attempts: int = 1
    holder: str
    seen_at: AwareDatetime
    refusals: int = 0

    @property
    def incoming(self) -> Incoming:
        """The message that its own conversation begins with. Its id is that of no other message."""
        text = f"/play {self.playbook} {self.prompt}".strip() if self.playbook else self.prompt
        own, at = f"{self.message_id}.{self.id}", self.began_at.isoformat()
        return Incoming(own, ThreadId.parse(self.thread), self.asker, text, at)

    @property
    def title(self) -> str:
        return f"“{shortened(f'{self.playbook} {self.prompt}'.strip())}”"


class JobsFile(JsonState):
    jobs: tuple[Job, ...] = ()


class Progress(BaseModel):
    """What the conversation of a job has come to. Who is forgotten is found by ``thread`` and ``asker``."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    job: str
    thread: str
    asker: Author
    messages: tuple[Message, ...]


class Slot(JsonState):
    """The conversation of the one job that has this slot, while it runs."""

    kept: tuple[Progress, ...] = ()


class JobStore:
    """The jobs on disk. ``now`` is UTC."""

    def __init__(self, state: State[JobsFile], slots: Sequence[State[Slot]], now: WallClock) -> None:
        self._state, self._slots, self.now = state, slots, now

    @property
    def all(self) -> Sequence[Job]:
        return self._state.value.jobs

    def find(self, job_id: str) -> Job | None:
        return next((job for job in self.all if job.id == job_id), None)

    def in_thread(self, thread: ThreadId) -> list[Job]:
        return [job for job in self.all if job.thread == str(thread)]

    async def add(self, new: Job, at_once: int) -> Job:
        """Store a job and return it with its id and slot; the same ``source`` again returns the same job.

        Raises `ToolDenied` if *at_once* jobs run, and `StoreUnavailable`.
        """
        added = new

        def change(old: JobsFile) -> JobsFile:
            nonlocal added
            for added in old.jobs:
                if added.source == new.source and added.thread == new.thread:
                    return old
            running = {job.slot for job in old.jobs if job.state == "running"}
            if len(running) >= at_once:
                why = f"As many jobs as may run at once are running: {len(running)}."
                how = "Say so. `/jobs` lists those of this thread, and `/jobs stop ID` stops one."
                raise ToolDenied(why, suggestion=how)
            slot = next(slot for slot in range(SLOTS) if slot not in running)
            added = new.model_copy(update={"id": _unused_id(new, old.jobs), "slot": slot})
            over = [job for job in old.jobs if job.state in ("reported", "stopped")][:-MOST_KEPT]
            return JobsFile(jobs=(*(job for job in old.jobs if job not in over), added))

        await self._state.change(change)
        return added

    async def change(self, job_id: str, **fields: object) -> Job | None:
        """Change a job that runs or is done, and return it; None if it is over or gone. Raises `StoreUnavailable`.

        Of one that runs no more the conversation is dropped.
        """
        changed: Job | None = None

        def change(old: JobsFile) -> JobsFile:
            nonlocal changed
            going = (job for job in old.jobs if job.id == job_id and job.state in ("running", "done"))
            changed = before = next(going, None)
            if before is None:
                return old
            changed = before.model_copy(update=fields)
            return JobsFile(jobs=tuple(changed if job is before else job for job in old.jobs))

        await self._state.change(change)
        if changed and changed.state != "running":
            await self._empty({job_id})
        return changed

    async def drop(self, thread: ThreadId) -> None:
        """Forget the jobs of a thread and what was said in them. Raises `StoreUnavailable`."""
        if gone := {job.id for job in self.in_thread(thread)}:
            await self._state.change(
                lambda old: JobsFile(jobs=tuple(job for job in old.jobs if job.id not in gone))
            )
        await self._empty(gone)

    async def _empty(self, jobs: Collection[str]) -> None:
        for slot in self._slots:
            await slot.change(lambda old: Slot() if any(one.job in jobs for one in old.kept) else old)

    def messages(self, job: Job) -> Sequence[Message]:
        """Return what its conversation had come to when a process last saved it."""
        return next((one.messages for one in self._slots[job.slot].value.kept if one.job == job.id), ())

    async def save(self, job: Job, messages: Sequence[Message]) -> None:
        """Make it durable, unless another process has the job or it is over. Raises `StoreUnavailable`."""
        now = self.find(job.id)
        if now and (now.state, now.holder) == ("running", job.holder):
            kept = Progress(job=job.id, thread=job.thread, asker=job.asker, messages=tuple(messages))
            await self._slots[job.slot].change(lambda _: Slot(kept=(kept,)))


def _unused_id(new: Job, known: Sequence[Job]) -> str:
    digest = sha256(f"{new.thread}\0{new.source}".encode("utf-8", "replace")).hexdigest()
    taken = {job.id for job in known}
    return next(f"j{digest[:size]}" for size in range(4, 64) if f"j{digest[:size]}" not in taken)
