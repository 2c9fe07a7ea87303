"""The promise of a hard limit: whatever happens, what the provider bills stays within it."""

import math
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.budget import ledger as ledger_module
from bot.budget.accounts import Account, Accounts, ReservedCall
from bot.budget.budgets import IN_FLIGHT_S, TOKENS_PER_SECOND, Budgets, Commit, Key, OverLimit, Pace, Policy
from bot.budget.ledger import Ledger
from bot.config.settings import Price, StreamTimeouts
from bot.llm.adapters.stream import Call, HiddenContent
from bot.llm.catalog import Catalog
from bot.llm.policies.metering import MeteredModel
from bot.ports.errors import ModelConnection, ProviderError
from bot.ports.model import Completion, Request, Usage
from tests.bot.budget.ledgers import Time, empty_disk, failing, opened, power_cut, reopened
from tests.explorer.model import ModelDisk, Sync, Write
from tests.sim.loop import virtual_loop
from tests.tool_context import unheard
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.model import Message, Text

PRICES = {"fake/one": Price(input=1.0, output=3.0, cache_read=0.1, cache_write=2.0)}
LONGEST = 4000
REASONED = 1000
"""Tokens of reasoning that the provider bills beyond those of the answer, at most."""
MOST = 2 * 30 + 3 * (LONGEST + REASONED)
DAYS = ["2026-11-29", "2026-11-30", "2026-12-01"]


class CheckedAccount(Account):
    """An account that shows which call went out last, and sees that it is charged what was billed or more."""

    last: ReservedCall
    bill: int = 0
    reserved: int = 0

    async def reserve(self, model: str, most: int, pace: Pace | None = None) -> ReservedCall:
        self.last, self.bill, self.reserved = await super().reserve(model, most, pace), 0, most
        return self.last

    def commit(self, opened: ReservedCall, usage: Usage, cost: int | None, outcome: str) -> None:
        assert cost is not None
        assert self.bill <= cost <= self.reserved == MOST, (
            f"{outcome}: {self.bill} billed, {cost} charged for {usage}"
        )
        super().commit(opened, usage, cost, outcome)


@dataclass
class WritingPeriod:
    """A time in which a model writes *tokens*, no more than `TOKENS_PER_SECOND`: text comes at its end, in pieces."""

    seconds: float
    tokens: int
    text: bool


