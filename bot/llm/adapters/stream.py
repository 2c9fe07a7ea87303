"""Reads a streamed answer: with timeouts, usage, and a typed error for every failure.

Silence means no *content*: pings and keep-alives say nothing about the model.

| while                                                           | longest silence |
| connecting                                                      | ``connect``, see `bot.llm.adapters.http_client` |
| no visible text is being written: prompt, thinking, a tool call | ``first_content`` |
| visible text is being written                                   | ``idle``         |
| the end of the answer was told                                  | `AFTERWORD_S` or `CLOSING_S`: it is whole then |
| the listener handles a delta                                    | unlimited: this is not the model's time |
| the whole call, without the listener's time                     | ``total``        |

Less than `LISTENING` of the listener's time for a delta counts as the model's, or a flood of deltas could extend the
total.

An interrupted call is charged for an upper bound of its output, because no provider reports it:

| part                                                         | charge                                |
| the prompt                                                   | the provider's count, see `metering`  |
| text that was streamed                                       | at least its tokens, see `max_tokens_in` |
| time between two pieces of text, without the listener's      | nothing more                          |
| all other time since the request went out, and `IN_FLIGHT_S` | `TOKENS_PER_SECOND`                   |
| the whole output                                             | never more than ``max_tokens``        |
| a refused call, or no connection                             | nothing                               |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import anyio

from bot.budget.budgets import IN_FLIGHT_S, TOKENS_PER_SECOND
from bot.config.settings import StreamTimeouts
from bot.llm.adapters.thought_tags import Split
from bot.llm.adapters.wire_form import scrub
from bot.llm.classify import classify
from bot.ports.errors import ModelConnection, ModelTimeout, OutputInvalid, ProviderError
from bot.ports.model import Completion, Usage, ignore_usage
from threads.errors import BotError
from threads.model import OnEvent, TextDelta, TextReset, ThinkingDelta

if TYPE_CHECKING:
    from bot.llm.adapters.sse import JsonEvent

AFTERWORD_S = 3.0
"""Seconds to wait for the count of tokens after the model's last word: the servers send it within one."""

CLOSING_S = 0.5
"""Seconds to wait for the end of the body, after which the connection can be used again."""

MAX_CONTENT = 4_000_000
"""Characters of one answer, with thinking and arguments: about eight times the most that models write today."""

LISTENING = 0.1
"""Seconds for one delta above which the listener is waiting for something."""

CHARACTERS_PER_TOKEN = 3
"""Fewer than in any common text, so that estimates are rather too high."""

UNCONNECTED = frozenset({"ConnectTimeout", "ConnectionTimeoutError"})
"""Errors of a call that never got to the server."""

COMMON = b"abcdefghijklmnopqrstuvwxyz "
"""Letters that a tokenizer joins: two or more of them are one token."""


def max_tokens_in(text: str) -> float:
    """Return an upper bound of the tokens in *text*: one for two common letters, and one for every other byte.

    Prose has half as many, random letters and digits about as many.
    """
    data = text.encode("utf-8", "surrogatepass")
    rare = len(data.translate(None, COMMON))
    return rare + (len(data) - rare) / 2


@dataclass(frozen=True, slots=True)
class HiddenContent:
    """Content that is not shown, such as a call's arguments; ``length`` is in characters."""

    length: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The text until now was thought, and the answer begins with ``text``. ``length`` is that of all that is new."""

    text: str
    length: int


Content = str | ThinkingDelta | HiddenContent | Restart
"""The content of an event: visible text, readable thinking, or hidden content, which includes blank text."""


def content_of(split: Split, length: int) -> Content | None:
    """Return the content of text of this *length* in which thoughts are marked."""
    if split.all_before:
        return Restart(scrub(split.text), length)
    if split.text:
        return scrub(split.text)
    if split.thought:
        return ThinkingDelta(scrub(split.thought))
    return HiddenContent(length) if length else None


class Reader(ABC):
    """A state machine from one provider's events to a `Completion`; pure, and without a clock.

    ``writing`` tells whether visible text is being written now. ``usage`` is the provider's count so far, also of an
    unfinished answer.
    """

    def __init__(self, model: str) -> None:
        self._model, self.writing, self.usage = model, False, Usage()

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the model has stopped writing, so that the count of its answer is final."""

    @property
    def told_end(self) -> bool:
        """Whether the server has told the end of the answer: only a count of tokens may still follow."""
        return self.ended

    @abstractmethod
    def feed(self, event: JsonEvent) -> Content | None:
        """Take an event; return its content, or None."""

    @abstractmethod
    def finish(self) -> Completion:
        """Return the complete answer; raises `ProviderError` if the last event is missing."""


