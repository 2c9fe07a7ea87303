"""The loop: ask the model, run its tools, until it answers.

Every step is checkpointed before the next, so a turn that is cut short goes on where it stopped instead of paying for
its steps again. A call is on disk before its tool runs, a result before the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from bot.agent.loop_guard import LoopGuard
from bot.agent.model_calls import Asking
from bot.agent.prompt.compaction import Compaction, Cooldown
from bot.agent.prompt.user_message import Remembered, heard, nothing
from bot.llm.policies.images import Sighted
from bot.ports import wording
from bot.ports.errors import EmptyAnswer, StepLimit
from bot.ports.model import Completion, Models, Request, TurnModel
from bot.ports.tool import Place, Tools
from threads.model import Message, OnEvent, Text, ThreadId, ToolCall, ToolResult, Turn
from threads.store.data_folder import Spill

CONTINUATIONS = 3
"""How often an answer that ran out of tokens is asked to go on."""

CONTINUE = Message("user", (Text("Go on exactly where you stopped."),))
AGAIN = Message("user", (Text("That answer was cut off. Please answer again."),))
FINISH = Message("user", (Text("Now answer in plain text, with what you have. Do not call tools."),))


@dataclass(frozen=True, slots=True)
class Room:
    """When and how far a conversation is compacted. ``threshold`` is the share of the model's window."""

    enabled: bool = True
    threshold: float = 0.8
    keep_recent_tokens: int = 20_000


