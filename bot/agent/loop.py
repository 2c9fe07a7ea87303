"""The loop: ask the model, run its tools, until it answers.

Every step is saved before the next one, so an interrupted turn goes on where it stopped and pays for no step twice. A
call is on disk before its tool runs, and a result before the next call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from cachetools import TTLCache

from bot import wording
from bot.agent.loop_guard import LoopGuard, blaming_timeouts
from bot.agent.model_calls import ModelCalls
from bot.agent.prompt.compaction import Compaction, new_cooldown
from bot.agent.prompt.repair import repair
from bot.agent.prompt.user_message import UserMessages
from bot.config.settings import Compaction as CompactionSettings
from bot.llm.policies.images import VisionModel
from bot.ports.errors import EmptyAnswer, StepLimit
from bot.ports.model import Completion, Models, Request, TurnModel
from bot.ports.tool import ToolContext, Tools
from threads.model import Message, OnEvent, Text, ThreadId, ToolCall, ToolResult, Turn, places_of
from threads.store.data_folder import Spill

EMPTY = Request("", ())

CONTINUATIONS = 3
"""How often the model may go on with an answer that ran out of tokens."""

CONTINUE = Message("user", (Text("Go on exactly where you stopped."),))
AGAIN = Message("user", (Text("That answer was cut off. Please answer again."),))
FINISH = Message("user", (Text("Now answer in plain text, with what you have. Do not call tools."),))


@dataclass(slots=True)
class _Progress:
    """What one turn has done so far; ``parts`` are the texts of an unfinished answer."""

    calls: ModelCalls
    loops: LoopGuard = field(default_factory=LoopGuard)
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Agent:
    """Answers turns. ``system`` must be byte-stable; ``workspace`` returns a thread's own folder.

    ``empty`` is what all requests have in common, without prompt, tools and messages.

    ``spill`` writes a text of the thread to a file. With ``footer`` an answer ends with its usage. ``mask_events``
    wraps the turn's listener in one that masks secrets. ``user_messages`` turns what people send into what a model
    reads.
    """

    models: Models
    tools: Tools
    system: str
    workspace: Callable[[ThreadId], Awaitable[Path]]
    spill: Callable[[ThreadId], Spill]
    max_steps: int = 50
    empty: Request = EMPTY
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    footer: bool = False
    mask_events: Callable[[OnEvent], OnEvent] = lambda tell: tell
    user_messages: UserMessages = field(default_factory=UserMessages)
    summaries: TTLCache[ThreadId, bool] = field(default_factory=new_cooldown)

    async def run(self, turn: Turn) -> str:
        """Return the answer to ``turn.incoming``; raises `threads.errors.BotError`s. The caller makes it durable."""
        if turn.known_answer:
            return await self._restore_answer(turn)
        model = VisionModel(await self.models.for_turn(turn), turn)
        if turn.incoming.first and (reply := await self._make_room(turn, model)):
            return reply
        with blaming_timeouts(turn):
            answer = await self._answer(turn, model)
        return f"{answer}\n\n{_footer(model)}" if self.footer else answer

    async def _restore_answer(self, turn: Turn) -> str:
        written = {turn.messages[place].role for place in places_of(turn.messages, turn.incoming.id)}
        if "user" not in written:
            turn.add(await self.user_messages.build(turn, turn.incoming))
        if "assistant" not in written:
            turn.add(Message("assistant", (Text(turn.known_answer),), source=turn.incoming.id))
            if (repaired := repair(turn.messages)) is not turn.messages:
                turn.replace_messages(repaired)  # results of calls that no checkpoint held are lost
        return turn.known_answer

    async def _make_room(self, turn: Turn, model: TurnModel) -> str:
        """Compact or clear the conversation as asked, once; return a reply if there is nothing to answer."""
        incoming = turn.incoming
        if places_of(turn.messages, incoming.id):
            return ""  # done before the process ended
        if incoming.first == "new":
            if turn.messages:
                await turn.compact([])
            return ""
        done = await self._model_calls(turn, model, keep=0).compact()
        if not incoming.control:
            return ""
        return wording.COMPACTED if done else wording.NOTHING_TO_COMPACT

    async def _answer(self, turn: Turn, model: TurnModel) -> str:
        mine = places_of(turn.messages, turn.incoming.id)
        if not mine and (reply := await self.user_messages.add(turn, model.name, self.tools.specs)):
            return reply
        if mine and turn.messages[mine[-1]].role == "assistant":
            written = turn.messages[mine[0] : mine[-1] + 1]
            return "".join(_texts(turn, [*_unfinished(written), written[-1]], model.name))
        parts = _texts(turn, _unfinished(turn.messages[mine[0] :]), model.name) if mine else []
        if (last := turn.messages[-1]).role == "assistant":
            if last.calls:
                await self._resume(turn, model, last.calls)
            else:
                turn.add(AGAIN)
        progress = _Progress(self._model_calls(turn, model, self.compaction.keep_recent_tokens), parts=parts)
        for _ in range(self.max_steps):
            if (answer := await self._step(turn, await progress.calls.ask(), progress)) is not None:
                return answer
        return await self._finish(turn, progress, StepLimit(f"no answer after {self.max_steps} steps"))

    def _model_calls(self, turn: Turn, model: TurnModel, keep: int) -> ModelCalls:
        thread = turn.incoming.thread
        compaction = Compaction(keep, self.spill(thread), self.compaction.enabled, self.summaries)
        same = {"system": self.system, "tools": self.tools.specs, "cache_key": str(thread)}
        threshold, tell = self.compaction.threshold, self.mask_events(turn.tell)
        return ModelCalls(turn, model, compaction, partial(replace, self.empty, **same), threshold, tell)

    async def _step(self, turn: Turn, completion: Completion, progress: _Progress) -> str | None:
        """Take one completion; return the whole answer, or None if the turn goes on."""
        message = completion.message
        if message.calls and completion.stop == "tool_calls":
            turn.add(message)
            await turn.checkpoint()
            turn.add(*await self._use_tools(turn, message.calls, progress))
            await turn.checkpoint()
            await turn.steer(partial(self.user_messages.build, turn))
            return None
        if completion.stop == "length" and len(progress.parts) < CONTINUATIONS:
            turn.add(message, CONTINUE)
            progress.parts.append(message.text)
        elif completion.stop == "pause":
            turn.add(message)
        else:
            return _answer_of(turn, completion, progress)
        await turn.checkpoint()
        return None

    async def _finish(self, turn: Turn, progress: _Progress, error: Exception) -> str:
        """Ask once more without tools; raise *error* if that shows nothing either."""
        turn.add(FINISH)
        try:
            completion = await progress.calls.ask(tool_choice="none")
        except EmptyAnswer as empty:
            raise error from empty
        if completion.stop == "pause" or not completion.message.text.strip():
            raise error
        return _answer_of(turn, completion, progress)

    async def _use_tools(self, turn: Turn, calls: Sequence[ToolCall], progress: _Progress) -> list[Message]:
        refusals = progress.loops.refusals(calls)
        fresh = [call for call, refusal in zip(calls, refusals, strict=True) if refusal is None]
        context = await self._context(turn, progress.calls.model)
        results = iter(await self.tools.run(fresh, context, progress.calls.tell))
        return _result_messages([refusal or next(results) for refusal in refusals], context)

    async def _resume(self, turn: Turn, model: TurnModel, calls: Sequence[ToolCall]) -> None:
        """Run the calls that waited for a person when the process ended; `repair` marks the others as interrupted."""
        context = await self._context(turn, model)
        waiting = [call for call in calls if self.tools.waits(call, context)]
        if waiting:
            turn.add(
                *_result_messages(
                    await self.tools.run(waiting, context, self.mask_events(turn.tell)), context
                )
            )
            await turn.checkpoint()

    async def _context(self, turn: Turn, model: TurnModel) -> ToolContext:
        thread = turn.incoming.thread
        return ToolContext.of(turn, await self.workspace(thread), self.spill(thread), sees=model.info.vision)


def _result_messages(results: Sequence[ToolResult], context: ToolContext) -> list[Message]:
    """Return the messages that a step adds for the model: its results, then their pictures."""
    images = [Message("user", tuple(context.images))] if context.images else []
    return [Message("user", tuple(results)), *images]


def _answer_of(turn: Turn, completion: Completion, progress: _Progress) -> str:
    turn.add(replace(completion.message, source=turn.incoming.id))
    if completion.stop == "length":
        turn.note(wording.CUT_SHORT)
    return "".join([*progress.parts, completion.message.text])


def _unfinished(messages: Sequence[Message]) -> list[Message]:
    """Return the parts of an answer that an interrupted turn has written."""
    return [part for part, next_ in pairwise(messages) if next_ == CONTINUE]


def _texts(turn: Turn, parts: Sequence[Message], model: str) -> list[str]:
    """Return the texts of these messages; a note names each author that is not *model*."""
    for part in parts:
        if part.model != model:
            turn.note(wording.answered_by(part.model))
    return [part.text for part in parts]


def _footer(model: TurnModel) -> str:
    """Return one line with the model, its tokens, the share read from the cache, and the cost."""
    usage, cost = model.usage, model.spent_usd
    cached = f", {usage.cache_read / usage.prompt:.0%} of the prompt cached" if usage.cache_read else ""
    price = "cost unknown" if cost is None else f"${cost:.4f}"
    return f"({model.name}: {usage.prompt + usage.output:,} tokens{cached}, {price})"