@dataclass
class ModelStream:
    """Reader and stream in one: a model that writes on whether or not anybody reads, and breaks off at the end or not."""

    written: list[WritingPeriod]
    words: str
    prompt: Usage
    told_first: bool
    breaks_off: bool
    reasoned: int
    began: float = 0
    writing: bool = False
    ended: bool = False
    told_end: bool = False
    usage: Usage = field(default_factory=Usage)
    response: httpx2.Response = field(default_factory=lambda: httpx2.Response(200))

    @asynccontextmanager
    async def open(self):
        self.began = anyio.current_time()
        yield self

    async def __aiter__(self):
        yield [self.prompt if self.told_first else Usage()]
        due = self.began
        for part in self.written:
            due += part.seconds
            await anyio.sleep_until(due)
            pieces = [part.tokens // 2, part.tokens - part.tokens // 2]
            yield [self.words * tokens if part.text else HiddenContent(0) for tokens in pieces]
        if self.breaks_off:
            raise ModelConnection("reset")
        self.ended = self.told_end = True
        yield [replace(self.prompt, output=self.reasoned + sum(part.tokens for part in self.written))]

    def feed(self, event):
        if isinstance(event, Usage):
            self.usage = event
            return None
        self.writing = isinstance(event, str)
        return event or None

    def finish(self) -> Completion:
        return Completion(Message("assistant", (Text("x"),)), self.usage, "end")

    def so_far(self) -> int:
        """Return how many tokens are written by now, and in the time until the model notices that nobody listens."""
        left = anyio.current_time() - self.began + (0 if self.ended else NOTICED_S)
        tokens = float(self.reasoned)
        for part in self.written:
            tokens += part.tokens * min(1.0, max(0.0, left) / part.seconds)
            left -= part.seconds
        return math.floor(tokens)


NOTICED_S = 0.5
LONGEST_PART_S = IN_FLIGHT_S - NOTICED_S
"""Text is held back no longer than that: what is on its way and what is written unheard are a second together."""


@dataclass
class Provider:
    """Bills each call that it takes up: the prompt, and every token that it has written."""

    account: CheckedAccount
    rng: random.Random
    billed: dict[Key, int]
    name: str = "fake/one"

    def bill(self, usage: Usage) -> None:
        cost = usage.input + 2 * usage.cache_write + 3 * usage.output
        self.account.bill += cost
        for key in self.account.last.call.keys:
            self.billed[key] = self.billed.get(key, 0) + cost

    def answering(self) -> ModelStream:
        rng, written, left = self.rng, list[WritingPeriod](), LONGEST
        for _ in range(rng.randrange(1, 30)):
            text = rng.random() < 0.7
            seconds = rng.uniform(0.01, LONGEST_PART_S if text else 4)
            tokens = min(left, math.floor(seconds * TOKENS_PER_SECOND * rng.choice([0.2, 1, 1])))
            written.append(WritingPeriod(seconds, tokens, text))
            left -= tokens
        read = rng.randrange(30)
        prompt = Usage(rng.randrange(31 - read), 0, 0, read)
        words = rng.choice(["ab", "X", "7", "你"])
        reasoned = rng.choice([0, rng.randrange(REASONED), REASONED])
        return ModelStream(written, words, prompt, rng.random() < 0.5, rng.random() < 0.2, reasoned)

    async def complete(self, request: Request, on_event) -> Completion:
        rng, answering = self.rng, self.answering()

        @asynccontextmanager
        async def connect():
            await anyio.sleep(rng.random())
            if rng.random() < 0.1:
                raise ModelConnection("refused")
            self.bill(answering.prompt)
            async with answering.open() as events:
                yield events

        async def listen(event: object) -> None:
            if rng.random() < 0.1:
                await anyio.sleep(rng.random() * 3)

        limits = StreamTimeouts(first_content=3, idle=2, total=20)
        call = Call("fake", "one", connect, answering, limits, request.max_tokens, None, request.meter)
        try:
            return await call.answer(listen)
        finally:
            if answering.began:
                self.bill(Usage(output=answering.so_far()))


@dataclass
class Billing:
    """What the outside world knows: what was billed, and what people granted."""

    rng: random.Random
    limits: dict[str, int]
    days: dict[str, int]
    billed: dict[Key, int] = field(default_factory=dict)
    granted: dict[Key, int] = field(default_factory=dict)
    refused: int = 0

    def policy(self) -> Policy:
        """Return the limits of one place: those of everybody, and those of the scopes that cover it."""
        covering = self.rng.sample(sorted(self.days), self.rng.randrange(len(self.days) + 1))
        return Policy(True, 0.8, self.limits, {name: self.days[name] for name in covering})

    def check(self) -> None:
        limits = Policy(True, 0.8, self.limits, self.days)
        for key, cost in self.billed.items():
            if (limit := limits.limit(key)) is not None:
                allowed = limit + self.granted.get(key, 0)
                assert cost <= allowed, f"{key}: {cost} of {allowed}"

    async def caller(self, ledger: Ledger, accounts: Accounts, turn: str) -> None:
        rng = self.rng
        thread, user = rng.choice("tu"), rng.choice("ab")
        account = CheckedAccount(ledger, self.policy(), thread, user, turn)
        provider = Provider(account, rng, self.billed)
        model = MeteredModel(provider, account, Catalog({}, PRICES), lambda _: 30, REASONED)
        for _ in range(rng.randrange(1, 6)):
            await anyio.sleep(rng.random() * 3)
            with anyio.move_on_after(rng.choice([0.1, 1, 3, 6, 1000])):
                with suppress(ProviderError, StoreUnavailable):
                    try:
                        await model.complete(Request("", (), max_tokens=LONGEST), unheard)
                    except OverLimit as error:
                        self.refused += 1
                        if rng.random() < 0.3:
                            await self.grant(accounts, error)
            self.check()

    async def grant(self, accounts: Accounts, error: OverLimit) -> None:
        for shortage in error.shortages:
            amount = self.rng.randrange(1, 2 * MOST)
            self.granted[shortage.key] = self.granted.get(shortage.key, 0) + amount
            await accounts.account("", "", "").grant(shortage.key, amount, "admin")


class RunningTime(Time):
    """A clock that runs, and that a test may set to another day."""

    def __call__(self) -> datetime:
        return self.at + timedelta(seconds=anyio.current_time())


async def life(
    billing: Billing, disk: ModelDisk, time: Time, policy: Policy, seconds: float, n: int
) -> ModelDisk:
    """Run one process until it is killed; returns the disk as it was at that moment."""
    rng = billing.rng

    async def slow(function, *args):
        await anyio.sleep(rng.random() * 0.2)
        return function(*args)

    def faults(op):
        if isinstance(op, Write | Sync) and rng.random() < 0.05:
            raise OSError(5, "I/O error")
        return op

    ledger = reopened(disk, time, slow)
    disk.faults = faults
    accounts = Accounts(ledger, policy)

    async def clock() -> None:
        while True:
            await anyio.sleep(rng.random() * 5)
            time.set(f"{rng.choice(DAYS)}T23:59:59")

    async with background_tasks() as tasks:
        tasks.start_soon(ledger.run)
        tasks.start_soon(clock)
        for caller in range(rng.randrange(1, 8)):
            tasks.start_soon(
                billing.caller, ledger, accounts, f"m{n}-{caller}" if rng.random() < 0.7 else "m"
            )
        await anyio.sleep(seconds)
        return disk.copy()


async def lives(
    seed: int, limits: dict[str, int], days: dict[str, int], crashes: list[tuple[float, bool]]
) -> Billing:
    rng = random.Random(seed)
    billing, time, disk = Billing(rng, limits, days), RunningTime("2026-11-30T23:59:59"), empty_disk()
    for n, (seconds, power) in enumerate(crashes):
        left = await life(billing, disk, time, Policy(True, 0.8, limits), seconds, n)
        billing.check()
        disk = power_cut(left, rng) if power else left
    return billing


def run_lives(
    seed: int, limits: dict[str, int], crashes: list[tuple[float, bool]], days: dict[str, int] | None = None
) -> Billing:
    return anyio.run(lives, seed, limits, days or {}, crashes, backend_options=virtual_loop(seed))


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    limits=st.dictionaries(
        st.sampled_from(["turn", "thread", "user_day", "day", "month"]), st.integers(0, 6 * MOST), min_size=1
    ),
    days=st.dictionaries(st.sampled_from(["slack:T", "slack:T:C", "user:a"]), st.integers(0, 4 * MOST)),
    crashes=st.lists(st.tuples(st.floats(0, 15), st.booleans()), min_size=1, max_size=5),
)
def test_what_is_billed_never_exceeds_a_hard_limit(seed, limits, days, crashes):
    limit, ledger_module.BEGIN_ANEW_ABOVE = ledger_module.BEGIN_ANEW_ABOVE, 3000
    try:
        run_lives(seed, limits, crashes, days)
    finally:
        ledger_module.BEGIN_ANEW_ABOVE = limit


