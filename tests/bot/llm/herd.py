"""A provider that is down and comes back, and a herd of calls to it, all in virtual time."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

import anyio

from bot.config.settings import LlmRetry
from bot.llm.policies.gate import Gate, GatedModel
from bot.llm.policies.queue import CallQueue
from bot.llm.policies.retry import RetryingModel
from bot.ports.errors import ModelUnavailable, ProviderError, RateLimited
from bot.ports.model import Completion, Model, Request, Usage
from tests.tool_context import unheard
from threads.model import Message, OnEvent, Text

OUTAGE_S = 300.0
Refuse = Callable[[], ProviderError]


def refusals(*kinds: Refuse) -> Refuse:
    """Return what gives one kind after the other."""
    turn = cycle(kinds)
    return lambda: next(turn)()


LIMITED: Refuse = partial(RateLimited, "429")
OVERLOADED: Refuse = partial(ModelUnavailable, "529", status=529)
LIMITED_20: Refuse = partial(RateLimited, "429", retry_after=20)
OVERLOADED_20: Refuse = partial(ModelUnavailable, "529", status=529, retry_after=20)
MIXED = (LIMITED, OVERLOADED_20, OVERLOADED, LIMITED_20)


@dataclass
class Provider:
    """Refuses everything for *outage_s*, then serves *pace* calls in any second, each in *latency_s*."""

    refuse: Refuse
    outage_s: float = OUTAGE_S
    pace: int = 25
    latency_s: float = 1.0
    name: str = "fake/one"
    asked: list[float] = field(default_factory=list)
    asked_by: dict[int, list[float]] = field(default_factory=dict)
    let_in: list[tuple[float, int]] = field(default_factory=list)
    """When who was served. Those of one instant came in any order: that is the loop's."""
    served: deque[float] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.opens_at = anyio.current_time() + self.outage_s

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        now = anyio.current_time()
        self.asked.append(now)
        self.asked_by.setdefault(int(request.cache_key), []).append(now)
        while self.served and self.served[0] <= now - 1.0:
            self.served.popleft()
        if now < self.opens_at or len(self.served) >= self.pace:
            await anyio.sleep(0.05)
            raise self.refuse()
        self.served.append(now)
        self.let_in.append((now, int(request.cache_key)))
        await anyio.sleep(self.latency_s)
        return Completion(Message("assistant", (Text("ok"),), model=self.name), Usage(100, 50), "end")


@dataclass(frozen=True)
class Fate:
    """How one call ended: its error, or None when it was answered; after how many seconds."""

    error: ProviderError | None
    waited_s: float


@dataclass(frozen=True)
class Herd:
    """What became of all calls, in the order of their arrival."""

    fates: Sequence[Fate]
    provider: Provider

    @property
    def answered(self) -> int:
        return sum(fate.error is None for fate in self.fates)

    @property
    def told(self) -> list[ProviderError]:
        return [fate.error for fate in self.fates if fate.error is not None]

    @property
    def calls_per_answer(self) -> float:
        return len(self.provider.asked) / max(1, self.answered)

    @property
    def in_order(self) -> bool:
        """Whether all first went out in the order of their arrival, and those whom the provider never refused were
        answered in it. The order of one instant is the loop's."""
        asked = [n for _, n in sorted((times[0], n) for n, times in self.provider.asked_by.items())]
        once = [n for _, n in sorted(self.provider.let_in) if len(self.provider.asked_by[n]) == 1]
        return asked == sorted(asked) and once == sorted(once)

    def peak(self, since: float = 0.0) -> int:
        """Return the most calls in any one second, from *since* seconds after the end of the outage on."""
        times = [at for at in self.provider.asked if at >= self.provider.opens_at + since]
        first = most = 0
        for last, at in enumerate(times):
            while times[first] <= at - 1.0:
                first += 1
            most = max(most, last - first + 1)
        return most

    @property
    def drained_s(self) -> float:
        """How long after the outage the last call was made."""
        return max(self.provider.asked) - self.provider.opens_at


async def stampede(provider: Provider, model: Model, arrivals: Sequence[float]) -> Herd:
    """Make a call at each of *arrivals*, in seconds from now and in order; wait for all of them."""
    start = anyio.current_time()
    fates: dict[int, Fate] = {}

    async def call(n: int) -> None:
        began, error = anyio.current_time(), None
        try:
            await model.complete(Request("", (), cache_key=str(n)), unheard)
        except ProviderError as failure:
            error = failure
        fates[n] = Fate(error, anyio.current_time() - began)

    async with anyio.create_task_group() as threads:
        for n, at in enumerate(arrivals):
            await anyio.sleep_until(start + at)
            threads.start_soon(call, n)
            await anyio.lowlevel.checkpoint()
    return Herd([fates[n] for n in range(len(arrivals))], provider)


OPEN = {
    "max_parallel": 40, "requests_per_minute": None, "tokens_per_minute": None,
    "shrink": True, "threshold": 1, "max_wait_s": 120.0,
}  # fmt: skip
"""The settings of a queue that holds nobody up."""


def gated(provider: Model, policy: LlmRetry = LlmRetry(), seed: int = 1, **settings: object) -> RetryingModel:
    """Return *provider* behind the real wrappers."""
    gate = Gate(CallQueue(**(OPEN | settings)))
    return RetryingModel(GatedModel(provider, gate, lambda _: 150), policy, random.Random(seed).random, gate)
