from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest

from bot.budget.accounts import Account, Accounts
from bot.budget.budgets import Commit, Policy, Reserve, record_adapter
from bot.config.settings import Price
from bot.llm.catalog import Catalog
from bot.llm.policies.metering import BudgetedModel, MeteredModel
from bot.ports.errors import (
    BadRequest,
    BudgetExceeded,
    ContentPolicy,
    ModelConnection,
    ModelTimeout,
    PriceUnknown,
)
from bot.ports.model import Completion, ModelInfo, Request, Usage
from tests.bot.budget.ledgers import Time, empty_disk, files, opened
from tests.bot.llm.conftest import FakeTurn
from tests.one_model import Only
from tests.tool_context import unheard
from threads.model import Answer, Message, OnEvent, Text, TextDelta
from threads.store.checksummed_lines import read_records

PRICES = {"fake/one": Price(input=1.0, output=3.0, cache_read=0.1, cache_write=2.0)}
POLICY = Policy(True, 0.8, {"turn": 1000, "thread": 10_000})
PROMPT, LONGEST = 30, 40
MOST = 2 * PROMPT + 3 * LONGEST
REQUEST = Request("", (), max_tokens=LONGEST)
THREAD = ("thread", "t")


@dataclass
class Fake:
    """A model that plays one script; ``requests`` went out."""

    play: Callable[[Request, OnEvent], Awaitable[Usage]]
    name: str = "fake/one"
    requests: list[Request] = field(default_factory=list)
    info: ModelInfo = ModelInfo("fake/one")

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        self.requests.append(request)
        usage = await self.play(request, on_event)
        return Completion(Message("assistant", (Text("x"),)), usage, "end")


def answers(usage: Usage):
    async def play(request: Request, on_event: OnEvent) -> Usage:
        return usage

    return play


def fails(error: Exception, usage: Usage | None = None, *, said: str = "", metered: Usage | None = None):
    error.usage = usage

    async def play(request: Request, on_event: OnEvent) -> Usage:
        if metered is not None:
            request.meter(metered)
        if said:
            await on_event(TextDelta(said))
        raise error

    return play


@dataclass
class Accounting:
    account: Account
    accounts: Accounts
    disk: object

    def metered(self, model: Fake, catalog: Catalog | None = None) -> MeteredModel:
        return MeteredModel(model, self.account, catalog or Catalog({}, PRICES), lambda _: PROMPT)

    @property
    def used(self) -> int:
        return self.accounts.ledger.budgets.total(THREAD).used

    async def records(self) -> list[object]:
        await anyio.wait_all_tasks_blocked()  # the last batch is on the disk
        lines, _ = read_records(record_adapter(), files(self.disk)["2026-11.jsonl"])
        return [record for record, _ in lines[1:]]


@asynccontextmanager
async def accounting(policy: Policy = POLICY):
    disk = empty_disk()
    async with opened(disk, Time()) as ledger:
        accounts = Accounts(ledger, policy)
        yield Accounting(accounts.account("t", "ann", "m1"), accounts, disk)


async def test_the_most_is_reserved_before_the_call_and_the_real_cost_committed_after():
    during: list[int] = []
    async with accounting() as kept:

        async def play(request: Request, on_event: OnEvent) -> Usage:
            during.append(kept.used)
            return Usage(10, 5, 10, 3)

        await kept.metered(Fake(play)).complete(REQUEST, unheard)
        assert during == [MOST]
        assert kept.used == 10 + 15 + 1 + 6
        assert kept.account.usage == Usage(10, 5, 10, 3)
        assert kept.account.spent_usd == pytest.approx(32e-6)
        reserve, commit = await kept.records()
    assert isinstance(reserve, Reserve)
    assert isinstance(commit, Commit)
    assert (commit.reserve, commit.micros, commit.outcome) == (reserve.seq, 32, "ok")


async def test_reasoning_beyond_the_answer_is_reserved_and_committed_too():
    during: list[int] = []
    async with accounting() as kept:

        async def play(request: Request, on_event: OnEvent) -> Usage:
            during.append(kept.used)
            return Usage(PROMPT, LONGEST + 90)

        model = replace(kept.metered(Fake(play)), reasoning_tokens=100)
        await model.complete(REQUEST, unheard)
        assert during == [MOST + 300]
        assert kept.used == PROMPT + 3 * (LONGEST + 90)
        cut = replace(
            kept.metered(Fake(fails(ModelConnection(), Usage(10, 1, hidden=5)))), reasoning_tokens=100
        )
        with pytest.raises(ModelConnection):
            await cut.complete(REQUEST, unheard)
        assert kept.used == PROMPT + 3 * (LONGEST + 90) + 10 + 3 * 106


