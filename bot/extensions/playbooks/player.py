"""Plays a run in the turn of a `/play` message: one stage after another, durable at each border.

The process may die anywhere. Then the same turn runs again: the run is read from disk, and goes on in its stage. The
agent takes the attempt up from the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import anyio

from bot.agent.prompt.user_message import user_message
from bot.extensions.playbooks import wording
from bot.extensions.playbooks.definition import Playbook
from bot.extensions.playbooks.folder import Library
from bot.extensions.playbooks.parsing import digest_of
from bot.extensions.playbooks.run_state import Failure, Run
from bot.extensions.playbooks.runs import Runs, TooManyRuns
from bot.extensions.playbooks.stage import StageAttempt, StageFailed, StageParts, failure_from
from bot.extensions.playbooks.stage_turn import StageClock, StageTurn
from bot.extensions.playbooks.tool_errors import unmended_errors
from bot.extensions.playbooks.transitions import failed, out_of_time, passed, pause_s, retried, skipped
from threads.delivery import retry_until_stored
from threads.errors import BotError, Fenced, NewerSchema, StoreUnavailable
from threads.model import Message, Resumed, Text, ThreadId, Turn, Waiting
from threads.scheduled_messages import due_of
from threads.store.disk import Offload

log = logging.getLogger(__name__)

NOT_A_FAILURE = (StoreUnavailable, Fenced, NewerSchema)
"""Errors that end the turn as they end any other: the stage has done nothing wrong."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What the turn of a message has spent, and what people have granted it, in USD."""

    spent_usd: float = 0.0
    granted_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Player:
    """A `threads.model.Run` for messages that play.

    ``spending`` returns that of a message, by its key. ``return_later`` has a parked run go on by itself after so
    many seconds, and returns when, or None if that is not possible; ``forget_return`` takes that back. ``keep_files``
    makes the files of a thread as durable as its conversation.
    """

    playbooks: Library
    parts: StageParts
    spending: Callable[[str], Awaitable[Spending]]
    return_later: Callable[[Run], Awaitable[datetime | None]]
    forget_return: Callable[[Run], Awaitable[None]]
    keep_files: Callable[[ThreadId], Awaitable[None]]
    offload: Offload

    @property
    def runs(self) -> Runs:
        return self.parts.runs

    async def run(self, turn: Turn) -> str:
        """Play the run that the message asks for, and return its outcome."""
        if answer := _answer_in(turn):
            return answer
        await turn.checkpoint()  # nobody sees anything of a turn before its start is durable
        with self.runs.playing(turn.incoming.thread):
            run = await self._begin(turn)
            while not isinstance(run, str) and (run.state == "running" or run.redirect):
                run = await self._attempt(turn, run)
        return run if isinstance(run, str) else await self._finish(turn, run)

    async def _begin(self, turn: Turn) -> Run | str:
        """Return the run to play, or a sentence on why there is none."""
        before = self.runs.of(turn.incoming.thread)
        if before and before.message_id == turn.incoming.id:
            if before.state == "running":
                turn.note(wording.going_on(before))
                await self.forget_return(before)  # the process may have died before it did
            return await self.runs.take_up(before)
        _, name, words = [*turn.incoming.text.strip().split(maxsplit=2), "", ""][:3]
        if name in ("retry", "skip"):
            run = await self._directed(turn, before, name, words)
        else:
            run = await self._new(turn, before, name, words)
        if isinstance(run, str):
            return run
        try:
            run = await self.runs.take_up(run)
        except TooManyRuns:
            return wording.TOO_MANY
        if before and before.state == "parked":
            await self.forget_return(before)
        return run

    async def _new(self, turn: Turn, before: Run | None, name: str, words: str) -> Run | str:
        if before and before.state == "parked":
            return f"{before.playbook.name} waits here. First say {wording.CONTROLS}."
        playbook = await self.offload(self.playbooks.find, name)
        return playbook if isinstance(playbook, str) else new_run(turn, playbook, words)

    async def _directed(self, turn: Turn, before: Run | None, verb: str, stage: str) -> Run | str:
        """Return a run that was stopped, parked or ended, where a person wants it to go on."""
        comes_back = due_of(turn.incoming.id) is not None
        if before is None or before.state == "done" or (comes_back and before.state != "parked"):
            return wording.NOT_HERE
        if not may_direct(before, turn.incoming.author.id, self.parts.is_admin):
            return wording.ONLY_ASKER
        if verb == "retry" and stage and before.playbook.stage(stage) is None:
            return wording.no_stage(before, stage)
        run = skipped(before) if verb == "skip" else retried(before, stage)
        last = replace(turn.incoming, id=before.message_id).key
        spent = before.before_usd + (await self.spending(last)).spent_usd
        mine = {"message_id": turn.incoming.id, "before_usd": spent, "spent_usd": spent}
        if before.state == "failed":
            mine["worked_s"] = 0.0  # a person gives it new time
        return run.model_copy(update={**mine, "entered_usd": spent, "entered_granted_usd": 0.0})

    async def _attempt(self, turn: Turn, run: Run) -> Run:
        """Play one attempt of the stage that the run is in, and return the run at the next border."""
        if run.redirect:
            return await self._border(turn, run, redirected(run), 0.0)
        if run.left_s <= 0:
            return await self._border(turn, run, out_of_time(run), 0.0)
        stage = run.current
        await turn.tell(wording.stages_of(run))
        clock = StageClock(min(stage.act.timeout_s + pause_s(run), run.left_s))
        keep_files = partial(self.keep_files, turn.incoming.thread)
        stage_turn = StageTurn(turn, run.visit_id, stage.act.prompt, clock, keep_files)
        attempt = StageAttempt(self.parts, stage_turn, run, stage)
        following: Run | None = None
        with self.runs.attempting(turn.incoming.thread, clock.scope) as playing, clock.scope:
            await _pause(turn, run)
            following = await _follow(attempt)
        run = attempt.run
        if following is None and playing.redirected:
            run = self.runs.of(turn.incoming.thread) or run
            following = redirected(run)
        elif following is None and run.left_s <= clock.worked_s:
            following = out_of_time(run)
        elif following is None:
            why = f"The stage took longer than {stage.act.timeout_s:g} s."
            following = failed(run, Failure(type="timeout", message=why), unmended_errors(attempt.messages))
        return await self._border(turn, run, following, clock.worked_s)

    async def _border(self, turn: Turn, before: Run, run: Run, worked_s: float) -> Run:
        """Make a border durable: files and conversation, then the run. Return the run as it is stored."""
        await self.keep_files(turn.incoming.thread)
        await turn.checkpoint()
        money = await self.spending(turn.incoming.key)
        spent = before.before_usd + money.spent_usd
        update: dict[str, object] = {"spent_usd": spent, "worked_s": before.worked_s + worked_s}
        if run.visit_id != before.visit_id:
            update |= {"answers": {}, "asking_until": ""}
        if run.entries != before.entries:
            update |= {"entered_usd": spent, "entered_granted_usd": money.granted_usd}
        log.info(
            "playbook.border: %s",
            run.state,
            extra={"thread_id": run.thread, "message_id": run.message_id, "stage": run.stage},
        )
        return await self.runs.save(run.model_copy(update=update), carried_out=before.redirect)

    async def _finish(self, turn: Turn, run: Run) -> str:
        """Return the outcome, and add it to the conversation.

        Nothing else reminds of a parked run: its return waits for a disk that refuses.
        """
        until = await retry_until_stored(partial(self.return_later, run)) if run.state == "parked" else None
        text = wording.outcome(run, until)
        await turn.tell(wording.stages_of(run, playing=False))
        turn.add(user_message(turn.incoming))
        turn.add(Message("assistant", (Text(text),), source=turn.incoming.id))
        return text


