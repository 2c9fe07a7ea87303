"""A conversation that grows too long becomes short, and nothing of it is lost."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.agent.prompt.compaction import (
    ATTEMPTS,
    HALVINGS,
    INSTRUCTION,
    LEFT_OUT,
    OPENING,
    Compaction,
    strip_thinking,
    too_large,
    where_to_cut,
)
from bot.agent.prompt.oversized_message import overflow
from bot.agent.prompt.repair import repair
from bot.agent.prompt.token_estimate import request_size, size_of
from bot.ports.errors import BudgetExceeded, ContextOverflow, ModelUnavailable
from bot.ports.model import Completion, ModelInfo, Request, ToolSpec, Usage
from tests.bot.agent.test_repair import check, histories
from tests.world import message as incoming
from threads.errors import StoreUnavailable
from threads.model import (
    Image,
    Message,
    Resumed,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolFinished,
    ToolResult,
    Waiting,
)

MODEL = "fake/one"
SHELL = ToolSpec("shell", "Runs a command.", {"type": "object"})
LONG = "word " * 1_000  # 1,429 tokens


class FakeTurn:
    """A `Turn` for the last question of *messages*; ``archived`` are the whole conversations that it was given."""

    def __init__(self, messages: list[Message], *, disk_full: bool = False) -> None:
        sources = [message.source for message in messages if message.source]
        self.incoming = incoming(int(sources[-1].removeprefix("m")) if sources else 1)
        self.messages, self.disk_full = messages, disk_full
        self.archived: list[list[Message]] = []
        self.events: list[object] = []

    async def compact(self, messages: list[Message]) -> None:
        if self.disk_full:
            raise StoreUnavailable
        self.archived.append(list(self.messages))
        self.messages[:] = messages

    async def tell(self, event: object) -> None:
        self.events.append(event)


Write = Callable[[Request], Message | Exception]


class Summariser:
    """A model that is asked for summaries only; it counts every token and has a window."""

    name = MODEL
    info = ModelInfo(MODEL)

    def __init__(self, write: Write, window: float = float("inf")) -> None:
        self.write, self.window, self.stop = write, window, "end"
        self.requests: list[Request] = []

    async def complete(self, request: Request, on_event) -> Completion:
        self.requests.append(request)
        await on_event(Waiting("busy", 1))
        await on_event(Resumed())
        if size_of(request.system, request.messages, request.tools) > self.window:
            raise ContextOverflow
        answer = self.write(request)
        if isinstance(answer, Exception):
            raise answer
        await on_event(TextDelta(answer.text))
        return Completion(answer, Usage(10, 5), "tool_calls" if answer.calls else self.stop)


def says(text: str) -> Write:
    return lambda _: Message("assistant", (Text(text),), model=MODEL)


class Files:
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def __call__(self, name: str, text: str, *, outside: bool) -> str:
        self.texts[name], self.outside = text, outside
        return f"tool-output/{name}"


async def compact(
    messages: list[Message],
    model: Summariser,
    window: int | None = 20_000,
    *,
    request: Request | None = None,
    files: Files | None = None,
    keep: int = 2_000,
    enabled: bool = True,
    disk_full: bool = False,
) -> tuple[FakeTurn, str | None]:
    """Return the turn after a compaction, and the text for people."""
    turn = FakeTurn(messages, disk_full=disk_full)
    compaction = Compaction(keep, files or Files(), enabled=enabled)
    return turn, await compaction.run(turn, request or request_of(messages), model, window=window)


def turn_of(n: int, text: str = LONG, *steps: Message) -> list[Message]:
    thought = Thinking("hm", MODEL, {"type": "thinking", "thinking": "hm", "signature": "s"})
    return [
        Message("user", (Text("[ann]"), Text(f"question {n}")), source=f"m{n}"),
        *steps,
        Message("assistant", (thought, Text(text)), source=f"m{n}", model=MODEL, tokens=n * 1_500),
    ]


def step(call_id: str, content: str = "ok", **arguments: str) -> list[Message]:
    return [
        Message("assistant", (ToolCall(call_id, "shell", arguments),), model=MODEL),
        Message("user", (ToolResult(call_id, content),)),
    ]


def asked(n: int) -> Message:
    return Message("user", (Text(f"question {n}"),), source=f"m{n}")


def talk(turns: int) -> list[Message]:
    """Turns 1 … n, each of 1,500 tokens, and the question of the next."""
    return [*(message for n in range(1, turns + 1) for message in turn_of(n)), asked(turns + 1)]


def request_of(messages: list[Message]) -> Request:
    return Request("Be kind.", tuple(messages), (SHELL,), cache_key="t1")


def length(messages: list[Message]) -> int:
    return size_of("Be kind.", strip_thinking(messages), (SHELL,))


@pytest.mark.parametrize(
    ("size", "window", "max_tokens", "large"),
    [
        (10**9, None, 8_192, False),
        (160_000, 200_000, 8_192, False),
        (160_001, 200_000, 8_192, True),
        (90_001, 100_000, 30_000, True),
        (70_001, 100_000, 30_000, True),
        (4_000, 8_192, 8_192, False),
        (4_097, 8_192, 8_192, True),
    ],
)
def test_a_prompt_is_too_large_past_the_threshold_or_without_room_for_the_answer(
    size, window, max_tokens, large
):
    assert too_large(size, window, 0.8, max_tokens) is large


def test_an_overflow_tells_how_much_there_is_and_how_much_there_may_be():
    assert overflow(900, 800).fields == {"current_tokens": 900, "max_tokens": 800}
    assert overflow(900, None).fields == {"current_tokens": 900}


async def test_the_older_part_becomes_a_summary_and_the_recent_turns_stay():
    messages = talk(10)
    before = list(messages)
    turn, word = await compact(messages, Summariser(says("Ann asked ten questions.")), keep=3_100)
    assert re.fullmatch(
        r"I summarised the earlier part of our conversation to make room "
        r"\(15,\d\d\d to 3,\d\d\d tokens\); the full text is kept\.",
        word,
    )
    assert turn.archived == [before]
    summary, *tail = turn.messages
    assert summary == Message("user", (Text(f"{OPENING}\n\nAnn asked ten questions."),))
    assert [m.source for m in tail] == ["m9", "m9", "m10", "m10", "m11"]
    assert [m.text for m in tail] == [m.text for m in before[-5:]]
    assert not any(isinstance(b, Thinking) for m in tail for b in m.blocks)
    assert not any(m.tokens for m in tail)


async def test_the_request_for_a_summary_is_the_conversation_s_own_prefix_and_one_instruction():
    messages = talk(10)
    request = replace(request_of(messages), output_schema={"type": "object"}, temperature=0.5)
    model = Summariser(says("short"))
    await compact(messages, model, request=request, keep=3_100)
    (asked_for,) = model.requests
    *prefix, last = asked_for.messages
    assert last is INSTRUCTION
    assert len(prefix) == 16
    assert all(mine is theirs for mine, theirs in zip(prefix, request.messages, strict=False))
    shared = replace(asked_for, messages=(), max_tokens=0)
    assert shared == replace(request, messages=(), max_tokens=0, output_schema=None, best_effort=True)


async def test_nobody_hears_a_summary_being_written_but_waits_are_told():
    turn, _ = await compact(talk(10), Summariser(says("short")))
    began, *waits, ended = turn.events
    assert waits == [Waiting("busy", 1), Resumed()]
    assert began.label == "summarising the earlier part of our conversation"
    assert ended == ToolFinished("compact", True, "compact")


def test_the_cut_is_at_a_message_of_a_person_and_never_inside_the_current_turn():
    steered = Message("user", (Text("and this"),), source="m99")
    current = [asked(4), *step("c1", LONG), steered, *step("c2", LONG)]
    go_on = Message("user", (Text("Go on."),))
    messages = [*turn_of(1), *turn_of(2, LONG, *turn_of(0)[1:], go_on), *turn_of(3), *current]
    places = {where_to_cut(messages, "m4", keep) for keep in range(0, 12_000, 100)}
    assert places == {2, 6, 8}
    assert where_to_cut(messages, "m4", 0) == 8
    assert where_to_cut(current, "m4", 0) == 0
    assert where_to_cut([], "m4", 0) == 0


async def test_a_current_turn_that_is_all_there_is_has_nothing_to_summarise():
    current = [asked(1), *step("c1"), *step("c2")]
    model = Summariser(says("short"))
    turn, word = await compact(current, model, 100)
    assert (word, model.requests, turn.archived) == (None, [], [])


async def test_no_summary_is_paid_for_that_could_not_shorten_enough():
    messages = [*turn_of(1), asked(2), *[m for n in range(9) for m in step(f"c{n}", "x" * 1_900)]]
    model = Summariser(says("short"))
    _, word = await compact(messages, model, 5_000)
    assert (word, model.requests) == (None, [])


@pytest.mark.parametrize(
    "useless",
    [
        says(""),
        says(" \n"),
        says("blah " * 20_000),
        lambda _: Message("assistant", (Text("I will look"), ToolCall("c1", "shell", {}))),
    ],
)
async def test_a_useless_summary_is_asked_for_once_more_without_tools_and_then_never_again(useless):
    messages = talk(10)
    before = list(messages)
    turn, model = FakeTurn(messages), Summariser(useless)
    compaction = Compaction(2_000, Files())
    for _ in range(3):
        assert await compaction.run(turn, request_of(messages), model, window=20_000) is None
    assert [r.tool_choice for r in model.requests] == ["auto", "none"]
    assert (messages, turn.archived) == (before, [])


async def test_a_second_try_that_works_counts():
    answers = iter([says(""), says("short")])
    turn, word = await compact(talk(10), Summariser(lambda request: next(answers)(request)))
    assert word
    assert len(turn.archived) == 1


async def test_while_the_provider_fails_old_output_goes_to_files_and_the_last_step_stays():
    big = json.dumps({"success": True, "result": "é" * 20_000}, ensure_ascii=False)
    current = [asked(3), *step("c3", big), *step("c4", big)]
    messages = [*turn_of(1, "ok", *step("c1", big), *step("c2", "small")), *turn_of(2, LONG * 4), *current]
    before, files = list(messages), Files()
    model = Summariser(lambda _: ModelUnavailable("down"))
    turn, word = await compact(messages, model, files=files)
    assert len(model.requests) == 1
    assert word.startswith("I moved older tool output to files to make room (")
    ((name, text),) = files.texts.items()
    assert text == big
    assert re.fullmatch(r"[0-9a-f]{16}\.txt", name)
    results = [r for m in turn.messages for r in m.results]
    assert [r.content == big for r in results] == [False, False, False, True]
    stub = json.loads(results[0].content)
    assert stub["success"] is True
    assert f"{len(big)} characters were moved to tool-output/{name}" in stub["result"]
    assert results[1].content == "small"
    assert turn.archived == [before]
    assert not any(isinstance(b, Thinking) or m.tokens for m in turn.messages for b in m.blocks)
    check(turn.messages)


async def test_an_answer_that_was_cut_off_is_no_summary():
    model = Summariser(says("Ann asked ten"))
    model.stop = "length"
    _, word = await compact(talk(10), model)
    assert word is None


async def test_a_short_conversation_is_summarised_too_when_that_is_asked_for():
    turn, _ = await compact(talk(10), Summariser(says("short")), 200_000, keep=1_000_000)
    assert [m.source for m in turn.messages[1:]] == ["m8", "m8", "m9", "m9", "m10", "m10", "m11"]


async def test_the_newest_step_is_never_moved_and_a_failure_stays_a_failure():
    failure = Message("user", (ToolResult("c1", "no " * 5_000, is_error=True),))
    messages = [asked(1), step("c1")[0], failure]
    _, word = await compact(messages, Summariser(says("")), 1, enabled=False)
    assert word is None
    turn, word = await compact([*messages, *step("c2")], Summariser(says("")), 1, enabled=False)
    assert word
    (moved,) = turn.messages[2].results
    assert moved.is_error
    assert json.loads(moved.content)["success"] is False


async def test_the_oldest_output_goes_first_and_no_more_than_needed():
    messages = [*(m for n in range(9) for m in turn_of(n, "ok", *step(f"c{n}", f"{n}" * 9_000))), asked(9)]
    turn, _ = await compact(messages, Summariser(says("short")), 1, enabled=False)
    whole = [len(r.content) == 9_000 for m in turn.messages for r in m.results]
    assert whole == [False] * whole.count(False) + [True] * whole.count(True)
    assert whole.count(False) in (3, 4)


async def test_long_arguments_follow_when_results_are_not_enough_and_pictures_leave_words():
    code = "code " * 5_000
    picture = Message("user", (Text("look"), Image("attachments/a.png", "image/png")), source="m1")
    messages = [picture, *step("c1", "ok", path="a.py", text=code), *turn_of(2, "ok"), asked(3)]
    files = Files()
    turn, _ = await compact(messages, Summariser(says("")), 1, files=files, enabled=False)
    (call,) = [c for m in turn.messages for c in m.calls]
    assert call.arguments["path"] == "a.py"
    assert "25000 characters were moved to tool-output/" in call.arguments["text"]
    assert list(files.texts.values()) == [code]
    assert turn.messages[0].text == "look(the picture attachments/a.png was here)"


async def test_without_leave_to_summarise_no_model_is_asked():
    model = Summariser(says("short"))
    _, word = await compact(talk(10), model, enabled=False)
    assert (word, model.requests) == (None, [])


async def test_a_conversation_of_nothing_is_left_alone():
    _, word = await compact([], Summariser(says("short")), 1, request=Request("", ()))
    assert word is None


async def test_a_refused_budget_ends_the_turn_and_leaves_the_conversation_whole():
    messages = talk(10)
    with pytest.raises(BudgetExceeded):
        await compact(messages, Summariser(lambda _: BudgetExceeded("too dear")))
    assert messages == talk(10)


async def test_a_disk_that_refuses_leaves_the_conversation_whole():
    messages = talk(10)
    _, word = await compact(messages, Summariser(says("short")), disk_full=True)
    assert word is None
    assert messages == talk(10)


async def test_of_what_does_not_fit_a_known_window_the_end_is_summarised_in_one_request_that_fits():
    model = Summariser(says("short"), 6_000)
    earlier = Message("user", (Text(f"{OPENING}\n\nann wants tea"),))
    turn, word = await compact([earlier, *talk(120)], model, 8_000)
    assert word is not None
    [asked_for] = model.requests
    text = asked_for.messages[0].text
    assert (asked_for.system, asked_for.tools, asked_for.messages[-1]) == ("", (), INSTRUCTION)
    assert request_size(asked_for) > 3_000
    assert "ann wants tea" in text
    assert LEFT_OUT in text
    assert "question 119" in text
    assert "question 7 " not in text
    assert LEFT_OUT in turn.messages[0].text


@pytest.mark.parametrize("window", [3_000, 1_000, 600])
async def test_a_summary_that_is_too_long_itself_is_asked_for_with_half_until_it_fits(window):
    model = Summariser(says("short"), window)
    turn, word = await compact(talk(10), model, None)
    assert word is not None
    sizes = [request_size(request) for request in model.requests]
    assert all(later < 0.75 * earlier for earlier, later in pairwise(sizes))
    assert sizes[-1] > window / 4
    assert len(turn.messages) < 6


async def test_a_server_that_always_says_too_long_is_asked_a_bounded_number_of_times():
    model = Summariser(says("short"), 1)
    messages = talk(10)
    _, word = await compact(messages, model, None)
    assert (word, messages) == (None, talk(10))
    assert len(model.requests) == 1 + HALVINGS


def test_reasoning_and_counts_are_stripped_and_the_rest_is_the_same():
    only_thought = Message("assistant", (Thinking("hm", MODEL),), tokens=5)
    question = asked(1)
    stripped = strip_thinking([question, only_thought, *turn_of(2)])
    assert stripped[0] is question
    assert [m.source for m in stripped] == ["m1", "m2", "m2"]
    assert stripped[2] == Message("assistant", (Text(LONG),), source="m2", model=MODEL)


async def test_a_thread_of_200_turns_keeps_every_fact_through_many_summaries():
    facts = [f"fact-{n}={n * 7919}" for n in range(1, 201)]
    window, conversation, files = 12_000, [], Files()

    def collect(request: Request) -> Message:
        text = "\n".join(m.text for m in request.messages[:-1])
        return Message("assistant", (Text(" ".join(re.findall(r"fact-\d+=\d+", text))),), model=MODEL)

    model, archived, words = Summariser(collect, window), [], []
    for n, fact in enumerate(facts, start=1):
        conversation.append(Message("user", (Text(f"[ann] remember {fact}"),), source=f"m{n}"))
        for call in (f"c{n}", None):
            request = request_of(repair(conversation))
            if too_large(request_size(request), window, 0.8, 1_000):
                turn, word = await compact(conversation, model, window, request=request, files=files)
                archived += turn.archived
                words.append(word)
                request = request_of(conversation)
            real = round(size_of("Be kind.", strip_thinking(request.messages), (SHELL,)) * 1.15)
            assert real < window
            blocks = (ToolCall(call, "shell", {"cmd": "ls"}),) if call else (Text("noted " * 60),)
            thought = Thinking("hm", MODEL, {"type": "thinking", "signature": "s"})
            source = "" if call else f"m{n}"
            conversation.append(Message("assistant", (thought, *blocks), source, MODEL, real + 100))
            if call:
                conversation.append(Message("user", (ToolResult(call, "file " * 150),)))
            check(repair(conversation))
    text = "\n".join(m.text for m in conversation)
    assert [fact for fact in facts if fact not in text] == []
    assert len(archived) == len(words) == len(model.requests)
    assert 5 < len(archived) < 40
    assert all(words)
    assert {m.source for whole in [*archived, conversation] for m in whole if m.source} == {
        f"m{n}" for n in range(1, 201)
    }


@st.composite
def long_histories(draw) -> list[Message]:
    grown = [
        replace(
            m,
            blocks=tuple(
                replace(b, content="x" * draw(st.sampled_from([5, 3_000])))
                if isinstance(b, ToolResult)
                else Text("y" * draw(st.sampled_from([5, 2_000])))
                if isinstance(b, Text)
                else b
                for b in m.blocks
            ),
        )
        for m in draw(histories())
    ]
    return repair([*grown, *draw(st.sampled_from([[], [asked(77)], [asked(77), *step("z", "z" * 3_000)]]))])


@settings(max_examples=60)
@given(
    long_histories(),
    st.lists(st.sampled_from(["short", "", "long", "call", "overflow", "down"]), min_size=1, max_size=4),
    st.sampled_from([None, 300, 1_500, 10_000]),
    st.booleans(),
)
def test_however_it_goes_compaction_ends_with_a_valid_conversation_that_is_shorter_or_untouched(
    history, fates, window, enabled
):
    def write(request: Request) -> Message | Exception:
        check([*request.messages])
        match fates[len(model.requests) % len(fates)]:
            case "overflow":
                return ContextOverflow("no")
            case "down":
                return ModelUnavailable("no")
            case "call":
                return Message("assistant", (Text("so"), ToolCall("q", "shell", {})))
            case "long":
                return Message("assistant", (Text("blah " * 2_000),))
            case text:
                return Message("assistant", (Text(text),))

    model, messages = Summariser(write), list(history)

    async def until_it_gives_up() -> None:
        for _ in range(60):
            before, asked_for = list(messages), len(model.requests)
            current = before[before.index(asked(77)) :] if asked(77) in before else []
            turn, word = await compact(messages, model, window, keep=400, enabled=enabled)
            assert len(model.requests) - asked_for <= ATTEMPTS + HALVINGS
            if word is None:
                assert messages == before
                return
            assert turn.archived == [before]
            assert length(messages) <= 0.9 * length(before)
            check(messages)
            assert repair(messages) is messages
            assert [m.source for m in messages[len(messages) - len(current) :]] == [m.source for m in current]
        raise AssertionError("it goes on and on")

    anyio.run(until_it_gives_up)
