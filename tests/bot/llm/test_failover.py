"""Failover: who answers, who is asked first, and what the person is told."""

import pytest

from bot.llm.policies.failover import Candidate, Failover
from bot.ports.errors import (
    AllProvidersFailed,
    BadRequest,
    BudgetExceeded,
    CapabilityMissing,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelDeclined,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    PaymentRequired,
    PriceUnknown,
    ProviderError,
    RateLimited,
    Unauthorized,
)
from bot.ports.model import ModelInfo, Request, ToolSpec
from bot.wording import REASONS
from tests.bot.llm.conftest import FakeTurn, ask, user
from tests.world import Scripted, says
from threads.errors import BotError
from threads.model import Answer, Image, Message, TextDelta, TextReset


class FakeFailover:
    """Candidates a/one, b/two, c/three, each with its script; ``refused`` says which cannot be asked now."""

    def __init__(self, *scripts, refused=(), turn=None, acknowledge="notify", **lacks):
        names = ["a/one", "b/two", "c/three"][: len(scripts)]
        self.models = [Scripted(*script) for script in scripts]
        self.refused: dict[str, ProviderError] = dict(refused)
        self.turn = turn or FakeTurn()
        self.heard = []
        infos = [ModelInfo(name, **lacks.get(name[0], {})) for name in names]
        candidates = [
            Candidate(info.name, lambda info=info: info, model, lambda name=info.name: self.refused.get(name))
            for info, model in zip(infos, self.models, strict=True)
        ]
        self.failover = Failover(
            candidates,
            self.turn,
            acknowledge=acknowledge,
            may_answer=lambda who: who == "U1",
            size=lambda request: sum(len(message.text) for message in request.messages),
        )

    async def complete(self, request: Request | None = None) -> str:
        async def hear(event):
            self.heard.append(event)

        completion = await self.failover.complete(request or ask(), hear)
        return completion.message.text

    @property
    def asked(self) -> list[int]:
        return [len(model.requests) for model in self.models]


TRANSIENT = [RateLimited, ModelTimeout, ModelUnavailable, ModelConnection]
UNTIL_A_PERSON_ACTS = [Unauthorized, PaymentRequired, ModelNotFound]


@pytest.mark.parametrize("error", [*TRANSIENT, *UNTIL_A_PERSON_ACTS])
async def test_a_failure_of_the_provider_goes_to_the_next_model_with_a_note(error):
    chain = FakeFailover([error()], [says("from two")])
    assert await chain.complete() == "from two"
    assert chain.turn.notes == [f"(b/two answered, because a/one {REASONS[error.code]}.)"]


@pytest.mark.parametrize(
    "error", [BadRequest(), ContentPolicy(), ContextOverflow(), OutputInvalid(), BudgetExceeded("no")]
)
async def test_what_is_no_fault_of_the_model_never_reaches_another(error):
    chain = FakeFailover([error], [says("never")])
    with pytest.raises(type(error)):
        await chain.complete()
    assert chain.asked == [1, 0]


async def test_text_of_the_failed_answer_is_taken_back_before_the_next_model_writes():
    async def writes_and_breaks():
        chain.heard.append(TextDelta("half an ans"))
        raise ModelUnavailable

    chain = FakeFailover([writes_and_breaks], [says("whole")])
    assert await chain.complete() == "whole"
    assert chain.heard == [TextDelta("half an ans"), TextReset(), TextDelta("whole")]


async def test_a_switch_lasts_for_the_turn():
    chain = FakeFailover([ModelTimeout()], [says("1"), says("2")])
    await chain.complete()
    await chain.complete()
    assert chain.asked == [1, 2]
    assert chain.failover.name == "b/two"


async def test_a_candidate_that_is_shut_is_passed_over_without_being_asked():
    chain = FakeFailover([], [says("two")], refused={"a/one": RateLimited()})
    assert await chain.complete() == "two"
    assert chain.asked == [0, 1]
    assert chain.turn.notes == ["(b/two answered, because a/one is rate limited.)"]


async def test_only_the_last_that_can_be_asked_waits_for_its_circuit():
    chain = FakeFailover([ModelTimeout()], [ModelTimeout()], [says("three")])
    await chain.complete()
    assert [model.requests[0].last_resort for model in chain.models] == [False, False, True]
    chain = FakeFailover([says("one")], [], refused={"b/two": Unauthorized()})
    await chain.complete()
    assert chain.models[0].requests[0].last_resort


async def test_when_all_are_shut_the_one_that_can_be_asked_first_is_waited_for():
    chain = FakeFailover(
        [],
        [says("two")],
        [],
        refused={
            "a/one": ModelTimeout(retry_after=9),
            "b/two": RateLimited(retry_after=4),
            "c/three": Unauthorized(),
        },
    )
    assert await chain.complete() == "two"
    assert chain.models[1].requests[0].last_resort


async def test_a_candidate_that_was_spared_its_retries_gets_them_when_nobody_else_is_open():
    async def limited():
        chain.refused["b/two"] = RateLimited()  # one gate for both: a Retry-After stops it whole
        raise RateLimited

    chain = FakeFailover([limited, says("after the wait")], [])
    assert await chain.complete() == "after the wait"
    assert [request.last_resort for request in chain.models[0].requests] == [False, True]
    assert chain.turn.notes == []


async def test_a_fallback_that_does_not_take_the_request_hides_nothing():
    chain = FakeFailover([ModelTimeout()], [BadRequest()], [BadRequest()])
    with pytest.raises(AllProvidersFailed) as failed:
        await chain.complete()
    assert failed.value.code == "timeout"
    assert chain.asked == [1, 1, 1]