@pytest.mark.parametrize(
    ("play", "counted"),
    [
        pytest.param(fails(ModelConnection()), 0, id="never began"),
        pytest.param(fails(BadRequest()), 0, id="refused at once"),
        pytest.param(fails(ValueError()), 0, id="a bug of ours before it began"),
        pytest.param(
            fails(ModelTimeout(), metered=Usage(hidden=9)), 2 * PROMPT + 27, id="time-out before it began"
        ),
        pytest.param(fails(ModelConnection(), Usage(10, 1, hidden=5)), 10 + 18, id="cut within"),
        pytest.param(
            fails(ValueError(), said="x", metered=Usage(10, 1, hidden=5)), 10 + 18, id="cut by a bug of ours"
        ),
        pytest.param(fails(ContentPolicy(), Usage(10, 2)), 16, id="refused after its last word"),
        pytest.param(
            fails(ModelConnection(), Usage(0, 7, hidden=LONGEST - 7)), MOST, id="cut at the very last"
        ),
        pytest.param(
            fails(ContentPolicy(), Usage(0, 2)), 2 * PROMPT + 6, id="refused, the prompt not counted"
        ),
    ],
)
async def test_a_call_that_fails_is_counted_for_what_it_may_have_cost(play, counted):
    async with accounting() as kept:
        with pytest.raises(Exception):  # noqa: B017
            await kept.metered(Fake(play)).complete(REQUEST, unheard)
        assert kept.used == counted
        assert kept.account.spent_usd == pytest.approx(counted / 1e6)


@pytest.mark.parametrize(
    ("metered", "counted", "usage"),
    [
        pytest.param(None, 0, Usage(), id="before it went out"),
        pytest.param(Usage(hidden=9), 2 * PROMPT + 27, Usage(PROMPT, hidden=9), id="before it began"),
        pytest.param(
            Usage(10, 1, 10, hidden=9),
            10 + 1 + 30,
            Usage(10, 1, 10, hidden=9),
            id="within, the prompt counted",
        ),
    ],
)
async def test_a_cancelled_call_is_counted_at_once_and_on_disk(metered, counted, usage):
    began = anyio.Event()
    async with accounting() as kept:

        async def play(request: Request, on_event: OnEvent) -> Usage:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                if metered:
                    request.meter(metered)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kept.metered(Fake(play)).complete, REQUEST, unheard)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert kept.used == counted
        commit = (await kept.records())[-1]
        assert (commit.outcome, commit.usage) == ("turn_stopped", usage)
        assert kept.account.usage == usage


async def test_an_answer_that_nobody_counted_costs_the_most_it_can():
    async with accounting() as kept:
        await kept.metered(Fake(answers(Usage()))).complete(REQUEST, unheard)
        assert kept.used == MOST


async def test_a_meter_further_out_still_hears_the_usage():
    heard: list[Usage] = []

    async def play(request: Request, on_event: OnEvent) -> Usage:
        request.meter(Usage(1))
        return Usage(2)

    async with accounting() as kept:
        await kept.metered(Fake(play)).complete(
            Request("", (), max_tokens=LONGEST, meter=heard.append), unheard
        )
    assert heard == [Usage(1)]


async def test_a_call_that_does_not_fit_does_not_go_out():
    async with accounting(Policy(True, 0.8, {"turn": MOST - 1})) as kept:
        model = Fake(answers(Usage(1)))
        with pytest.raises(BudgetExceeded) as refused:
            await kept.metered(model).complete(REQUEST, unheard)
        assert model.requests == []
        assert refused.value.scopes == ("turn",)
        assert refused.value.needed_usd == pytest.approx(MOST / 1e6)


async def test_an_unknown_price_stops_a_hard_budget():
    async with accounting() as kept:
        model = Fake(answers(Usage(1)), name="nobody/x")
        with pytest.raises(PriceUnknown, match="prices"):
            await kept.metered(model).complete(REQUEST, unheard)
        assert model.requests == []


@pytest.mark.parametrize("policy", [Policy(False, 0.8, {"turn": 1}), Policy(True, 0.8, {})])
async def test_an_unknown_price_goes_on_where_nothing_can_be_refused_and_stays_unknown(policy):
    async with accounting(policy) as kept:
        await kept.metered(Fake(answers(Usage(1, 2)), name="nobody/x")).complete(REQUEST, unheard)
        assert kept.account.spent_usd is None
        assert kept.account.usage == Usage(1, 2)
        assert (await kept.records())[-1].micros is None