Pieces = AsyncIterable[Iterable["JsonEvent"]]
"""The events of an answer: for each piece that comes over the network those that end in it."""

Open = Callable[[], AbstractAsyncContextManager[Pieces]]
"""Sends the request and opens its events."""


@dataclass(slots=True)
class _UsageCounter:
    """Counts the content of a call, and tells the meter its usage.

    ``answered`` means that the stream was opened, ``over`` that it ended in order. ``plain_s`` are the seconds
    without hidden output; ``since`` is when the wait for the next content began.
    """

    meter: Callable[[Usage], None]
    max_tokens: int
    sent_at: float | None = None
    answered: bool = False
    began: bool = False
    over: bool = False
    length: int = 0
    most_streamed: float = 0
    plain_s: float = 0
    since: float = 0
    usage: Usage | None = None

    def take(self, content: Content | None, usage: Usage, now: float, *, plain: bool) -> None:
        """Add the content of an event; *plain* is text that continues text."""
        self.began = True
        match content:
            case str(text) | ThinkingDelta(text):
                self.length += len(text)
                self.most_streamed += max_tokens_in(text)
            case HiddenContent(length) | Restart(_, length):
                self.length += length
        if content is not None:
            self.plain_s += now - self.since if plain else 0
            self.since = now
        self.tell(usage)
        if self.length > MAX_CONTENT:
            raise OutputInvalid(f"given up: the answer is longer than {MAX_CONTENT} characters")

    def tell(self, usage: Usage) -> None:
        if usage is not self.usage and usage != self.usage:
            self.usage = usage
            self.meter(usage)

    def cut_off(self, usage: Usage, error: BaseException, *, ended: bool) -> Usage | None:
        """Return the usage of an interrupted answer and tell the meter; None if nothing came.

        A prompt of 0 is not counted yet: OpenAI counts it at the end.
        """
        nothing = not self.began and usage == Usage()
        if self.sent_at is None or (nothing and self._refused(error)):
            return None
        streamed = math.ceil(self.length / CHARACTERS_PER_TOKEN)
        output = max(usage.output, min(streamed, self.max_tokens))
        counted = replace(usage, output=output)
        if not (ended and usage.output):
            unseen_s = anyio.current_time() - self.sent_at - self.plain_s + IN_FLIGHT_S
            most = math.ceil(self.most_streamed + unseen_s * TOKENS_PER_SECOND)
            counted = replace(counted, hidden=max(0, min(most, self.max_tokens) - output))
        self.tell(counted)
        return None if nothing else counted

    def _refused(self, error: BaseException) -> bool:
        """Return whether a call without any event cost nothing, because the provider did not accept it.

        Providers do not charge for errors, but for a client that hung up (novita.ai/docs/guides/llm-billing).
        """
        match error:
            case ModelTimeout():
                causes = (error.__cause__, error.__cause__ and error.__cause__.__cause__)
                return "status" in error.fields or bool(UNCONNECTED & {type(why).__name__ for why in causes})
            case ModelConnection():
                return not self.answered
            case ProviderError():
                return not self.over
        return False


