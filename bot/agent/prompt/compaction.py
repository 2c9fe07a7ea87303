"""Makes a long conversation shorter: the model summarises its older part, or old tool output moves to files.

| what is tried                         | when                                           | it counts if |
| a summary of all before a turn border | enough lies before the recent tail             | 30 % shorter |
| the same of ever less, halved         | the request for it is too long itself          | 30 % shorter |
| the same once more, without tools     | the answer was empty, too long or a tool call  | 30 % shorter |
| old results to files, then arguments  | there is no summary, or two were of no use     | 10 % shorter |
| only that, without a summary          | one failed in this thread in the last 5 min    | 10 % shorter |
| nothing: the conversation stays whole | none of these helps                            |              |

The request for a summary is a prefix of the conversation with one instruction appended, so it reads the provider's
cache. If that is too long, it is the end of the conversation as plain text, without tools and instructions. Nothing
is lost: `Turn.compact` saves the whole conversation before it is replaced. A summary is a best-effort call, because
the conversation can go on without it. After a failure the next one is tried at once only if the conversation does not
fit at all, or if a person asks for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
from cachetools import TTLCache
from pydantic import JsonValue

from bot import wording
from bot.agent.prompt.setup_changes import answered_setup
from bot.agent.prompt.token_estimate import request_size, size_of
from bot.ports.errors import ContextOverflow, OutputInvalid, ProviderError
from bot.ports.model import Request, TurnModel
from bot.ports.outside_text import tainted
from threads.errors import StoreUnavailable, error_fields, retry_fields
from threads.model import (
    Block,
    Image,
    Message,
    Text,
    TextDelta,
    TextReset,
    Thinking,
    ThinkingDelta,
    ThreadId,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
    Turn,
    TurnEvent,
    read_upto,
)
from threads.store.data_folder import Spill

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""Summaries that one turn may ask for."""

HALVINGS = 6
"""Further requests for the summaries of one turn, each with half as much."""

AGAIN_AFTER_S = 300.0
"""Seconds without another summary after one failed in a thread, unless the conversation does not fit."""

SHORT_ENOUGH = 0.7
"""A summary must leave at most this share of the size."""

WORTH_IT = 0.9
"""Moving output to files must leave at most this share; it stops as soon as `SHORT_ENOUGH` is reached."""

SPILL_OVER = 2_000
"""Characters: a longer result or argument moves to a file."""

SUMMARISING = "compact"
"""The name of the work, for those who watch the turn."""

OPENING = (
    "Summary of our conversation up to here. It stands in place of the messages, which are kept on file."
)

LEFT_OUT = "(The beginning is left out: it was too long to be read again. It is kept on file.)"

INSTRUCTION = Message(
    "user",
    (
        Text(
            "Our conversation is becoming too long for you to read, so write a summary that will stand in its place. "
            "You will go on from it without seeing anything above. Keep: who the people are (names and ids) and what "
            "each of them wants; what was decided and why; tasks that are open and what was promised; files, paths, "
            "links and commands; figures, dates, names and quoted words exactly as they are; what was tried and "
            "failed; and all that an earlier summary says and still holds. Leave out greetings and what is settled "
            "and of no further use. Write plain text in the language of the conversation, at most about 1,000 words. "
            "Do not call tools, do not answer the last message, write nothing but the summary."
        ),
    ),
)


