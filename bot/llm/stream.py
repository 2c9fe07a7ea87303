"""How an answer is read: a delta at a time, within its limits, counted, and every failure typed.

Silence means no *content*: pings and keep-alives keep a socket busy for ever and say nothing about the model.

| while                                                           | silence may last |
| no connection is made yet                                       | ``connect``, see `bot.llm.http` |
| no visible text is being written: prompt, thinking, a tool call | ``first_content`` |
| visible text is being written                                   | ``idle``         |
| the listener has a delta                                        | for ever: its time is not the model's |
| in any case, the whole call less the listener's time            | ``total``        |

The listener's time with a delta is its own from `LISTENING` on; less is counted, as a flood of deltas adds it up.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from bot.errors import BadRequest, ModelTimeout, ModelUnavailable, OutputInvalid, ProviderError
from bot.llm.classify import classify
from bot.llm.model import Completion, Usage, unmetered
from bot.llm.returned import failure_in
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


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Limits in seconds: to connect, without content before visible text, without content inside it, in all."""

    connect: float = 5
    first_content: float = 300
    idle: float = 60
    total: float = 600


@dataclass(frozen=True, slots=True)
class Unseen:
    """Content that is shown to nobody, such as a call's arguments; ``length`` in characters."""

    length: int


Content = str | ThinkingDelta | Unseen
"""What an event adds: visible text, readable thinking, or something unseen; a blank text is `Unseen` too."""


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
    """What has come so far: events, characters of content, and the usage that the meter was told of."""

    meter: Callable[[Usage], None]
    began: bool = False
    length: int = 0
    usage: Usage | None = None

    def take(self, content: Content | None, usage: Usage) -> None:
        self.began = True
        match content:
            case str():
                self.length += len(content)
            case ThinkingDelta(text):
                self.length += len(text)
            case Unseen(length):
                self.length += length
        self.tell(usage)
        if self.length > MAX_CONTENT:
            raise OutputInvalid(f"given up: the answer is longer than {MAX_CONTENT} characters")

    def tell(self, usage: Usage) -> None:
        if usage != self.usage:
            self.usage = usage
            self.meter(usage)

    def cut_off(self, usage: Usage) -> Usage | None:
        """Count an answer that did not get whole: at least what was streamed. None when nothing ever came.

        A prompt of 0 is one that the provider had not counted yet: OpenAI's do so at the very end.
        """
        if not self.began and usage == Usage():
            return None
        streamed = math.ceil(self.length / CHARACTERS_PER_TOKEN)
        counted = replace(usage, output=max(usage.output, streamed))
        self.tell(counted)
        return counted


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
    now: Callable[[], datetime] | None = None
    meter: Callable[[Usage], None] = unmetered
    prepare: Callable[[], Awaitable[object]] = _nothing

    async def answer(self, on_event: OnEvent) -> Completion:
        """Return the whole answer; raises `ProviderError`, and whatever *on_event* raises, unchanged."""
        count = _Count(self.meter)
        try:
            return await self._answer(on_event, count)
        except BaseException as error:
            # Also when cancelled: what was streamed by then is paid for.
            usage = count.cut_off(self.reader.usage)
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
            async with await self.open() as stream:
                async for event in await _events(stream):
                    content = self.reader.feed(event)
                    count.take(content, self.reader.usage)
                    if content is None:
                        continue
                    if content and not isinstance(content, Unseen):
                        scope.deadline, shown_at = math.inf, anyio.current_time()
                        yield content if isinstance(content, ThinkingDelta) else TextDelta(content)
                        listened = anyio.current_time() - shown_at
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
    """Return the events; a whole chat completion reads like one, from a server that does not stream.

    Refuses any other 200: a proxy's page, or an error some gateways send with status 200.
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
    if kind == "text/html":
        raise ModelUnavailable(f"status 200 with {kind} in place of an event stream: {page[:200]!r}")
    answer = json.loads(page)
    if failure := failure_in(answer, dict(response.headers)):
        raise failure
    if "choices" not in answer:
        raise BadRequest("the server does not stream: it sent a whole answer in place of an event stream")
    return _once(answer)


async def _once(event: Event) -> AsyncIterator[Event]:
    yield event