async def test_when_all_fail_the_last_failure_names_the_category_and_the_chain_tells_all():
    chain = FakeFailover([RateLimited()], [Unauthorized("secret words")])
    with pytest.raises(AllProvidersFailed) as failed:
        await chain.complete()
    assert failed.value.code == "auth"
    assert [(model, error.code) for model, error in failed.value.chain] == [
        ("a/one", "rate_limited"),
        ("b/two", "auth"),
    ]


async def test_a_model_that_cannot_do_what_is_needed_is_passed_over_with_a_word():
    chain = FakeFailover([], [says("two")], a={"tools": False})
    assert await chain.complete(ask(tools=(ToolSpec("t", "", {}),))) == "two"
    assert chain.turn.notes == ["(b/two answered, because a/one cannot call tools.)"]


async def test_a_fallback_that_cannot_do_it_is_passed_over_and_only_the_chosen_model_is_spoken_of():
    chain = FakeFailover([ModelTimeout()], [], [says("three")], b={"tools": False})
    assert await chain.complete(ask(tools=(ToolSpec("t", "", {}),))) == "three"
    assert chain.turn.notes == ["(c/three answered, because a/one does not answer in time.)"]


async def test_all_that_kept_the_chosen_model_and_the_next_from_answering_is_told():
    chain = FakeFailover([Unauthorized()], [RateLimited()], [says("three")])
    assert await chain.complete() == "three"
    assert chain.turn.notes == [
        "(c/three answered, because a/one does not accept my key and b/two is rate limited.)"
    ]


async def test_a_fallback_without_a_price_is_passed_over_and_the_last_one_says_so():
    chain = FakeFailover([RateLimited()], [PriceUnknown("?")], [says("three")])
    assert await chain.complete() == "three"
    chain = FakeFailover([RateLimited()], [PriceUnknown("?")])
    with pytest.raises(PriceUnknown):
        await chain.complete()


@pytest.mark.parametrize(
    "chain",
    [
        lambda turn: FakeFailover(
            [],
            [says("2")],
            refused={"a/one": Unauthorized(), "b/two": RateLimited()},
            turn=turn,
            acknowledge="ask",
        ),
        lambda turn: FakeFailover([], [says("2")], a={"streaming": False}, turn=turn, acknowledge="ask"),
        lambda turn: FakeFailover(
            [], [says("2")], refused={"a/one": RateLimited()}, turn=turn, acknowledge="ask"
        ),
    ],
    ids=["all shut", "not capable", "passed over"],
)
async def test_however_another_model_comes_up_a_person_is_asked_and_a_no_is_no_outage(chain):
    asked = chain(FakeTurn([Answer(approved=True, by="U1")]))
    assert await asked.complete() == "2"
    assert len(asked.turn.questions) == 1
    declined = chain(FakeTurn([Answer(approved=False, by="U1")]))
    with pytest.raises(BotError) as no:
        await declined.complete()
    assert declined.asked == [0, 0]
    outage = isinstance(no.value, AllProvidersFailed) and not isinstance(no.value, ModelDeclined)
    assert not outage, "nobody is alarmed by a person's no"


async def test_a_picture_goes_to_a_model_that_sees():
    picture = Message("user", (Image("cat.png", "image/png"),))
    chain = FakeFailover([], [says("a cat")], a={"vision": False})
    assert await chain.complete(ask(picture)) == "a cat"


async def test_a_fallback_with_too_small_a_window_is_no_help():
    chain = FakeFailover([ModelTimeout()], [says("never")], [says("three")], b={"context_window": 10})
    assert await chain.complete(ask(user("x" * 50))) == "three"
    assert chain.asked == [1, 0, 1]


async def test_when_no_model_can_do_it_what_is_missing_is_named():
    chain = FakeFailover([], [], a={"tools": False}, b={"streaming": False})
    with pytest.raises(CapabilityMissing, match="a/one cannot call tools") as missing:
        await chain.complete(ask(tools=(ToolSpec("t", "", {}),)))
    assert missing.value.code == "missing_tool_calling"
    assert chain.asked == [0, 0]


async def test_with_ask_a_person_decides_and_is_asked_once_for_a_model():
    turn = FakeTurn([Answer(approved=True, by="U1")])
    chain = FakeFailover([ModelTimeout()], [says("1"), says("2")], turn=turn, acknowledge="ask")
    assert await chain.complete() == "1"
    assert await chain.complete() == "2"
    (question,) = turn.questions
    assert question.text == "a/one does not answer in time. Shall I use b/two for this message?"
    assert [option.approve for option in question.options] == [True, False]
    assert question.may_answer("U1")
    assert not question.may_answer("U2")


@pytest.mark.parametrize("answer", [None, Answer(approved=False, by="U1")])
async def test_without_a_yes_no_other_model_is_used_and_none_is_logged(answer, caplog):
    chain = FakeFailover([ModelTimeout()], [says("never")], turn=FakeTurn([answer]), acknowledge="ask")
    with pytest.raises(AllProvidersFailed) as failed:
        await chain.complete()
    assert failed.value.code == "timeout"
    assert chain.asked == [1, 0]
    assert not [record for record in caplog.records if record.message.startswith("model.")], (
        "no call, no failover"
    )
    told = "b/two" in failed.value.friendly and "failover.acknowledge" in failed.value.friendly
    assert told is (answer is None), "nobody was asked, so nobody knows of the other model"
