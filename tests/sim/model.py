"""A language model whose answers name the messages they answer, and which fails in every way that models do.

An answer lists the marks of all messages since the last answer in its request, so an answer in the wrong thread, to
the wrong message, or from a history that lost something, is visible in the post.
"""

from __future__ import annotations

import anyio
from pydantic import JsonValue

from bot.ports.errors import BadRequest, ContentPolicy, ModelUnavailable, ProviderError, RateLimited
from bot.ports.model import Completion, Request, Stop, Usage
from bot.ports.tool import Arguments, ToolContext
from tests.one_model import OneModel
from threads.errors import BotError
from threads.model import Message, OnEvent, Resumed, Text, TextDelta, ToolCall, Waiting

from .fate import Fate
from .plan import STRANGE, Plan
from .platform import tokens
from .record import Record

PAUSED = "let me think"


class ModelBug(Exception):
    """Stands for what nobody has a name for."""


class SimModel(OneModel):
    name = "sim/one"
    passing: tuple[type[ProviderError], ...] = (ModelUnavailable, RateLimited)
    begins = 0.2
    """How often a call fails, if it does, in the middle of its answer."""
    lasting: tuple[type[ProviderError], ...] = (BadRequest, ContentPolicy)

    def __init__(self, plan: Plan, fate: Fate, record: Record) -> None:
        self._rates, self._fate, self._record, self._rng = plan.rates.model, fate, record, fate.rng
        self.calm = False
        self._calls = 0

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        rng = self._rng
        if self._fate.step(f"model {request.cache_key} {len(request.messages)}"):
            self._fate.die()
        self._record.calls += 1
        self._check(request)
        await anyio.sleep(rng.choice((0.0, 0.05, 1.0, 4.0)) * rng.random())
        if self._happens("waits"):
            await on_event(Waiting("rate limited", 5, 1, 6))
            await anyio.sleep(rng.uniform(0, 10))
            await on_event(Resumed())
        await self._fail(request, on_event)
        if request.tools and self._happens("tools"):
            return await self._call_tools(request, on_event)
        if self._happens("empty"):
            return self._completion(request, "", "end")
        answer = self._text(request)
        await on_event(TextDelta(answer))
        await anyio.sleep(rng.uniform(0, 0.5))
        if request.tools and self._happens("pause"):
            return self._completion(request, PAUSED, "pause")
        return self._completion(request, answer, "length" if self._happens("length") else "end")

    async def _fail(self, request: Request, on_event: OnEvent) -> None:
        rng = self._rng
        if began := rng.random() < self.begins:
            await on_event(TextDelta("half an ans"))
        if self._happens("error"):
            raise self._error(self.passing, request, began=began)
        if self._happens("terminal"):
            raise self._error(self.lasting, request, began=began)
        if self._happens("bug"):
            raise rng.choice((ModelBug, BotError))("secret payload")
        if self._happens("hang"):
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(rng.choice((0.0, 0.0, 3.0)))

    def _error(
        self, kinds: tuple[type[ProviderError], ...], request: Request, *, began: bool
    ) -> ProviderError:
        return self._rng.choice(kinds)("secret payload")

    def _text(self, request: Request) -> str:
        return f"{self._rng.choice(STRANGE)} {self._words(request)}"

    def _words(self, request: Request) -> str:
        return f"answer to {' '.join(open_marks(request))}"

    def _usage(self, request: Request, answer: str) -> Usage:
        return Usage(1, 1)

    def _completion(self, request: Request, text: str, stop: Stop) -> Completion:
        message = Message("assistant", (Text(text),), model=self.name)
        return Completion(message, self._usage(request, text), stop)

    async def _call_tools(self, request: Request, on_event: OnEvent) -> Completion:
        if self._rng.random() < 0.5:
            await on_event(TextDelta("let me look"))
        count = self._rng.choice((1, 1, 2, 3))
        blocks = [ToolCall(self._id(), "peek", {"n": self._rng.randrange(4)}) for _ in range(count)]
        message = Message("assistant", tuple(blocks), model=self.name)
        return Completion(message, self._usage(request, "call " * 4 * count), "tool_calls")

    def _id(self) -> str:
        self._calls += 1
        return f"c{self._calls % 7}"

    def _happens(self, what: str) -> bool:
        rate = self._rates[what]
        return bool(rate) and not self.calm and self._rng.random() < rate

    def _check(self, request: Request) -> None:
        """A request must be one that a provider takes, and hold nothing of another thread."""
        place = int(request.cache_key.rsplit(":", 1)[1].split(".")[0])
        pending: list[str] = []
        sources: list[str] = []
        for message in request.messages:
            results = [result.call_id for result in message.results]
            if results != pending:
                self._record.violations.append(f"{request.cache_key}: calls {pending}, results {results}")
            pending = [call.id for call in message.calls]
            if any(mark[0] != place for mark in tokens(message.text)):
                self._record.violations.append(f"{request.cache_key} was shown {message.text!r}")
            if message.source and message.role == "user":
                sources.append(message.source)
        if pending:
            self._record.violations.append(f"{request.cache_key}: calls without results {pending}")
        last = request.messages[-1]
        if last.role != "user" and last.text != PAUSED:
            self._record.violations.append(f"{request.cache_key}: a request that ends with {last.text!r}")
        if len(sources) != len(set(sources)):
            self._record.violations.append(f"{request.cache_key}: a message twice in {sources}")


def open_marks(request: Request) -> list[str]:
    """Return the marks of the messages that no answer in the request covers yet."""
    found: list[str] = []
    for message in request.messages:
        if message.role == "user":
            found += [f"tk{a}x{b}x{c}z" for a, b, c in tokens(message.text)]
        elif tokens(message.text):
            found = []
    return found


class PeekArguments(Arguments):
    n: int


class Peek:
    """A tool that takes a moment, or too long, or breaks."""

    name = "peek"
    description = "Look at something."
    risk = "read"
    arguments: type[Arguments] = PeekArguments

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue:
        rng = self._fate.rng
        if self._fate.step("tool"):
            self._fate.die()
        await anyio.sleep(rng.choice((0.0, 0.1, 3.0)) * rng.random())
        if rng.random() < 0.1:
            raise ModelBug("secret payload")
        if rng.random() < 0.02:
            await anyio.sleep_forever()
        return {"n": rng.randrange(100)}
