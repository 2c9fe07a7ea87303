"""How an answer is read: a delta at a time, within its limits, counted, and every failure typed.

Silence means no *content*: pings and keep-alives keep a socket busy for ever and say nothing about the model.

| while                                                           | silence may last |
| no connection is made yet                                       | ``connect``, see `bot.llm.adapters.http_client` |
| no visible text is being written: prompt, thinking, a tool call | ``first_content`` |
| visible text is being written                                   | ``idle``         |
| the listener has a delta                                        | for ever: its time is not the model's |
| in any case, the whole call less the listener's time            | ``total``        |

The listener's time with a delta is its own from `LISTENING` on; less is counted, as a flood of deltas adds it up.

A call that is cut is charged for what can have been written by then, as no provider tells:

| what                                                         | counts for                            |
| the prompt                                                   | what the provider told, see `metering`          |
| text that was streamed                                       | at least its tokens, see `max_tokens_in` |
| time between two pieces of text, and none in the listener    | nothing more: it is in the second     |
| all other time since the request went out, and `IN_FLIGHT_S` | `TOKENS_PER_SECOND`                   |
| all together                                                 | never more than ``max_tokens``        |
| a call refused, or not connected                             | nothing                               |
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio

from bot.config.settings import StreamTimeouts
from bot.llm.classify import Fault, classify, failure_of
from bot.ports.errors import (
    BadRequest,
    ModelConnection,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    ProviderError,
)
from bot.ports.model import Completion, Usage, ignore_usage
from threads.errors import BotError
from threads.model import OnEvent, TextDelta, ThinkingDelta

if TYPE_CHECKING:
    import httpx2

Event = TypeVar("Event")
Event_contra = TypeVar("Event_contra", contravariant=True)
Event_co = TypeVar("Event_co", covariant=True)

MAX_CONTENT = 4_000_000
"""Characters of one answer, thinking and arguments included: some eight times what a model may write today."""

LISTENING = 0.1
"""Seconds with one delta from which a listener is waiting for something, not just passing it on."""

MAX_PAGE = 1_000_000
"""Bytes read of a body that is no event stream, to see what it says."""

CHARACTERS_PER_TOKEN = 3
"""Fewer than in any common text, so that what nobody counted is rather counted too high."""

TOKENS_PER_SECOND = 500
"""How fast a model may write what we do not see. The fastest that Anthropic, OpenAI and Google served in 2026 wrote
some 200 a second (medians of artificialanalysis.ai; kunalganglani.com/blog/llm-api-latency-benchmarks-2026). Special
hardware writes faster: what such a host has hidden when it is cut can be counted too low."""

IN_FLIGHT_S = 1.0
"""Seconds of writing that a cut can miss: text on its way to us, and until the provider notices that we are gone."""

COMMON = b"abcdefghijklmnopqrstuvwxyz "
"""Letters that a tokenizer joins: two and more of them make one token."""


def max_tokens_in(text: str) -> float:
    """Return more tokens than *text* has: one for two common letters, one for every other byte.

    Prose has half as many, random letters and digits about as many.
    """
    data = text.encode("utf-8", "surrogatepass")
    rare = len(data.translate(None, COMMON))
    return rare + (len(data) - rare) / 2


@dataclass(frozen=True, slots=True)
class HiddenContent:
    """Content that is shown to nobody, such as a call's arguments; ``length`` in characters."""

    length: int


Content = str | ThinkingDelta | HiddenContent
"""What an event adds: visible text, readable thinking, or something unseen; a blank text is `HiddenContent` too."""


class Reader(Protocol[Event_contra]):
    """A state machine from one provider's events to a `Completion`; it does no I/O and knows no time."""

    @property
    def writing(self) -> bool:
        """Whether visible text is being written at the moment."""
        ...

    @property
    def usage(self) -> Usage:
        """What the provider has counted so far, also when the answer never gets whole."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the model has stopped writing: what is counted of its answer then is final."""
        ...

    def feed(self, event: Event_contra) -> Content | None:
        """Take an event; return the content it adds, or None if it carries none at all."""
        ...

    def finish(self) -> Completion:
        """Return the whole answer; raises `ProviderError` when the terminal event was not seen."""
        ...


class EventStream(Protocol[Event_co]):
    """What both SDKs return for ``stream=True``."""

    @property
    def response(self) -> httpx2.Response: ...

    def __aiter__(self) -> AsyncIterator[Event_co]: ...


Open = Callable[[], Awaitable[AbstractAsyncContextManager[EventStream[Event]]]]