def too_large(size: int, window: int | None, threshold: float, max_tokens: int) -> bool:
    """Return whether a prompt of *size* tokens should be made shorter before it is sent.

    It may fill the *threshold* share of the *window* and must leave room for an answer of *max_tokens*, but at most
    half of the window: the settings often ask small local models for more than they have.
    """
    if window is None:
        return False
    return size > min(window * threshold, window - min(max_tokens, window // 2))


def strip_thinking(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation without reasoning (it is bound to earlier messages) and token counts."""
    return [stripped for message in messages if (stripped := _stripped(message)).blocks]


def _stripped(message: Message) -> Message:
    blocks = tuple(block for block in message.blocks if not isinstance(block, Thinking))
    if len(blocks) == len(message.blocks) and not message.tokens:
        return message
    return replace(message, blocks=blocks, tokens=0)


def where_to_cut(messages: Sequence[Message], current: str, keep: float) -> int:
    """Return the index of the first message to keep: the oldest start of a turn with at most *keep* tokens after it.

    The turn of the message *current* is always kept whole. Returns 0 if nothing comes before it.
    """
    cut = start = _start(messages, current)
    tokens = 0
    for place in range(len(messages) - 1, 0, -1):
        tokens += _size(_stripped(messages[place]))
        if tokens > keep:
            break
        if place < start and _starts_turn(messages, place):
            cut = place
    return cut


def _starts_turn(messages: Sequence[Message], place: int) -> bool:
    message = messages[place]
    return message.role == "user" and bool(message.source) and not messages[place - 1].calls


def _start(messages: Sequence[Message], current: str) -> int:
    """Return the index where the turn of *current* begins, or the end if it has not begun."""
    for place, message in enumerate(messages):
        if message.role == "user" and message.source == current:
            return place
    return len(messages)


def _size(message: Message) -> int:
    return size_of("", (message,), ())


def new_cooldown() -> TTLCache[ThreadId, bool]:
    """Return a cache of the threads whose summary failed in the last `AGAIN_AFTER_S` seconds."""
    return TTLCache(1_000, AGAIN_AFTER_S, anyio.current_time)


@dataclass(slots=True)
class Compaction:
    """The compaction of one turn, which counts its attempts. If not ``enabled`` it only moves tool output to files.

    All threads share one ``cooldown``.
    """

    keep_recent_tokens: int
    spill: Spill
    enabled: bool = True
    cooldown: TTLCache[ThreadId, bool] = field(default_factory=new_cooldown)
    _attempts: int = field(default=0, init=False)
    _halvings: int = field(default=0, init=False)
    _room: float = field(default=math.inf, init=False)

    async def run(
        self, turn: Turn, request: Request, model: TurnModel, *, window: int | None, needed: bool = True
    ) -> str | None:
        """Make the conversation shorter and return a note for the thread; None if that is not possible.

        *request* is the one that is too large; it has the turn's messages. Without *needed* the turn can go on as it
        is. If a provider or the disk fails, the conversation stays whole. Raises other `BotError`s, as of budgets.
        """
        size, before = request_size(request), _length(request, strip_thinking(turn.messages))
        thread = turn.incoming.thread
        try:
            shorter = None
            if needed or thread not in self.cooldown:
                shorter = await self._summarise(turn, request, model, window)
            word = "I summarised the earlier part of our conversation"
            if shorter is None:
                shorter = await self._spill_output(turn, request)
                word = "I moved older tool output to files"
            if shorter is None:
                return None
            await turn.compact(shorter)
        except StoreUnavailable:
            log.warning("compaction.not_saved: the disk refuses", exc_info=True, extra=_ids(turn))
            return None
        after = round(size * _length(request, shorter) / before)
        return f"{word} to make room ({size:,} to {after:,} tokens); the full text is kept."

    async def _summarise(
        self, turn: Turn, request: Request, model: TurnModel, window: int | None
    ) -> list[Message] | None:
        whole = strip_thinking(turn.messages)
        before = _length(request, whole)
        messages = request.messages
        keep = min(self.keep_recent_tokens, size_of("", whole, ()) / 3, (window or math.inf) / 3)
        cut = where_to_cut(turn.messages, turn.incoming.id, keep)
        tail = strip_thinking(turn.messages[cut:])
        if not cut or not self.enabled or _length(request, tail) > before * SHORT_ENOUGH:
            return None
        room = request.max_tokens if window is None else min(request.max_tokens, max(1, window // 4))
        asked = replace(
            request,
            messages=(*messages[:cut], INSTRUCTION),
            max_tokens=room,
            output_schema=None,
            best_effort=True,
        )
        while self._attempts < ATTEMPTS:
            self._attempts += 1
            try:
                async with _announced(turn):
                    summary = await self._ask_for_less(asked, turn, model, window)
            except ProviderError as error:
                fields = {**_ids(turn), **error_fields(error)}
                log.warning("compaction.failed: no summary: %s: %s", error.code, error, extra=fields)
                self._attempts = ATTEMPTS
                break
            shorter = [_entry(summary, messages[:cut]), *tail]
            if summary and _length(request, shorter) <= before * SHORT_ENOUGH:
                return shorter
            useless = OutputInvalid(f"a summary of {len(summary)} characters is no use")
            more = self._attempts < ATTEMPTS
            again = retry_fields(useless, self._attempts + 1, 0) if more else error_fields(useless)
            log.warning("compaction.useless: %s", useless, extra={**_ids(turn), **again})
            asked = replace(asked, tool_choice="none")
        self.cooldown[turn.incoming.thread] = True
        return None

    async def _ask_for_less(self, asked: Request, turn: Turn, model: TurnModel, window: int | None) -> str:
        """Return the summary of as much as the model can read, or "" if there is none; raises `ProviderError`."""
        while True:
            room = min((window or math.inf) - asked.max_tokens, self._room)
            request = asked if request_size(asked) <= room else less_of(asked, int(room))
            try:
                summary = await _ask(request, turn, model)
            except ContextOverflow as error:
                self._halvings += 1
                if self._halvings > HALVINGS:
                    raise
                window = model.info.context_window
                self._room = min(request_size(request), room) / 2
                fields = {**_ids(turn), **retry_fields(error, self._halvings + 1, 0)}
                log.warning("compaction.halved: %s", error, extra=fields)
            else:
                return f"{LEFT_OUT}\n\n{summary}" if summary and request is not asked else summary

    async def _spill_output(self, turn: Turn, request: Request) -> list[Message] | None:
        """Move the oldest output to files, then the arguments of calls, until that is enough."""
        messages = strip_thinking(turn.messages)
        before = size = _length(request, messages)
        outside = tainted(messages)  # later text may repeat text from outside
        last = _last_step(messages, turn.incoming.id)
        for kinds in ((ToolResult, Image, Text), (ToolCall,)):
            for place in range(last):
                if size <= before * SHORT_ENOUGH:
                    break
                old = messages[place]
                blocks = [await self._shorter(b, outside) if isinstance(b, kinds) else b for b in old.blocks]
                if (new := replace(old, blocks=tuple(blocks))) != old:
                    messages[place] = new
                    size -= _size(old) - _size(new)
        return messages if size < before * WORTH_IT else None

    async def _shorter(self, block: Block, outside: bool) -> Block:
        match block:
            case ToolResult(_, content, is_error) if len(content) > SPILL_OVER:
                moved = {"success": not is_error, "result": await self._moved(content, outside)}
                return replace(block, content=json.dumps(moved, ensure_ascii=False))
            case ToolCall(_, _, arguments):
                shorter = {k: await self._shorter_value(v, outside) for k, v in arguments.items()}
                return replace(block, arguments=shorter)
            case Text(text) if block.outside and len(text) > SPILL_OVER:
                return replace(block, text=await self._moved(text, outside))
            case Image(file):
                return Text(f"(the picture {file} was here)", outside=True)
            case _:
                return block

    async def _shorter_value(self, value: JsonValue, outside: bool) -> JsonValue:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return await self._moved(text, outside) if len(text) > SPILL_OVER else value

    async def _moved(self, text: str, outside: bool) -> str:
        """Write *text* to a file named after its content, and return a line that takes its place."""
        name = f"{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}.txt"
        path = await self.spill(name, text, outside=outside)
        return f"({len(text)} characters were moved to {path} to make room; read them there if you need them)"


@asynccontextmanager
async def _announced(turn: Turn) -> AsyncIterator[None]:
    """Show the person that a summary is being written: it takes many seconds without any text."""
    await turn.tell(ToolStarted(SUMMARISING, call_id=SUMMARISING, label=wording.SUMMARISING))
    done = False
    try:
        yield
        done = True
    finally:
        await turn.tell(ToolFinished(SUMMARISING, done, SUMMARISING))


async def _ask(request: Request, turn: Turn, model: TurnModel) -> str:
    """Return the summary, or "" if the answer is not one; raises `ProviderError`."""

    async def tell(event: TurnEvent) -> None:
        """Pass on waits and the like; the text of a summary is not an answer."""
        if not isinstance(event, TextDelta | ThinkingDelta | TextReset):
            await turn.tell(event)

    completion = await model.complete(request, tell)
    return completion.message.text.strip() if completion.stop == "end" else ""


def less_of(asked: Request, room: int) -> Request:
    """Return a request for a summary of the end of the conversation, of about *room* tokens.

    It is plain text, so neither tools nor pictures are needed to read it, and an earlier summary stays at its head.
    """
    *messages, instruction = asked.messages
    earlier = messages[0].text if messages[0].text.startswith(OPENING) else ""
    lines = [line for message in messages[bool(earlier) :] for line in _transcript(message)]
    whole = Message("user", (Text("\n".join([earlier, *lines])),))
    room = max(1, int(0.9 * room) - _size(instruction))  # the estimate may be too low
    most = max(4, room * len(whole.text) // _size(whole))
    head, end = _clipped(earlier, most // 4), "\n".join(_clipped(line, most // 4) for line in lines)
    text = "\n\n".join(filter(None, [head, LEFT_OUT, end[max(0, len(end) - most + len(head)) :]]))
    return replace(
        asked,
        system="",
        tools=(),
        tool_choice="auto",
        max_tokens=min(asked.max_tokens, max(256, room // 2)),
        messages=(Message("user", (Text(text, outside=tainted(messages)),)), instruction),
    )


def _transcript(message: Message) -> Iterator[str]:
    for block in message.blocks:
        match block:
            case Text(text):
                yield f"{message.role}: {text}"
            case ToolCall(_, name, arguments):
                yield f"{message.role} called {name}: {json.dumps(arguments, ensure_ascii=False)}"
            case ToolResult(_, content):
                yield f"result: {content}"
            case Image(file):
                yield f"(the picture {file})"


def _clipped(text: str, most: int) -> str:
    """Return *text*, without its middle if it has more than *most* characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[len(text) - most // 2 :]}"


def _entry(summary: str, of: Sequence[Message]) -> Message:
    """Return the message that replaces others. If they have text from outside, the summary counts as such, too."""
    text = Text(f"{OPENING}\n\n{summary}", outside=tainted(of))
    return Message("user", (text,), setup=answered_setup(of), upto=read_upto(of))


def _length(request: Request, messages: Sequence[Message]) -> int:
    return size_of(request.system, messages, request.tools)


def _last_step(messages: Sequence[Message], current: str) -> int:
    """Return the index where the last step of the current turn begins; only messages before it are shortened."""
    start = _start(messages, current)
    return next((place for place in range(len(messages) - 1, start, -1) if messages[place].calls), start)


def _ids(turn: Turn) -> dict[str, str]:
    return {"thread_id": str(turn.incoming.thread), "message_id": turn.incoming.id}
