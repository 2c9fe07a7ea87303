"""How an answer is read: a delta at a time, within its time limits, and every failure typed.

Silence means no *content*: pings and keep-alives keep a socket busy for ever and say nothing about the model.

| while                                                       | silence may last |
| no visible text is being written: prompt, thinking, a tool call | ``first_content`` |
| visible text is being written                               | ``idle``         |
| in any case, the whole call                                 | ``total``        |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from bot.errors import ModelTimeout, ModelUnavailable, ProviderError
from bot.llm.classify import Fault, classify, failure_of
from bot.llm.model import Completion, Usage
from threads.errors import BotError
from threads.model import OnEvent, TextDelta

if TYPE_CHECKING:
    import httpx2

Event = TypeVar("Event")
Event_contra = TypeVar("Event_contra", contravariant=True)
Event_co = TypeVar("Event_co", covariant=True)


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Limits in seconds: to connect, without content before visible text, without content inside it, in all."""

    connect: float = 5
    first_content: float = 300
    idle: float = 60
    total: float = 600


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

    def feed(self, event: Event_contra) -> str | None:
        """Take an event; return the visible text it adds, or None if it carries no content at all."""
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


@dataclass(frozen=True, slots=True)
class Call(Generic[Event]):
    """One request to one model: opens the stream, drives the reader, tells the listener."""

    provider: str
    model: str
    open: Open[Event]
    reader: Reader[Event]
    timeouts: StreamTimeouts
    now: Callable[[], datetime] | None = None

    async def answer(self, on_event: OnEvent) -> Completion:
        """Return the whole answer; raises `ProviderError`, and whatever *on_event* raises, unchanged."""
        began = anyio.current_time()
        with anyio.CancelScope(
            deadline=began + min(self.timeouts.first_content, self.timeouts.total)
        ) as scope:
            async with aclosing(self._deltas(scope, began + self.timeouts.total)) as deltas:
                async for text in deltas:
                    await on_event(TextDelta(text))
            with self._typed():
                return self.reader.finish()
        with self._typed():
            waited = anyio.current_time() - began
            raise ModelTimeout(f"no content for too long, given up after {waited:.1f} s")

    async def _deltas(self, scope: anyio.CancelScope, end: float) -> AsyncGenerator[str, None]:
        with self._typed():
            async with await self.open() as stream:
                await _expect_events(stream.response)
                async for event in stream:
                    text = self.reader.feed(event)
                    if text is None:
                        continue
                    if text:
                        scope.deadline = end  # The listener's time is not the model's silence.
                        yield text
                    patience = self.timeouts.idle if self.reader.writing else self.timeouts.first_content
                    scope.deadline = min(end, anyio.current_time() + patience)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Let only `BotError` out, with the model's name and the tokens already paid for in its fields."""
        try:
            yield
        except BotError as error:
            self._note(error)
            raise
        except Exception as error:  # noqa: BLE001
            # The edge to foreign code: SDKs raise their own classes, raw httpx2 ones and plain ValueErrors.
            failure = classify(error, self.now() if self.now else None)
            self._note(failure)
            try:
                raise failure from error
            finally:
                del (
                    failure
                )  # or it and this frame keep each other, and all of the broken stream, until a collection

    def _note(self, error: BotError) -> None:
        usage = self.reader.usage
        error.fields |= {"provider": self.provider, "model": self.model}
        if isinstance(error, ProviderError) and usage != Usage():
            error.fields |= {
                "input_tokens": usage.input,
                "output_tokens": usage.output,
                "cache_read_tokens": usage.cache_read,
                "cache_write_tokens": usage.cache_write,
            }


async def _expect_events(response: httpx2.Response) -> None:
    """Refuse a 200 that is no event stream: a proxy's page, or an error some gateways send with status 200."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("text/html", "application/json"):
        return
    await response.aread()
    body = response.json() if kind == "application/json" else None
    if isinstance(body, dict) and body.get("error"):
        raise failure_of(Fault(response.text, body, headers=dict(response.headers)))
    raise ModelUnavailable(f"status 200 with {kind} in place of an event stream: {response.text[:200]}")
