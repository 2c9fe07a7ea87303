"""A hung, a crashing, a flooding and a failing thread among others: by count and by order, never by the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import anyio
import pytest

from bot.config.settings import LlmRetry
from bot.llm.classify import Fault, failure_of
from bot.ports.errors import ModelTimeout, ModelUnavailable, ProviderError, RateLimited
from bot.ports.model import Completion, Usage
from tests.bot.llm.herd import gated
from tests.one_model import OneModel, Only
from tests.world import Platform, message, running, says
from threads import wording
from threads.model import Author, ThreadId, TurnLimits, Waiting

OTHERS = range(197)
MAILBOX = 20
FLOOD = 200


def place(name: object) -> ThreadId:
    return ThreadId("fake", "W", f"C{name}", "1.0")


def sent(name: object, n: int = 0, text: str = "hello"):
    return message(f"-{name}-{n}", text=text, thread=place(name), author=Author(f"U{name}"))


class Poisoned(OneModel):
    """A model that hangs, crashes or dawdles for three threads and answers the others; it keeps who was served."""

    name = "fake/one"

    def __init__(self) -> None:
        self.served: list[str] = []
        self.inside = self.most_inside = 0
        self.hung, self.let_go = anyio.Event(), anyio.Event()

    async def complete(self, request, on_event):
        thread = ThreadId.parse(request.cache_key).channel
        self.served.append(thread)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            if thread == "Chung":
                self.hung.set()
                await anyio.sleep_forever()
            if thread == "Cflood":
                await self.let_go.wait()
            if thread == "Ccrash":
                raise ZeroDivisionError("/secret/path")
            await anyio.lowlevel.checkpoint()
        finally:
            self.inside -= 1
        return Completion(says(f"ok {thread}"), Usage(), "end")


async def tell_all(bot, events) -> None:
    async with anyio.create_task_group() as people:
        for event in events:
            people.start_soon(bot.orchestrator.receive, event)


async def test_three_bad_threads_cost_the_197_others_nothing_but_their_own_slots(tmp_path):
    platform, model = Platform(), Poisoned()
    async with running(tmp_path, platform, model, limits=TurnLimits(running_turns=3, mailbox=MAILBOX)) as bot:
        await bot.orchestrator.receive(sent("hung"))
        await model.hung.wait()
        await tell_all(bot, [sent("flood", n) for n in range(FLOOD)])
        await tell_all(bot, [sent("crash", n) for n in range(10)])
        others = [sent(name) for name in OTHERS]
        await tell_all(bot, others)
        await platform.settled(*(event.id for event in others), *(sent("crash", n).id for n in range(10)))

        assert {platform.outcomes[event.id] for event in others} == {"answered"}
        answers = Counter(post.thread for post in platform.posts)
        assert all(answers[event.thread] == 1 for event in others)
        assert all(
            post.text == f"ok {post.thread.channel}" for post in platform.posts if post.kind == "reply"
        )
        assert model.most_inside == 3
        assert Counter(model.served)["Chung"] == Counter(model.served)["Cflood"] == 1
        assert sent("hung").id not in platform.outcomes


class FailingForOne(OneModel):
    """A provider that fails every request of one thread, and answers the others at once."""

    name = "fake/one"

    def __init__(self, error: Callable[[], ProviderError]) -> None:
        self.error, self.asked = error, Counter[str]()
        self.failed = anyio.Event()

    async def complete(self, request, on_event):
        thread = ThreadId.parse(request.cache_key).channel
        self.asked[thread] += 1
        if thread == "Cfail":
            self.failed.set()
            raise self.error()
        return Completion(says(f"ok {thread}"), Usage(), "end")


def too_large() -> ProviderError:
    return failure_of(Fault("Request too large: tokens per min (TPM): Limit 1, Requested 2", {}, 429))


@pytest.mark.parametrize(
    "error",
    [
        partial(ModelUnavailable, "529", status=529),
        partial(ModelUnavailable, "529", status=529, retry_after=60),
        ModelTimeout,
        partial(RateLimited, "429"),
        too_large,
    ],
    ids=["529", "529 with Retry-After", "time-out", "429", "429 of the request alone"],
)
@pytest.mark.parametrize("policy", [LlmRetry(), LlmRetry(max_retries=0)], ids=["it retries", "it gives up"])
async def test_a_thread_whose_requests_always_fail_neither_delays_nor_diverts_another(
    tmp_path, error, policy
):
    """An open circuit or a stopped gate would let them wait for seconds, or have another model answer."""
    platform, provider = Platform(), FailingForOne(error)
    model = gated(provider, policy)
    bad, others = [sent("fail", n) for n in range(3)], [sent(name) for name in range(199)]
    async with running(tmp_path, platform, Only(model)) as bot:
        await tell_all(bot, bad)
        await provider.failed.wait()
        if not policy.max_retries:
            await platform.settled(*(event.id for event in bad))
        for event in others:
            assert model.gate.unavailable(provider.name) is None
            await bot.orchestrator.receive(event)
            await platform.settled(event.id)
        assert model.gate.describe(provider.name) == ""
    assert {platform.outcomes[event.id] for event in others} == {"answered"}
    asked = {thread: times for thread, times in provider.asked.items() if thread != "Cfail"}
    assert set(asked.values()) == {1}
    waited = [shown for _, shown in platform.events if isinstance(shown, Waiting)]
    assert len(waited) <= len(bad) * policy.max_retries, "only the thread itself waits"


async def test_a_crashing_thread_is_told_so_and_nobody_else_notices(tmp_path):
    platform, model = Platform(), Poisoned()
    bad = [sent("crash", n) for n in range(5)]
    async with running(tmp_path, platform, model) as bot:
        await tell_all(bot, [*bad, sent("calm")])
        await platform.settled(sent("calm").id, *(event.id for event in bad))
    assert platform.outcomes.pop(sent("calm").id) == "answered"
    assert set(platform.outcomes.values()) == {"failed"}
    told = [post.text for post in platform.posts if post.thread == place("crash")]
    assert all(text.startswith(wording.UNKNOWN) for text in told)
    assert not any("secret" in text or "ZeroDivisionError" in text for text in told)


async def test_waiting_threads_are_served_in_turn_however_much_one_of_them_wants(tmp_path):
    platform, model = Platform(), Poisoned()
    model.let_go.set()
    flood = [sent("flood", n) for n in range(MAILBOX)]
    others = [sent(name) for name in range(10)]
    limits = TurnLimits(running_turns=1, mailbox=MAILBOX)
    async with running(tmp_path, platform, model, limits=limits) as bot:
        await tell_all(bot, [*flood, *others])
        await platform.settled(*(event.id for event in [*flood, *others]))
    last_other = max(index for index, thread in enumerate(model.served) if thread != "Cflood")
    assert model.served[:last_other].count("Cflood") <= 2
    assert [thread for thread in model.served if thread != "Cflood"] == [f"C{name}" for name in range(10)]