def new_run(turn: Turn, playbook: Playbook, words: str) -> Run:
    """Return a run at its first stage."""
    incoming, first = turn.incoming, playbook.stages[0].name
    return Run(
        id=incoming.key,
        thread=str(incoming.thread),
        message_id=incoming.id,
        asker=incoming.author,
        words=words,
        playbook=playbook,
        digest=digest_of(playbook),
        stage=first,
        visits={first: 1},
        entries=1,
    )


def may_direct(run: Run, who: str, is_admin: Callable[[str], bool]) -> bool:
    """Return whether this person may decide where the run goes on."""
    return who == run.asker.id or is_admin(who)


def redirected(run: Run) -> Run:
    """Return the run where a person wants it to go on."""
    verb, _, stage = run.redirect.partition(" ")
    if verb == "retry":
        return retried(run, stage)
    if run.stage == stage:
        return skipped(run)
    return run.model_copy(update={"redirect": ""})  # it had left that stage already


async def _follow(attempt: StageAttempt) -> Run:
    """Play the attempt, and return what follows."""
    try:
        result = await attempt.play()
    except StageFailed as error:
        return failed(attempt.run, error.failure, unmended_errors(attempt.messages))
    except NOT_A_FAILURE:
        raise
    except BotError as error:
        log.warning("playbook.failed: %s: %s", attempt.stage.name, error, extra={"code": error.code})
        return failed(attempt.run, failure_from(error), unmended_errors(attempt.messages))
    return passed(attempt.run, result, unmended_errors(attempt.messages))


async def _pause(turn: Turn, run: Run) -> None:
    """Wait before another attempt, without a slot."""
    if seconds := pause_s(run):
        await turn.tell(Waiting("before the next attempt", seconds, run.attempt, run.current.retry.attempts))
        await anyio.sleep(seconds)
        await turn.tell(Resumed())


def _answer_in(turn: Turn) -> str:
    """Return the outcome that is in the conversation already, blank if there is none."""
    written = (
        one for one in reversed(turn.messages) if one.source == turn.incoming.id and one.role == "assistant"
    )
    return next((one.text for one in written), "")
