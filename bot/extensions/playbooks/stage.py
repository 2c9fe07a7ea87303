"""Plays one attempt of a stage: setup, act, assert. It returns the result, or raises `StageFailed`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import JsonValue
from pydantic_core import from_json

from bot.agent.loop import Agent
from bot.extensions.playbooks.definition import Check, FailureType, Stage
from bot.extensions.playbooks.run_state import (
    LONGEST_MESSAGE,
    LONGEST_RESULT,
    LONGEST_RESULTS,
    Failure,
    Result,
    Run,
)
from bot.extensions.playbooks.runs import Runs
from bot.extensions.playbooks.setup_message import build_setup
from bot.extensions.playbooks.stage_turn import StageTurn
from bot.extensions.playbooks.tool_errors import exit_code_of, failure_of
from bot.extensions.playbooks.wording import question
from bot.llm.policies.structured_output import check, validator
from bot.ports.errors import BudgetExceeded, CapabilityMissing, ProviderError, SchemaMismatch, ToolError
from bot.ports.outside_text import tainted
from bot.ports.tool import ToolContext
from bot.tools.files.workspace import open_path, require_regular
from bot.wording import recoverable
from threads.errors import BotError
from threads.model import Answer, Incoming, Message, Option, Question, ToolCall, ToolResult
from threads.store.checksummed_lines import scrub
from threads.store.disk import Offload
from threads.store.open_beneath import FILE
from threads.wording import friendly

YES_NO = (Option("Yes", approve=True), Option("No", approve=False))

_TYPES: tuple[tuple[type[BotError], FailureType], ...] = (
    (SchemaMismatch, "assertion"),
    (BudgetExceeded, "budget"),
    (ProviderError, "provider"),
    (CapabilityMissing, "provider"),
)


class StageFailed(Exception):
    """An attempt failed. ``failure`` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class StageParts:
    """What all attempts use.

    ``usual`` returns the agent that would answer a message there; checks use its tools, by its rules. ``of_stage``
    returns that of a stage, with its model, tools, schema and money. It raises `StageFailed`.
    """

    usual: Callable[[Incoming], Awaitable[Agent]]
    of_stage: Callable[[StageTurn, Run, Stage], Awaitable[Agent]]
    runs: Runs
    work: Offload
    is_admin: Callable[[str], bool]


