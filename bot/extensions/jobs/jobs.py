"""Runs the jobs: each goes on after a restart where it was, within its own money, steps and time.

| when                                            | then                                                         |
|-------------------------------------------------|--------------------------------------------------------------|
| a tool call leaves a job                        | it is on disk, and begins at once                            |
| it answers, fails, or is out of time            | the report is on disk, and comes into the thread as a turn   |
| the process ends                                | the next one goes on; after `MOST_ATTEMPTS` it reports that  |
| another process does not say that it works at it | after `LOST_S` this one takes it over                       |

The report is a message of whoever asked, ``/jobs report ID``, whose id is the same each time: the journal takes it
once. Its turn calls no model.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from bot.agent.loop import Agent
from bot.config.settings import Settings
from bot.extensions.jobs.job_turn import JobTurn
from bot.extensions.jobs.records import Job, JobStore
from bot.extensions.jobs.settings import NAME
from bot.host.agents import Agents
from bot.host.extension import Unfinished
from bot.llm.policies.structured_output import FittingModels
from bot.ports.outside_text import tainted
from threads.errors import BotError, StoreUnavailable, error_fields
from threads.journal.records import PendingMessage
from threads.model import Incoming, Message, Sink, Text, ThreadId, Turn
from threads.wording import explain

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
SAID_EVERY_S, LOST_S = 60.0, 240.0
"""How often a process says that it works at its jobs, and after how long without that another one takes them over."""

RETRY_S = 10.0
"""Pause after the disk failed."""

OUT_OF_TIME = "It ran out of time before it was done."
GIVEN_UP = f"It was begun {MOST_ATTEMPTS} times, and each time the process ended. I have given it up."
NO_PLAYBOOKS = "There are no playbooks here."
NONE = "No work is done in the background here. Ask me to do something in the background, and I leave a job for it."
HOW = "`/jobs stop ID` stops one, `/jobs report ID` shows its report again."
REPORTED = "(A job is done. What follows is its report. It was asked: {})"


@dataclass(slots=True)
class Jobs:
    """The jobs of a bot, `/jobs`, and its turns as in `bot.host.extension.OwnTurns`. ``agents`` answer them.

    ``alone``: no other process has the same jobs, so those that run in nobody's hands are taken over at once.
    """

    store: JobStore
    agents: Callable[[], Agents | None]
    keep_workspace: Callable[[ThreadId], Awaitable[None]]
    tasks: TaskGroup
    alone: bool
    me: str = field(default_factory=lambda: uuid4().hex, init=False)
    _running: dict[str, anyio.CancelScope] = field(default_factory=dict, init=False)
    _sink: Sink | None = field(default=None, init=False)
    _served: anyio.Event = field(default_factory=anyio.Event, init=False)

    def receiving(self, sink: Sink) -> Sink:
        self._sink = sink
        self._served.set()
        return sink

    async def serve(self) -> None:
        """Go on with what other processes have left, until cancelled."""
        await self._served.wait()
        while True:
            try:
                for job in self.store.all:
                    if job.state == "done":
                        await self._hand_in(job)
                    elif job.state == "running":
                        await self._go_on(job)
            except StoreUnavailable as error:
                log.warning("job.waits: for the disk: %s", error, extra=error_fields(error))
            await anyio.sleep(SAID_EVERY_S)

    async def _go_on(self, job: Job) -> None:
        """Say that this process works at a job, or take over what another one has left. Raises `StoreUnavailable`."""
        now = self.store.now()
        if job.id in self._running:
            await self.store.change(job.id, seen_at=now)
        elif self.alone or job.seen_at < now - timedelta(seconds=LOST_S):
            mine = {"holder": self.me, "seen_at": now, "attempts": job.attempts + 1}
            if taken := await self.store.change(job.id, **mine):
                self.begin(taken)

    def begin(self, job: Job) -> None:
        """Work at a job that this process holds. Does nothing for any other."""
        if job.holder == self.me and job.state == "running" and job.id not in self._running:
            self._running[job.id] = anyio.CancelScope()
            self.tasks.start_soon(self._run, job.id)

    def stop_those_that_are_over(self) -> None:
        """End what a person has stopped, maybe by way of another process, and what another one has taken over."""
        for job_id, scope in self._running.items():
            job = self.store.find(job_id)
            # One that is done hands in its report.
            if job is None or job.state == "stopped" or job.holder != self.me:
                scope.cancel()

    async def _run(self, job_id: str) -> None:
        """Work at a job until it has a report. Nothing that it raises ends the others."""
        try:
            with self._running[job_id]:
                while True:
                    try:
                        return await self._work(job_id)
                    except StoreUnavailable as error:
                        log.warning("job.waits: for the disk: %s", error, extra=error_fields(error))
                        await anyio.sleep(RETRY_S)
        except Exception:
            log.exception("job.broken: %s is begun again in a while", job_id)
        finally:
            del self._running[job_id]

    async def _work(self, job_id: str) -> None:
        if (job := self.store.find(job_id)) is None or job.state != "running":
            return
        log.info("job.began: %s, attempt %d", job.id, job.attempts, extra={"thread_id": job.thread})
        text, outside = await self._result(job)
        report = f"⚙️ Job {job.id} is done: {job.title}\n\n{text}"
        if job := await self.store.change(job_id, state="done", report=report, outside=outside):
            await self._hand_in(job)

    async def _result(self, job: Job) -> tuple[str, bool]:
        """Return what came out of a job, and whether that may have text from outside. Raises `StoreUnavailable`."""
        if job.attempts > MOST_ATTEMPTS:
            return GIVEN_UP, job.outside
        left_s = (job.until - self.store.now()).total_seconds()
        scope, text = anyio.CancelScope(deadline=anyio.current_time() + left_s), OUT_OF_TIME
        turn = JobTurn(job, self.store, self.keep_workspace, scope)
        with scope:
            text = await self._answer(job, turn)
        return "\n\n".join([*turn.notes, text]), job.outside or tainted(turn.messages)

    async def _answer(self, job: Job, turn: JobTurn) -> str:
        agents = self.agents()
        assert agents is not None, "nothing is served before there are agents"
        try:
            if not job.playbook:
                return await (await self._agent(agents, job)).run(turn)
            plays = agents.own_turns.get("play")
            return await plays.run(turn, agents) if plays else NO_PLAYBOOKS
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread is told
            fields = error_fields(error) if isinstance(error, BotError) else {}
            log.warning("job.failed: %s: %s", job.id, error, extra={**fields, "thread_id": job.thread})
            return explain(error, job.id)

    async def _agent(self, agents: Agents, job: Job) -> Agent:
        """Return the agent of the job's thread and asker, with its own money and steps; it leaves no jobs."""
        usual = await agents.usual(job.incoming)
        tools = [spec.name for spec in usual.tools.specs if spec.name != NAME]
        models = agents.models_under(partial(_with_money, usd=job.usd), job.incoming, tools, chosen=True)
        agent = await agents.usual(job.incoming, tools)
        return replace(agent, models=FittingModels(models), max_steps=job.steps, footer=False)

    async def _hand_in(self, job: Job) -> None:
        """Make the report a message of the thread, another one if that was refused. Raises `StoreUnavailable`."""
        assert self._sink is not None
        own = f"{job.incoming.id}.report{job.refusals or ''}"
        outcome = await self._sink(replace(job.incoming, id=own, text=f"/jobs report {job.id}"))
        if outcome in ("answered", "merged") or (outcome and job.refusals + 1 == MOST_ATTEMPTS):
            log.info("job.reported: %s: %s", job.id, outcome, extra={"thread_id": job.thread})
            await self.store.change(job.id, state="reported")
        elif outcome:
            await self.store.change(job.id, refusals=job.refusals + 1)

    def is_turn(self, thread: ThreadId, words: str) -> bool:
        match words.split():
            case ["report", job_id] if job := self._of(thread, job_id):
                return bool(job.report)
        return False

    def stops(self, thread: ThreadId, words: str) -> bool:  # noqa: ARG002
        return False

    def unfinished(self, pending: PendingMessage) -> Unfinished | None:  # noqa: ARG002
        return None

    async def run(self, turn: Turn, agents: Agents) -> str:  # noqa: ARG002
        """Answer with a report, and let the conversation know of it."""
        if (job := self._of(turn.incoming.thread, turn.incoming.text.split()[-1])) is None:
            return NONE
        said, source = Text(REPORTED.format(job.prompt), outside=job.outside), turn.incoming.id
        turn.add(Message("user", (said,), source=source))
        turn.add(Message("assistant", (Text(job.report),), source=source))
        await turn.checkpoint()
        await self.store.change(job.id, state="reported")
        return job.report

    async def forget(self, thread: ThreadId) -> None:
        """Stop the jobs of a thread, and drop what is kept of them."""
        await self.store.drop(thread)
        self.stop_those_that_are_over()

    async def obey(self, words: str, incoming: Incoming) -> str:
        """Run ``/jobs [stop ID]`` and return the reply. Raises `StoreUnavailable`."""
        match words.split():
            case []:
                found = [self._describe(job) for job in self.store.in_thread(incoming.thread)]
                return "\n".join([*found, HOW]) if found else NONE
            case ["stop", job_id] if (job := self._of(incoming.thread, job_id)) and job.state == "running":
                stopped = await self.store.change(job.id, state="stopped")
                return f"{'Stopped' if stopped else 'It is over already'}: {job.title}"
            case ["stop" | "report", job_id]:
                return f"No job {job_id[:20]} runs here.\n{HOW}"
        return HOW

    def _of(self, thread: ThreadId, job_id: str) -> Job | None:
        job = self.store.find(job_id.lower())
        return job if job and job.thread == str(thread) else None

    def _describe(self, job: Job) -> str:
        if job.state == "running":
            minutes = max(0, round((self.store.now() - job.began_at).total_seconds() / 60))
            return f"{job.id}: {job.title}, running for {minutes} min, may spend ${job.usd:.2f}"
        return f"{job.id}: {job.title}, {'stopped' if job.state == 'stopped' else 'done'}"


def _with_money(settings: Settings, usd: float) -> Settings:
    """Return the settings of a place with the money of a job as a hard limit, which is never more than there."""
    budget, limits = settings.budget, settings.budget.limit_usd
    if budget.mode != "hard":  # soft limits refuse nothing, and that of a job does
        limits = limits.model_copy(update=dict.fromkeys(type(limits).model_fields))
    turn = usd if limits.turn is None else min(usd, limits.turn)
    hard = {"mode": "hard", "limit_usd": limits.model_copy(update={"turn": turn})}
    return settings.model_copy(update={"budget": budget.model_copy(update=hard)})