def test_the_property_looks_at_spending_and_at_refusals():
    billings = [run_lives(seed, {"month": 8 * MOST}, [(15.0, True)] * 3) for seed in range(20)]
    assert sum(billing.refused for billing in billings) > 20
    assert all(sum(billing.billed.values()) > MOST for billing in billings)


def test_the_property_looks_at_calls_that_a_death_cut_off_for_less_than_their_reservation():
    calls = [record for seed in range(20) for record in died_in_a_call(seed)]
    assert len(calls) > 20
    assert sum(call.micros < MOST for call in calls) > 10


def died_in_a_call(seed: int) -> list[Commit]:
    """Return what calls were charged that a kill cut off."""
    lapsed: list[Commit] = []
    lapse = Budgets.lapse

    def noting(self: Budgets, now: datetime) -> list[Commit]:
        lapsed.extend(ended := lapse(self, now))
        return ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Budgets, "lapse", noting)
        run_lives(seed, {"month": 100 * MOST}, [(5.0, False)] * 3)
    return lapsed


def test_the_property_looks_at_the_days_of_scopes_too():
    days = {"slack:T": 2 * MOST, "user:a": MOST}
    billings = [run_lives(seed, {"month": 30 * MOST}, [(15.0, True)] * 3, days) for seed in range(20)]
    assert sum(billing.refused for billing in billings) > 20
    assert sum(key[0] == "scope_day" for billing in billings for key in billing.billed) > 20