@dataclass(slots=True)
class StageAttempt:
    """One attempt. ``run`` is the run as it is stored."""

    parts: StageParts
    turn: StageTurn
    run: Run
    stage: Stage

    async def play(self) -> Result:
        """Return the result of the stage. Raises `StageFailed`, and the `BotError`s of the model."""
        turn = self.turn
        agent = await self.parts.of_stage(turn, self.run, self.stage)
        if not self.messages:
            await self._set_up(agent)
        text = await agent.run(turn)
        await turn.checkpoint()
        result = Result(value=self._value(text), outside=tainted(turn.messages))
        for number, one in enumerate(self.stage.assert_.checks):
            await self._check(one, number, result)
        return result

    @property
    def messages(self) -> Sequence[Message]:
        """Return what this attempt has added to the conversation."""
        mine = [place for place, one in enumerate(self.turn.messages) if one.source == self.turn.incoming.id]
        return self.turn.messages[mine[0] :] if mine else ()

    async def _set_up(self, agent: Agent) -> None:
        turn, run = self.turn, self.run
        if run.attempt > 1 and self.stage.retry.start == "setup":
            prefix = f"{turn.playing.incoming.id}.{run.stage}.{run.entries}."
            turn.replace_messages(without_attempts(turn.messages, prefix))
        files = [
            (path, await self._use("read_file", f"file-{n}", path=path))
            for n, path in enumerate(self.stage.setup.files)
        ]
        for _, read in files:
            if read.is_error:
                raise StageFailed(failure_of("read_file", read))
        turn.add(await build_setup(turn, run, self.stage, files, agent.user_messages))
        if turn.playing.incoming.files:
            await turn.checkpoint()  # so that nothing read of them is paid twice

    def _value(self, text: str) -> JsonValue:
        """Return the result in an answer. Raises `StageFailed`."""
        if len(text) > LONGEST_RESULT:
            raise StageFailed(_not_met(f"The result has more than {LONGEST_RESULT:,} characters."))
        others = (result.value for name, result in self.run.results.items() if name != self.run.stage)
        if len(text) + sum(len(str(value)) for value in others) > LONGEST_RESULTS:
            raise StageFailed(
                _not_met(f"All results together have more than {LONGEST_RESULTS:,} characters.")
            )
        if self.stage.assert_.schema_ is None:
            return scrub(text)
        check(text, validator(self.stage.assert_.schema_))
        return _storable(text)

    async def _check(self, one: Check, number: int, result: Result) -> None:
        """Make one check, unless it held before the process ended. Raises `StageFailed`."""
        if (name := f"{self.run.visit_id}.{number}") not in self.run.answers:
            if one.file is not None:
                await self._file(one.file)
                return
            asking = (
                await self._command(one, name)
                if one.command is not None
                else await self._person(one, name, result)
            )
            self.run = await self.parts.runs.keep_answer(self.run, name, approved=asking)
        if not self.run.answers[name]:
            raise StageFailed(_declined("A person said no."))

    async def _file(self, path: str) -> None:
        workspace = await (await self._usual()).workspace(self.turn.incoming.thread)
        try:
            await self.parts.work(_must_be_there, workspace, path)
        except ToolError as error:
            raise StageFailed(_not_met(f"The file {path[:200]} is not there: {error}")) from error

    async def _command(self, one: Check, name: str) -> bool:
        """Run a command in the sandbox, if the rules or a person allow it. Raises `StageFailed`."""
        assert one.command is not None
        done = await self._use("shell", f"check-{name}", command=one.command)
        if (code := exit_code_of(done)) is None:
            raise StageFailed(failure_of("shell", done))
        if code != one.exit_code:
            command = " ".join(one.command.split())[:200]
            raise StageFailed(_not_met(f"`{command}` ended with exit code {code}, not {one.exit_code}."))
        return True

    async def _person(self, one: Check, name: str, result: Result) -> bool:
        """Ask a person, and return whether it is a yes. Raises `StageFailed` if nobody answers."""
        assert one.person is not None
        runs = self.parts.runs
        now, asked = runs.now(), self.run.asking_until  # from before a restart
        until = datetime.fromisoformat(asked) if asked else now + timedelta(seconds=one.within_s)
        if until <= now:
            raise StageFailed(NOBODY_ANSWERED)
        self.run = await runs.asking(self.run, until)

        async def keep(answer: Answer) -> None:
            if answer.by:
                self.run = await runs.keep_answer(self.run, name, approved=answer.approved)

        answer = await self.turn.ask(
            Question(
                question(one.person, result.value),
                YES_NO,
                self._may_answer(one),
                about=f"a decision in stage {self.stage.name}",
                brief=f"{self.stage.name}: {one.person[:60]}",
                same=name,
                within_s=(until - now).total_seconds(),
                keep=keep,
            )
        )
        if answer is None:
            raise StageFailed(NOBODY_HERE)
        if not answer.by:
            raise StageFailed(NOBODY_ANSWERED)
        return answer.approved

    def _may_answer(self, one: Check) -> Callable[[str], bool]:
        asker, is_admin = self.run.asker.id, self.parts.is_admin
        return lambda who: one.by == "anyone" or is_admin(who) or (one.by == "asker" and who == asker)

    async def _use(self, tool: str, call_id: str, **arguments: JsonValue) -> ToolResult:
        """Call a tool as the model would: by the same rules, with the same result."""
        agent, thread = await self._usual(), self.turn.incoming.thread
        context = ToolContext.of(self.turn, await agent.workspace(thread), agent.spill(thread), sees=False)
        [result] = await agent.tools.run([ToolCall(call_id, tool, arguments)], context, self.turn.tell)
        return result

    async def _usual(self) -> Agent:
        return await self.parts.usual(self.turn.incoming)


def failure_from(error: BotError) -> Failure:
    """Return an error of the model, or of its limits, as the failure of the stage."""
    kind: FailureType = next((name for one, name in _TYPES if isinstance(error, one)), "unknown")
    told = str(error) if isinstance(error, SchemaMismatch) else friendly(error)
    return Failure(type=kind, message=told[:LONGEST_MESSAGE], recoverable=recoverable(error.code, error.ways))


def without_attempts(messages: Sequence[Message], prefix: str) -> list[Message]:
    """Return a conversation without the earlier attempts of a visit. What people said meanwhile stays."""
    begins = next(
        (place for place, one in enumerate(messages) if one.source.startswith(prefix)), len(messages)
    )
    said = [
        one
        for one in messages[begins:]
        if one.role == "user" and one.source and not one.source.startswith(prefix)
    ]
    return [*messages[:begins], *said]


def _storable(text: str) -> JsonValue:
    """Return the value of JSON as a file can hold it: without lone surrogates. Raises `StageFailed`."""
    try:
        value: JsonValue = from_json(
            scrub(json.dumps(json.loads(text), ensure_ascii=False)), allow_inf_nan=False
        )
    except ValueError as error:
        raise StageFailed(_not_met("The result has a number that is too large.")) from error
    return value


def _must_be_there(workspace: Path, path: str) -> None:
    """Raise `ToolError` unless the workspace has this regular file. Blocking."""
    with open_path(workspace, path, FILE) as fd:
        require_regular(fd, "used")


def _declined(message: str) -> Failure:
    return Failure(type="declined", message=message, recoverable=False)


NOBODY_HERE, NOBODY_ANSWERED = _declined("Nobody can be asked here."), _declined("Nobody answered in time.")


def _not_met(message: str) -> Failure:
    return Failure(type="assertion", message=message[:LONGEST_MESSAGE])