async def test_a_call_that_costs_nothing_needs_no_reservation_but_is_in_the_ledger():
    async with accounting(Policy(True, 0.8, {"turn": 0})) as kept:
        await kept.metered(Fake(answers(Usage(7, 2)), name="offline/demo")).complete(REQUEST, unheard)
        (commit,) = await kept.records()
        assert (commit.usage, commit.micros, commit.reserve) == (Usage(7, 2), 0, 0)
        assert kept.account.spent_usd == 0


def budgeted(kept: Accounting, turn: FakeTurn, usage: Usage = Usage(10, 5)) -> BudgetedModel:
    return BudgetedModel(
        Only(kept.metered(Fake(answers(usage)))), kept.account, turn, lambda who: who == "admin"
    )


TIGHT = Policy(True, 0.8, {"turn": 100, "thread": 150})


async def test_a_person_grants_more_and_the_call_goes_out():
    turn = FakeTurn([Answer(approved=True, by="admin", words="1.00")])
    async with accounting(TIGHT) as kept:
        await budgeted(kept, turn).complete(REQUEST, unheard)
        (question,) = turn.questions
        assert [option.label for option in question.options] == ["Continue with $1.00 more", "Cancel"]
        assert question.options[0].words == "1.00"
        spent = "$0.00 of $0.0001 spent for this message; $0.00 of $0.0001 spent for this thread."
        for words in (spent, "may cost up to $0.0002", "what is not used is given back"):
            assert words in question.text
        assert (question.may_answer("admin"), question.may_answer("ann")) == (True, False)
        assert kept.used == 25
        totals = kept.accounts.ledger.budgets.totals
        assert totals[THREAD].granted == totals[("turn", "m1")].granted == 1_000_000


@pytest.mark.parametrize(
    "answer", [None, Answer(approved=False, by="admin"), Answer(approved=False, by="a", words="5")]
)
async def test_a_person_who_declines_or_does_not_answer_ends_the_turn(answer):
    turn = FakeTurn([answer])
    async with accounting(TIGHT) as kept:
        with pytest.raises(BudgetExceeded):
            await budgeted(kept, turn).complete(REQUEST, unheard)
        assert kept.used == 0


@pytest.mark.parametrize("words", ["-5", "0", "inf", "nan", "lots", "1e9", "1 000"])
async def test_an_amount_that_cannot_be_read_leaves_the_question_open(words):
    turn = FakeTurn([Answer(approved=True, by="admin", words="0.0001")])
    async with accounting(TIGHT) as kept:
        await budgeted(kept, turn).complete(REQUEST, unheard)
        assert kept.accounts.ledger.budgets.total(THREAD).granted == 100
    (question,) = turn.questions
    assert question.fault(words).startswith("I need an amount in dollars")
    assert [question.fault(fine) for fine in ("", "0.0001", "1.50", "2")] == [""] * 4


async def test_a_grant_that_is_too_small_leads_to_another_question():
    turn = FakeTurn([Answer(approved=True, by="admin", words=text) for text in ("0.00001", "")])
    async with accounting(TIGHT) as kept:
        await budgeted(kept, turn).complete(REQUEST, unheard)
        assert len(turn.questions) == 2
        assert kept.accounts.ledger.budgets.total(THREAD).granted == 1_000_010


async def test_an_unknown_price_is_nothing_a_person_can_grant():
    turn = FakeTurn()
    async with accounting() as kept:
        model = Only(kept.metered(Fake(answers(Usage()), name="nobody/x")))
        with pytest.raises(PriceUnknown):
            await BudgetedModel(model, kept.account, turn, lambda _: True).complete(REQUEST, unheard)
    assert turn.questions == []


async def test_a_warning_is_noted_once_also_when_the_call_fails():
    turn = FakeTurn()
    async with accounting(Policy(True, 0.8, {"turn": MOST + 20})) as kept:
        error = ContentPolicy()
        model = Only(kept.metered(Fake(fails(error, Usage(0, LONGEST, 0, 20)))))
        wrapped = BudgetedModel(model, kept.account, turn, lambda _: True)
        with pytest.raises(ContentPolicy):
            await wrapped.complete(REQUEST, unheard)
        assert turn.notes == ["(Budget warning: $0.0002 of $0.0002 spent for this message, $0.0000 left.)"]
        assert wrapped.usage == Usage(0, LONGEST, 0, 20)
        assert wrapped.spent_usd == pytest.approx(160e-6)
        assert wrapped.info.name == wrapped.name == "fake/one"