@dataclass(slots=True)
class _Progress:
    """What one turn has done so far."""

    asking: Asking
    loops: LoopGuard = field(default_factory=LoopGuard)
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Agent:
    """Answers turns. ``system`` must be byte-stable; ``workspace`` gives a thread's own folder.

    ``spill`` keeps a text of the thread in a file; with ``footer`` an answer ends with what it used; ``veil`` puts a
    listener that masks secrets before the turn's own; ``remembered`` is what a new conversation begins with.
    """

    models: Models
    tools: Tools
    system: str
    workspace: Callable[[ThreadId], Path]
    spill: Callable[[ThreadId], Spill]
    max_steps: int = 50
    max_tokens: int = 8192
    temperature: float | None = None
    room: Room = Room()
    footer: bool = False
    veil: Callable[[OnEvent], OnEvent] = lambda tell: tell
    remembered: Remembered = nothing
    summaries: Cooldown = field(default_factory=Cooldown)

    async def run(self, turn: Turn) -> str:
        """Return the answer to ``turn.incoming``; raises `threads.errors.BotError`s."""
        model = Sighted(await self.models.for_turn(turn), turn)
        if turn.incoming.first and (done := await self._first(turn, model)):
            return done
        answer = await self._answer(turn, model)
        return f"{answer}\n\n{_footer(model)}" if self.footer else answer

    async def _first(self, turn: Turn, model: TurnModel) -> str:
        """Make the room that was asked for, once; return the word for it when nothing else is to be done."""
        incoming = turn.incoming
        if any(message.source == incoming.id for message in turn.messages):
            return ""  # done before the process ended
        if incoming.first == "new":
            if turn.messages:
                await turn.compact([])
            return ""
        done = await self._asking(turn, model, keep=0).compact()
        if not incoming.control:
            return ""
        return wording.COMPACTED if done else wording.NOTHING_TO_COMPACT

    async def _answer(self, turn: Turn, model: TurnModel) -> str:
        mine = [place for place, message in enumerate(turn.messages) if message.source == turn.incoming.id]
        if not mine:
            turn.add(await heard(turn, turn.incoming, self.remembered))
        elif turn.messages[mine[-1]].role == "assistant":
            given = turn.messages[mine[0] : mine[-1] + 1]
            return "".join(_said(turn, [*_continued(given), given[-1]], model.name))
        parts = _said(turn, _continued(turn.messages[mine[0] :]), model.name) if mine else []
        if (last := turn.messages[-1]).role == "assistant":
            if last.calls:
                await self._resume(turn, model, last.calls)
            else:
                turn.add(AGAIN)
        done = _Progress(self._asking(turn, model, self.room.keep_recent_tokens), parts=parts)
        for _ in range(self.max_steps):
            answer = await self._step(turn, await done.asking.ask(), done)
            if answer is not None:
                return answer
        return await self._finish(turn, done, StepLimit(f"no answer after {self.max_steps} steps"))

    def _asking(self, turn: Turn, model: TurnModel, keep: int) -> Asking:
        thread = turn.incoming.thread
        compaction = Compaction(keep, self.spill(thread), self.room.enabled, self.summaries)
        empty = Request(
            self.system, (), self.tools.specs, self.max_tokens, str(thread), temperature=self.temperature
        )
        return Asking(turn, model, compaction, empty, self.room.threshold, self.veil(turn.tell))

    async def _step(self, turn: Turn, completion: Completion, done: _Progress) -> str | None:
        """Take in one completion; return the whole answer when it is one."""
        message = completion.message
        if message.calls and completion.stop == "tool_calls":
            turn.add(message)
            await turn.checkpoint()
            turn.add(*await self._use_tools(turn, message.calls, done))
            await turn.checkpoint()
            await turn.steer(partial(heard, turn, remembered=self.remembered))
            return None
        if completion.stop == "pause":
            turn.add(message)
            await turn.checkpoint()
            return None
        if completion.stop == "length" and len(done.parts) < CONTINUATIONS:
            turn.add(message, CONTINUE)
            done.parts.append(message.text)
            await turn.checkpoint()
            return None
        return await _whole(turn, message, done)

    async def _finish(self, turn: Turn, done: _Progress, error: Exception) -> str:
        """Ask once more without tools; raise *error* when even that shows nothing."""
        turn.add(FINISH)
        try:
            completion = await done.asking.ask(tool_choice="none")
        except EmptyAnswer as empty:
            raise error from empty
        if completion.stop == "pause" or not completion.message.text.strip():
            raise error
        return await _whole(turn, completion.message, done)

    async def _use_tools(self, turn: Turn, calls: Sequence[ToolCall], done: _Progress) -> list[Message]:
        refusals = done.loops.refusals(calls)
        fresh = [call for call, refusal in zip(calls, refusals, strict=True) if refusal is None]
        place = self._place(turn, done.asking.model)
        results = iter(await self.tools.run(fresh, place, done.asking.tell))
        return _told([refusal or next(results) for refusal in refusals], place)

    async def _resume(self, turn: Turn, model: TurnModel, calls: Sequence[ToolCall]) -> None:
        """Take up the calls that waited for a person when the process ended; the rest is said to be interrupted."""
        place = self._place(turn, model)
        waiting = [call for call in calls if self.tools.waits(call, place)]
        if waiting:
            turn.add(*_told(await self.tools.run(waiting, place, self.veil(turn.tell)), place))
            await turn.checkpoint()

    def _place(self, turn: Turn, model: TurnModel) -> Place:
        thread = turn.incoming.thread
        return Place.of(turn, self.workspace(thread), self.spill(thread), sees=model.info.vision)


def _told(results: Sequence[ToolResult], place: Place) -> list[Message]:
    """Return what the model reads of a step: the results, and the pictures that belong to them."""
    told = Message("user", tuple(results))
    return [told, Message("user", tuple(place.images))] if place.images else [told]


async def _whole(turn: Turn, message: Message, done: _Progress) -> str:
    turn.add(replace(message, source=turn.incoming.id))
    await turn.checkpoint()
    return "".join([*done.parts, message.text])


def _continued(messages: Sequence[Message]) -> list[Message]:
    """Return the parts of an answer that a cut turn has already written."""
    return [part for part, next_ in pairwise(messages) if next_ == CONTINUE]


def _said(turn: Turn, parts: Sequence[Message], model: str) -> list[str]:
    """Return the texts of what a cut turn has written, and have it said who wrote it, if another than *model*."""
    for part in parts:
        if part.model != model:
            turn.note(wording.answered_by(part.model))
    return [part.text for part in parts]


def _footer(model: TurnModel) -> str:
    """Return one line on what the turn used: the model, its tokens, the share read from the cache, the cost."""
    usage, cost = model.usage, model.spent_usd
    cached = f", {usage.cache_read / usage.prompt:.0%} of the prompt cached" if usage.cache_read else ""
    price = "cost unknown" if cost is None else f"${cost:.4f}"
    return f"({model.name}: {usage.prompt + usage.output:,} tokens{cached}, {price})"
