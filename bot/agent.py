"""The loop: ask the model, run its tools, until it answers.

Every step is checkpointed before the next, so a turn that is cut short goes on where it stopped instead of paying for
its steps again. A call is on disk before its tool runs, a result before the next call.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from bot.errors import LoopDetected, OutputInvalid, StepLimit
from bot.llm.model import Completion, Model, Request, ToolSpec, Usage
from bot.prompt.repair import repair
from bot.prompt.system import user_message
from bot.tools.base import Place, Toolbox, failed
from threads.model import Message, Text, TextReset, ThreadId, ToolCall, ToolResult, Turn

log = logging.getLogger(__name__)

EMPTY_TRIES = 3
"""Calls that may come back with nothing to show before one last, tool-free one."""

CONTINUATIONS = 3
"""How often an answer that ran out of tokens is asked to go on."""

SAME_CALL = 3
"""The same call with the same arguments this often in a turn is not run again; once more ends the turn."""

CONTINUE = Message("user", (Text("Go on exactly where you stopped."),))
AGAIN = Message("user", (Text("That answer was cut off. Please answer again."),))
FINISH = Message("user", (Text("Now answer in plain text, with what you have. Do not call tools."),))


@dataclass(slots=True)
class _Progress:
    """What one turn has used up so far."""

    calls: Counter[str] = field(default_factory=Counter)
    parts: list[str] = field(default_factory=list)
    empty: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Agent:
    """Answers turns. ``system`` must be byte-stable; ``workspace`` gives a thread's own folder."""

    model: Model
    tools: Toolbox
    system: str
    workspace: Callable[[ThreadId], Path]
    max_steps: int = 50
    max_tokens: int = 8192

    async def run(self, turn: Turn) -> str:
        """Return the answer to ``turn.incoming``; raises `threads.errors.BotError`s."""
        mine = [place for place, message in enumerate(turn.messages) if message.source == turn.incoming.id]
        if not mine:
            turn.add(user_message(turn.incoming))
        done = _Progress(parts=_continued(turn.messages[mine[0] :]) if mine else [])
        if (last := turn.messages[-1]).role == "assistant" and last.source == turn.incoming.id:
            return "".join([*done.parts, last.text])
        if last.role == "assistant" and not last.calls:
            turn.add(AGAIN)
        for _ in range(self.max_steps):
            completion = await self._ask(turn, self.tools.specs, done)
            answer = await self._step(turn, completion, done)
            if answer is not None:
                ids = {"thread_id": str(turn.incoming.thread), "message_id": turn.incoming.id}
                log.info("turn used %s", done.usage, extra=ids)
                return answer
        return await self._finish(turn, done, StepLimit(f"no answer after {self.max_steps} steps"))

    async def _ask(self, turn: Turn, tools: Sequence[ToolSpec], done: _Progress) -> Completion:
        if (mended := repair(turn.messages)) is not turn.messages:
            turn.mend(mended)
        request = Request(
            self.system, tuple(turn.messages), tools, self.max_tokens, cache_key=str(turn.incoming.thread)
        )
        completion = await self.model.complete(request, turn.tell)
        done.usage = _sum(done.usage, completion.usage)
        return completion

    async def _step(self, turn: Turn, completion: Completion, done: _Progress) -> str | None:
        """Take in one completion; return the whole answer when it is one."""
        message = completion.message
        if message.calls and completion.stop == "tool_calls":
            turn.add(message)
            await turn.checkpoint()
            turn.add(Message("user", tuple(await self._use_tools(turn, message.calls, done))))
            await turn.checkpoint()
            await turn.steer(user_message)
            return None
        if completion.stop == "pause":
            turn.add(message)
            await turn.checkpoint()
            return None
        if not message.text.strip():
            done.empty += 1
            await turn.tell(TextReset())
            return (
                None
                if done.empty < EMPTY_TRIES
                else await self._finish(turn, done, OutputInvalid("empty answers"))
            )
        if completion.stop == "length" and len(done.parts) < CONTINUATIONS:
            turn.add(message, CONTINUE)
            done.parts.append(message.text)
            await turn.checkpoint()
            return None
        return await _answer(turn, message, done)

    async def _finish(self, turn: Turn, done: _Progress, error: Exception) -> str:
        """Ask once more without tools; raise *error* when even that shows nothing."""
        turn.add(FINISH)
        completion = await self._ask(turn, (), done)
        if completion.stop == "pause" or not completion.message.text.strip():
            raise error
        return await _answer(turn, completion.message, done)

    async def _use_tools(self, turn: Turn, calls: Sequence[ToolCall], done: _Progress) -> list[ToolResult]:
        results: dict[int, ToolResult] = {}
        fresh: list[int] = []
        for index, call in enumerate(calls):
            canonical = json.dumps([call.name, call.arguments, call.malformed], sort_keys=True)
            done.calls[canonical] += 1
            if done.calls[canonical] > SAME_CALL:
                raise LoopDetected(
                    f"{call.name} called {done.calls[canonical]} times with the same arguments"
                )
            if done.calls[canonical] == SAME_CALL:
                results[index] = failed(
                    call,
                    "validation",
                    "Already tried with these arguments.",
                    recoverable=True,
                    suggestion="Do it differently.",
                )
            else:
                fresh.append(index)
        place = Place(self.workspace(turn.incoming.thread))
        ran = await self.tools.run([calls[index] for index in fresh], place, turn.tell)
        results.update(zip(fresh, ran, strict=True))
        return [results[index] for index in range(len(calls))]


async def _answer(turn: Turn, message: Message, done: _Progress) -> str:
    turn.add(replace(message, source=turn.incoming.id))
    await turn.checkpoint()
    return "".join([*done.parts, message.text])


def _continued(messages: Sequence[Message]) -> list[str]:
    """Return the parts of an answer that a cut turn has already written."""
    return [part.text for part, next_ in pairwise(messages) if next_ == CONTINUE]


def _sum(a: Usage, b: Usage) -> Usage:
    return Usage(
        a.input + b.input, a.output + b.output, a.cache_read + b.cache_read, a.cache_write + b.cache_write
    )