@contextmanager
def typed_errors(provider: str, model: str, now: Callable[[], datetime] | None) -> Iterator[None]:
    """Turn any error into a `BotError` with the model's name in its fields."""
    try:
        yield
    except BotError as error:
        error.fields |= {"provider": provider, "model": model}
        raise
    except Exception as error:  # noqa: BLE001
        # SDKs raise their own classes, those of httpx2, and plain ValueErrors.
        failure = classify(error, now() if now else None)
        failure.fields |= {"provider": provider, "model": model}
        try:
            raise failure from error
        finally:
            # Otherwise it and this frame keep the broken stream in memory until a garbage collection.
            del failure


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one model: opens the stream, feeds the reader, and calls the listener and the meter."""

    provider: str
    model: str
    open: Open
    reader: Reader
    timeouts: StreamTimeouts
    max_tokens: int
    now: Callable[[], datetime] | None = None
    meter: Callable[[Usage], None] = ignore_usage

    async def answer(self, on_event: OnEvent) -> Completion:
        """Return the complete answer; raises `ProviderError`, and any error of *on_event* unchanged."""
        count = _UsageCounter(self.meter, self.max_tokens)
        try:
            return await self._answer(on_event, count)
        except BaseException as error:
            # Also after a cancellation: the provider charges for what it has streamed.
            usage = count.cut_off(self.reader.usage, error, ended=self.reader.ended)
            if isinstance(error, ProviderError):
                error.usage = usage
            raise

    async def _answer(self, on_event: OnEvent, count: _UsageCounter) -> Completion:
        began = anyio.current_time()
        first = min(self.timeouts.first_content, self.timeouts.total)
        with anyio.CancelScope(deadline=began + first) as scope:
            async with aclosing(self._deltas(scope, count)) as deltas:
                async for delta in deltas:
                    await on_event(delta)
        with typed_errors(self.provider, self.model, self.now):
            if self.reader.told_end or not scope.cancelled_caught:
                count.over = True
                return self.reader.finish()
            waited = anyio.current_time() - began
            raise ModelTimeout(f"no content for too long, given up after {waited:.1f} s")

    async def _deltas(
        self, scope: anyio.CancelScope, count: _UsageCounter
    ) -> AsyncGenerator[TextDelta | ThinkingDelta | TextReset, None]:
        count.sent_at = count.since = anyio.current_time()
        end = count.since + self.timeouts.total
        with typed_errors(self.provider, self.model, self.now):
            async with self.open() as pieces:
                count.answered = True
                async for events in self._to_the_end(pieces):
                    was_told = self.reader.told_end
                    said = self._contents(events, count)
                    if not said and not self.reader.told_end:
                        continue
                    latest = scope.deadline if was_told and not said else math.inf
                    for content in said:
                        scope.deadline, shown_at = math.inf, count.since
                        for delta in _deltas_of(content):
                            yield delta
                        count.since = anyio.current_time()
                        listened = count.since - shown_at
                        end += listened if listened > LISTENING else 0
                    now = count.since if said else anyio.current_time()
                    scope.deadline = min(end, latest, now + self._patience())

    def _contents(self, events: Iterable[JsonEvent], count: _UsageCounter) -> list[Content]:
        """Return what the events of a piece say, adjacent texts as one."""
        said: list[Content] = []
        now = anyio.current_time()
        for event in events:
            wrote_text, content = self.reader.writing, self.reader.feed(event)
            count.take(content, self.reader.usage, now, plain=wrote_text and isinstance(content, str))
            if isinstance(content, str) and said and isinstance(said[-1], str):
                said[-1] += content
            elif content is not None:
                said.append(content)
        return said

    def _patience(self) -> float:
        """Return the longest silence from now, in seconds."""
        if self.reader.told_end:
            return CLOSING_S if self.reader.usage.output else AFTERWORD_S
        return self.timeouts.idle if self.reader.writing else self.timeouts.first_content

    async def _to_the_end(self, pieces: Pieces) -> AsyncIterator[Iterable[JsonEvent]]:
        """Yield the pieces. After the end was told, a failure is no failure of the answer."""
        try:
            async for piece in pieces:
                yield self._of_piece(piece)
        except Exception:
            if not self.reader.told_end:
                raise

    def _of_piece(self, piece: Iterable[JsonEvent]) -> Iterator[JsonEvent]:
        try:
            yield from piece
        except Exception:
            if not self.reader.told_end:
                raise


def _deltas_of(content: Content) -> Iterator[TextDelta | ThinkingDelta | TextReset]:
    match content:
        case ThinkingDelta():
            yield content
        case str(text) | Restart(text):
            if isinstance(content, Restart):
                yield TextReset()
            if text:
                yield TextDelta(text)