@dataclass(slots=True)
class _Count:
    """What has come so far: events, characters of content, and the usage that the meter was told of.

    ``answered`` is a stream that was opened, ``over`` one that ended in order. ``plain_s`` are the seconds that hid
    nothing, ``since`` is when the wait for the next content began.
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

    def send(self) -> None:
        self.sent_at = self.since = anyio.current_time()

    def take(self, content: Content | None, usage: Usage, *, plain: bool) -> None:
        """Take an event's content in; *plain* is text that goes on with text."""
        self.began = True
        match content:
            case str(text) | ThinkingDelta(text):
                self.length += len(text)
                self.most_streamed += max_tokens_in(text)
            case HiddenContent(length):
                self.length += length
        if content is not None:
            now = anyio.current_time()
            self.plain_s += now - self.since if plain else 0
            self.since = now
        self.tell(usage)
        if self.length > MAX_CONTENT:
            raise OutputInvalid(f"given up: the answer is longer than {MAX_CONTENT} characters")

    def tell(self, usage: Usage) -> None:
        if usage != self.usage:
            self.usage = usage
            self.meter(usage)

    def cut_off(self, usage: Usage, error: BaseException, *, ended: bool) -> Usage | None:
        """Count an answer that did not get whole, and tell the meter; None when nothing ever came.

        A prompt of 0 is one that the provider had not counted yet: OpenAI's do so at the very end.
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
        """Say whether a call of which no event came cost nothing: it failed before the provider took it up.

        Providers charge nobody for an error, but for a client that went away (novita.ai/docs/guides/llm-billing).
        """
        match error:
            case ModelTimeout():
                causes = (error.__cause__, error.__cause__ and error.__cause__.__cause__)
                return "status" in error.fields or "ConnectTimeout" in {type(why).__name__ for why in causes}
            case ModelConnection():
                return not self.answered
            case ProviderError():
                return not self.over
        return False


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Call(Generic[Event]):
    """One request to one model: opens the stream, drives the reader, tells the listener and the meter.

    ``prepare`` runs before the clock does: the time that an SDK takes to be imported is not the model's silence.
    """

    provider: str
    model: str
    open: Open[Event]
    reader: Reader[Event]
    timeouts: StreamTimeouts
    max_tokens: int
    now: Callable[[], datetime] | None = None
    meter: Callable[[Usage], None] = ignore_usage
    prepare: Callable[[], Awaitable[object]] = _nothing

    async def answer(self, on_event: OnEvent) -> Completion:
        """Return the whole answer; raises `ProviderError`, and whatever *on_event* raises, unchanged."""
        count = _Count(self.meter, self.max_tokens)
        try:
            return await self._answer(on_event, count)
        except BaseException as error:
            # Also when cancelled: what was streamed by then is paid for.
            usage = count.cut_off(self.reader.usage, error, ended=self.reader.ended)
            if isinstance(error, ProviderError):
                error.usage = usage
            raise

    async def _answer(self, on_event: OnEvent, count: _Count) -> Completion:
        with self._typed():
            await self.prepare()
        began = anyio.current_time()
        first = min(self.timeouts.first_content, self.timeouts.total)
        with anyio.CancelScope(deadline=began + first) as scope:
            async with aclosing(self._deltas(scope, count)) as deltas:
                async for delta in deltas:
                    await on_event(delta)
            count.over = True
            with self._typed():
                return self.reader.finish()
        with self._typed():
            waited = anyio.current_time() - began
            raise ModelTimeout(f"no content for too long, given up after {waited:.1f} s")

    async def _deltas(
        self, scope: anyio.CancelScope, count: _Count
    ) -> AsyncGenerator[TextDelta | ThinkingDelta, None]:
        end = anyio.current_time() + self.timeouts.total
        with self._typed():
            count.send()
            async with await self.open() as stream:
                events = await _events(stream)
                count.answered = True
                async for event in events:
                    wrote_text = self.reader.writing
                    content = self.reader.feed(event)
                    count.take(content, self.reader.usage, plain=wrote_text and isinstance(content, str))
                    if content is None:
                        continue
                    if content and not isinstance(content, HiddenContent):
                        scope.deadline, shown_at = math.inf, anyio.current_time()
                        yield content if isinstance(content, ThinkingDelta) else TextDelta(content)
                        count.since = anyio.current_time()
                        listened = count.since - shown_at
                        end += listened if listened > LISTENING else 0
                    patience = self.timeouts.idle if self.reader.writing else self.timeouts.first_content
                    scope.deadline = min(end, anyio.current_time() + patience)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Let only `BotError` out, with the model's name in its fields."""
        try:
            yield
        except BotError as error:
            error.fields |= {"provider": self.provider, "model": self.model}
            raise
        except Exception as error:  # noqa: BLE001
            # The edge to foreign code: SDKs raise their own classes, raw httpx2 ones and plain ValueErrors.
            failure = classify(error, self.now() if self.now else None)
            failure.fields |= {"provider": self.provider, "model": self.model}
            try:
                raise failure from error
            finally:
                # Or it and this frame keep each other, and all of the broken stream, until a collection.
                del failure


async def _events(stream: EventStream[Event]) -> AsyncIterable[Event]:
    """Return the events. A whole chat completion, from a server that does not stream, is one event.

    Raises `ProviderError` for any other body of a 200: a proxy's page, or an error that a gateway sends like this.
    """
    response = stream.response
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/html", "application/json"):
        return stream
    page = b""
    async for piece in response.aiter_bytes():
        page = (page + piece)[:MAX_PAGE]
        if len(page) == MAX_PAGE:
            break
    answer: Any = json.loads(page) if kind == "application/json" else None
    body = answer if isinstance(answer, dict) else {}
    if error := body.get("error"):
        text = error.get("message") if isinstance(error, dict) else error
        raise failure_of(Fault(str(text), body, headers=dict(response.headers)))
    if body.get("choices"):
        return _once(answer)
    if "content" in body or "output" in body:
        raise BadRequest("the server does not stream: it sent a whole answer in place of an event stream")
    raise ModelUnavailable(f"status 200 with {kind} in place of an event stream: {page[:200]!r}")


async def _once(event: Event) -> AsyncIterator[Event]:
    yield event