LIMITS = Policy(True, 0.8, {"thread": 100, "day": 1000})


async def test_a_call_that_runs_over_midnight_belongs_to_the_day_it_began():
    time = Time("2026-11-30T23:59:59")
    async with opened(empty_disk(), time) as ledger:
        account = Accounts(ledger, LIMITS).account("t", "ann", "m1")
        call = await account.reserve("fake/one", 60)
        time.set("2026-12-01T00:00:01")
        account.commit(call, Usage(1), 50, "ok")
        assert ledger.budgets.total(("day", "2026-11-30")).used == 50
        assert ledger.budgets.total(("day", "2026-12-01")).used == 0
        assert ledger.budgets.total(("month", "2026-11")).used == 50


@pytest.mark.parametrize("hard", [True, False])
async def test_a_disk_that_refuses_stops_a_hard_budget_and_not_a_soft_one(hard):
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        disk.faults = failing()
        account = Accounts(ledger, Policy(hard, 0.8, LIMITS.limits)).account("t", "ann", "m1")
        if hard:
            with pytest.raises(StoreUnavailable):
                await account.reserve("fake/one", 60)
        else:
            await account.reserve("fake/one", 60)
        assert ledger.budgets.total(("thread", "t")).used == (0 if hard else 60)


async def test_the_overview_tells_what_was_spent_of_what():
    async with opened(empty_disk(), Time()) as ledger:
        policy = Policy(True, 0.8, {"thread": 5_000_000, "user_day": 10_000_000, "day": 50_000_000})
        accounts = Accounts(ledger, policy)
        account = accounts.account("t", "ann", "m1")
        account.commit(await account.reserve("fake/one", 2_000_000), Usage(25, 5, 75), 1_250_000, "ok")
        await accounts.account("u", "bob", "m2").reserve("fake/one", 500_000)
        assert (await accounts.overview("t", "ann")).splitlines() == [
            "$1.25 of $5.00 spent for this thread, 75 % of the prompt read from the cache",
            "$1.25 of $10.00 spent for you today, 75 % of the prompt read from the cache",
            "$1.25 of $50.00 spent and $0.50 set aside for everyone today, 75 % of the prompt read from the cache",
            "$1.25 spent and $0.50 set aside for everyone this month, 75 % of the prompt read from the cache",
        ]
        assert (await accounts.overview("new", "eve")).splitlines()[
            0
        ] == "$0.00 of $5.00 spent for this thread"


@pytest.mark.parametrize("amount", [0, -1])
async def test_a_grant_of_nothing_is_refused(amount):
    async with opened(empty_disk(), Time()) as ledger:
        with pytest.raises(ValueError, match="more than nothing"):
            account = Accounts(ledger, LIMITS).account("t", "ann", "m1")
            await account.grant(("thread", "t"), amount, "admin")


async def test_a_turn_that_goes_on_after_a_restart_knows_what_it_used():
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        account = Accounts(ledger, LIMITS).account("t", "ann", "m1")
        account.commit(await account.reserve("fake/one", 60), Usage(10, 5, 30, 20), 50, "ok")
    async with opened(disk, Time()) as again:
        account = Accounts(again, LIMITS).account("t", "ann", "m1")
        assert account.usage == Usage(30, 5, 30)
        assert account.spent_usd == pytest.approx(50e-6)
        assert Accounts(again, LIMITS).account("t", "ann", "m2").usage == Usage()
