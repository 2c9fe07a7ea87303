"""How long silence may last, and what an answer costs that never got whole: every cell of the table, in virtual time."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.budget.budgets import IN_FLIGHT_S, TOKENS_PER_SECOND
from bot.llm.adapters import stream
from bot.llm.adapters.stream import AFTERWORD_S, CLOSING_S, Call, HiddenContent, StreamTimeouts, max_tokens_in
from bot.ports.errors import (
    ModelConnection,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    ProviderError,
    RateLimited,
)
from bot.ports.model import Completion, Usage
from tests.sim.loop import virtual_loop, virtual_time
from threads.model import Message, TextDelta, ThinkingDelta

anyio_backend = virtual_time
LIMITS = StreamTimeouts(first_content=300, idle=60, total=600)


@dataclass(frozen=True)
class Event:
    """One event: *after* seconds it brings *content*; text goes on being written unless ``writing`` is false."""

    after: float = 0
    content: str | ThinkingDelta | HiddenContent | None = None
    writing: bool = True
    usage: Usage | None = None
    ends: bool = False


def text(after: float = 0, words: str = "x") -> Event:
    return Event(after, words)


def ping(after: float = 0) -> Event:
    return Event(after)


def thought(after: float = 0, words: str = "hm") -> Event:
    return Event(after, ThinkingDelta(words), writing=False)


def arguments(after: float = 0, length: int = 3) -> Event:
    return Event(after, HiddenContent(length), writing=False)


@dataclass
class Script:
    """Reader and stream in one: it plays its events and then ends, fails after so many seconds, or hangs."""

    said: list[Event]
    hangs: bool = False
    connects_after: float = 0
    whole: bool = True
    fails: tuple[float, ProviderError] | None = None
    writing: bool = False
    usage: Usage = field(default_factory=Usage)
    ended: bool = False
    told_end: bool = False
    refused: ProviderError | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Script"]:
        await anyio.sleep(self.connects_after)
        if self.refused is not None:
            raise self.refused
        yield self

    async def __aiter__(self):
        for event in self.said:
            await anyio.sleep(event.after)
            yield [event]
        if self.fails:
            await anyio.sleep(self.fails[0])
            raise self.fails[1]
        if self.hangs:
            await anyio.sleep_forever()

    def feed(self, event: Event):
        self.told_end = self.told_end or event.ends
        self.usage = event.usage or self.usage
        if event.content is not None:
            self.writing = event.writing
        return event.content

    def finish(self) -> Completion:
        if not self.whole:
            raise ModelUnavailable("no end")
        return Completion(Message("assistant", ()), self.usage, "end")


@dataclass
class Listener:
    """A listener that takes its *time* over each event."""

    time: float = 0
    events: list = field(default_factory=list)

    async def __call__(self, event) -> None:
        self.events.append(event)
        await anyio.sleep(self.time)


def call(script: Script, *, limits=LIMITS, metered=None, longest=10**9) -> Call:
    meter = (lambda _: None) if metered is None else metered.append
    return Call("p", "m", script.open, script, limits, longest, None, meter)


async def fail_with(
    error: type[Exception], script: Script, listener=None, **options
) -> tuple[Exception, list]:
    """Return the error that a call ends with, and what its meter was told."""
    metered = []
    with pytest.raises(error) as caught:
        await call(script, metered=metered, **options).answer(listener or Listener())
    return caught.value, metered


async def lasted(script: Script, *, limits=LIMITS, listener=None) -> tuple[str, float]:
    """Return how it ended, and the seconds it took."""
    began = anyio.current_time()
    try:
        await call(script, limits=limits).answer(listener or Listener())
    except ModelTimeout:
        return "timeout", anyio.current_time() - began
    return "whole", anyio.current_time() - began


CELLS = {
    "no headers": (Script([], connects_after=1e9), "timeout", 300),
    "no event": (Script([], hangs=True), "timeout", 300),
    "no event, and total is less": (Script([], hangs=True), "timeout", 100, StreamTimeouts(total=100)),
    "pings only": (Script([ping(10)] * 100), "timeout", 300),
    "blank content is none": (Script([Event(10, None)] * 100), "timeout", 300),
    "thinking, then silence": (Script([thought(100)], hangs=True), "timeout", 400),
    "thinking, slowly": (Script([thought(250), thought(250), text(90)]), "whole", 590),
    "hidden thinking, slowly": (Script([arguments(250), arguments(250), text(90)]), "whole", 590),
    "text, then silence": (Script([text(100)], hangs=True), "timeout", 160),
    "text, then pings": (Script([text(100), *[ping(5)] * 100]), "timeout", 160),
    "text, slowly": (Script([text(50)] * 10), "whole", 500),
    "text, then a call, slowly": (Script([text(1), arguments(), arguments(299)]), "whole", 300),
    "text, then a call, then silence": (Script([text(1), arguments()], hangs=True), "timeout", 301),
    "text, thinking, text, silence": (Script([text(), thought(50), text(200)], hangs=True), "timeout", 310),
    "text for ever": (Script([text(1)] * 10_000), "timeout", 600),
    "thinking for ever": (Script([thought(1)] * 10_000), "timeout", 600),
    "arguments for ever": (Script([arguments(1)] * 10_000), "timeout", 600),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
async def test_every_cell_of_the_table(cell):
    script, outcome, seconds, limits = (*cell, LIMITS)[:4]
    ended, took = await lasted(Script(**vars(script)), limits=limits)
    assert (ended, round(took)) == (outcome, seconds)


LAST_WORD = Event(1, "x", ends=True)
COUNTED = Event(usage=Usage(10, 7))
OVER = {
    "the connection stays open": (Script([LAST_WORD], hangs=True), 1 + AFTERWORD_S),
    "it stays open, after the count": (Script([LAST_WORD, COUNTED], hangs=True), 1 + CLOSING_S),
    "it stays open, with pings": (Script([LAST_WORD, *[ping(2)] * 1000]), 1 + AFTERWORD_S),
    "words follow all the same": (Script([LAST_WORD, ping(1), LAST_WORD], hangs=True), 3 + AFTERWORD_S),
    "it ends": (Script([LAST_WORD]), 1),
    "it breaks": (Script([LAST_WORD], fails=(0.1, ModelConnection("reset"))), 1.1),
    "an error comes late": (Script([LAST_WORD], fails=(0.1, RateLimited("late"))), 1.1),
}


@pytest.mark.parametrize(("script", "seconds"), OVER.values(), ids=OVER)
async def test_an_answer_whose_end_was_told_is_whole_whatever_the_connection_does(script, seconds):
    listener = Listener()
    ended, took = await lasted(replace(script), listener=listener)
    assert ended == "whole"
    assert listener.events == [TextDelta("x")] * script.said.count(LAST_WORD)
    assert took == pytest.approx(seconds)


@pytest.mark.parametrize("event", [text(1), thought(1)], ids=["text", "thinking"])
async def test_the_listener_s_own_time_is_never_counted(event):
    ended, took = await lasted(Script([event] * 50), listener=Listener(time=100))
    assert (ended, round(took)) == ("whole", 50 * 101)


async def test_the_listener_s_time_gives_the_model_none():
    ended, took = await lasted(Script([text(1)], hangs=True), listener=Listener(time=1000))
    assert (ended, round(took)) == ("timeout", 1 + 1000 + 60)
    ended, took = await lasted(Script([text(1)] * 10_000), listener=Listener(time=9))
    assert (ended, round(took)) == ("timeout", 600 + 599 * 9)


async def test_a_flood_of_deltas_cannot_stretch_the_total():
    ended, took = await lasted(Script([text(0.05)] * 100_000), listener=Listener(time=0.09))
    assert (ended, round(took)) == ("timeout", 600)


def oracle(said: list[Event], limits: StreamTimeouts) -> tuple[str, float]:
    """The table, read once more: by adding up."""
    now, deadline = 0.0, min(limits.first_content, limits.total)
    for event in said:
        now += event.after
        if now > deadline:
            return "timeout", deadline
        if event.content is not None:
            patience = limits.idle if event.writing else limits.first_content
            deadline = min(now + patience, limits.total)
    return "whole", now


@given(
    st.lists(
        st.builds(
            # Content and a deadline never fall on one instant, when either could come first: limits are whole.
            lambda make, after: make(after + 0.37),
            st.sampled_from([text, ping, thought, arguments]),
            st.integers(0, 90),
        ),
        max_size=90,
    ),
    st.builds(
        StreamTimeouts, first_content=st.integers(1, 120), idle=st.integers(1, 60), total=st.integers(1, 400)
    ),
)
@settings(max_examples=150)
def test_any_stream_ends_when_the_table_says(said, limits):
    expected = oracle(said, limits)

    async def run():
        return await lasted(Script(said), limits=limits)

    ended, took = anyio.run(run, backend_options=virtual_loop(1))
    assert ended == expected[0]
    assert took == pytest.approx(expected[1])


async def test_thinking_and_text_reach_the_listener_in_order_and_what_is_unseen_does_not():
    listener = Listener()
    await call(
        Script([thought(words="so"), text(), arguments(), ping(), text(words=""), text(words="y")])
    ).answer(listener)
    assert listener.events == [ThinkingDelta("so"), TextDelta("x"), TextDelta("y")]


class AtOnce(Script):
    """All events come in one piece."""

    async def __aiter__(self):
        yield self.said


async def test_texts_that_come_at_once_are_told_at_once():
    listener = Listener()
    said = [text(words="a"), ping(), text(words="b"), thought(words="so"), text(words="c")]
    await call(AtOnce(said)).answer(listener)
    assert listener.events == [TextDelta("ab"), ThinkingDelta("so"), TextDelta("c")]


async def test_the_meter_hears_of_every_change_and_of_nothing_else():
    metered = []
    said = [Event(usage=Usage(10, 1)), text(), ping(), Event(usage=Usage(10, 7))]
    await call(Script(said), metered=metered).answer(Listener())
    assert metered == [Usage(10, 1), Usage(10, 7)]


def cut(usage: Usage, seconds: float, streamed: float) -> Usage:
    """Return what a cut call counts for that had *seconds* of nothing seen."""
    most = streamed + (seconds + IN_FLIGHT_S) * TOKENS_PER_SECOND
    return replace(usage, hidden=max(0, math.ceil(most) - usage.output))


STREAMED = [
    Event(usage=Usage(input=10, output=1)),
    thought(words="0123"),
    text(words="45678"),
    arguments(length=1),
]


LAST_COUNT = Event(usage=Usage(input=10, output=50))
OVERLOADED = ModelUnavailable("overloaded")
CUT_OFF = {
    "an answer without its end": (Script(STREAMED, whole=False), cut(Usage(10, 4), 0, 9)),
    "a larger count of the provider": (
        Script([*STREAMED, LAST_COUNT], whole=False),
        cut(Usage(10, 50), 0, 9),
    ),
    "the last word on the count": (Script([*STREAMED, LAST_COUNT], whole=False, ended=True), Usage(10, 50)),
    "silence": (Script(STREAMED, hangs=True), cut(Usage(10, 4), 300, 9)),
    "silence after a ping": (Script([ping()], hangs=True), cut(Usage(), 300, 0)),
}
UNCOUNTED = {
    "silence from the start": (Script([], hangs=True), [cut(Usage(), 300, 0)]),
    "an error in place of the first event": (Script([], fails=(5, OVERLOADED)), []),
    "a broken connection before it": (Script([], fails=(5, ModelConnection("reset"))), [cut(Usage(), 5, 0)]),
    "an end before it": (Script([], connects_after=5, whole=False), [cut(Usage(), 5, 0)]),
}


@pytest.mark.parametrize(("script", "usage"), CUT_OFF.values(), ids=CUT_OFF)
async def test_an_answer_that_is_cut_off_counts_at_least_what_was_streamed(script, usage):
    error, metered = await fail_with(ProviderError, Script(**vars(script)))
    assert error.usage == metered[-1] == usage
    assert error.fields == {"provider": "p", "model": "m"}


@pytest.mark.parametrize(("script", "expected"), UNCOUNTED.values(), ids=UNCOUNTED)
async def test_a_provider_that_says_nothing_can_have_thought_all_the_time(script, expected):
    error, metered = await fail_with(ProviderError, Script(**vars(script)))
    assert (error.usage, metered) == (None, expected)


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        pytest.param(Script([]), ModelConnection("refused"), id="not connected"),
        pytest.param(Script([]), RateLimited("429", status=429), id="refused"),
        pytest.param(Script([]), ModelTimeout("504", status=504), id="a gateway's time-out"),
        pytest.param(Script([], connects_after=10), ModelUnavailable("502", status=502), id="refused, late"),
    ],
)
async def test_a_call_that_was_not_taken_up_costs_nothing(script, refused):
    error, metered = await fail_with(ProviderError, replace(script, refused=refused))
    assert (error.usage, metered) == (None, [])


@pytest.mark.parametrize(
    ("said", "listens", "seconds"),
    [
        pytest.param([text(3), *[text(0.5)] * 100], 0, 3, id="text that flows hides nothing"),
        pytest.param([text(3), thought(20), text(4)], 0, 27, id="thinking, summed up or not"),
        pytest.param([text(3), arguments(20)], 0, 23, id="arguments"),
        pytest.param([text(3), text(5), ping(8)], 0, 11, id="silence at the end, whatever pings"),
        pytest.param([text(3), ping(8), text(1)], 0, 3, id="pings between text"),
        pytest.param([text(3), text(5), text(5)], 7, 3 + 3 * 7, id="what queues up while nobody reads"),
    ],
)
async def test_what_is_hidden_counts_by_its_time(said, listens, seconds):
    _, metered = await fail_with(ModelUnavailable, Script(said, whole=False), Listener(listens))
    streamed = sum(
        max_tokens_in(event.content if isinstance(event.content, str) else event.content.text)
        for event in said
        if isinstance(event.content, str | ThinkingDelta)
    )
    assert metered[-1] == cut(Usage(output=metered[-1].output), seconds, streamed)


async def test_a_cut_never_counts_for_more_than_the_longest_answer():
    metered = []
    with anyio.move_on_after(100):
        await call(Script(STREAMED, hangs=True), metered=metered, longest=300).answer(Listener())
    assert metered[-1] == Usage(input=10, output=4, hidden=296)


@pytest.mark.parametrize(
    ("words", "most"), [("", 0), ("ab", 1), ("abc", 1.5), ("A1", 2), ("你好", 6), ("\ud800", 3)]
)
def test_streamed_text_is_counted_generously(words, most):
    assert max_tokens_in(words) == most


async def test_an_event_that_counts_and_fails_is_counted():
    class Failing(Script):
        def feed(self, event):
            super().feed(event)
            raise ModelUnavailable("failed")

    error, _ = await fail_with(ModelUnavailable, Failing([Event(usage=Usage(10, 7))]))
    assert error.usage == cut(Usage(10, 7), 0, 0)
    error, _ = await fail_with(ModelUnavailable, Failing([ping()]))
    assert error.usage is None


async def test_a_cancelled_call_is_counted():
    metered = []
    with anyio.move_on_after(5):
        await call(Script(STREAMED, hangs=True), metered=metered).answer(Listener())
    assert metered == [Usage(input=10, output=1), cut(Usage(input=10, output=4), 5, 9)]


async def test_a_call_cancelled_while_its_listener_has_it_is_counted():
    metered = []
    with anyio.move_on_after(5):
        await call(Script(STREAMED), metered=metered).answer(Listener(time=100))
    assert metered[-1] == cut(Usage(input=10, output=2), 5, 4)


async def test_a_listener_that_fails_fails_unchanged_and_what_was_streamed_is_counted():
    async def broken(event) -> None:
        raise KeyError("mine")

    error, metered = await fail_with(KeyError, Script(STREAMED), broken)
    assert error.args == ("mine",)
    assert metered[-1] == cut(Usage(input=10, output=2), 0, 4)


@pytest.mark.parametrize("event", [text(words="x" * 90), thought(words="x" * 90), arguments(length=90)])
async def test_an_answer_without_bounds_is_cut_off_and_counted(monkeypatch, event):
    monkeypatch.setattr(stream, "MAX_CONTENT", 1000)
    error, _ = await fail_with(OutputInvalid, Script([event] * 1000))
    assert "longer than" in str(error)
    assert not error.retryable
    assert error.usage.output == 360


def length_of(event: Event) -> int:
    match event.content:
        case None:
            return 0
        case HiddenContent(length):
            return length
        case ThinkingDelta(text):
            return len(text)
    return len(event.content)


@given(
    st.lists(
        st.sampled_from([text(1), thought(1, "hmm"), arguments(1, 7), ping(1), Event(1, usage=Usage(5, 9))])
    ),
    st.integers(0, 40),
)
@settings(max_examples=150)
def test_whenever_a_call_ends_early_the_meter_knows_all_that_came(said, end):
    metered = [Usage()]
    came = [event for number, event in enumerate(said, start=1) if number <= end]

    async def run():
        with anyio.move_on_after(end + 0.5):
            await call(Script(said, hangs=True), metered=metered).answer(Listener())

    anyio.run(run, backend_options=virtual_loop(1))
    length = sum(map(length_of, came))
    assert metered[-1].output >= length / 3
    assert metered[-1].output <= max(9, length / 3 + 1)
    assert ProviderError().usage is None
