"""What is sent again is sent unchanged, and marked so that a provider's cache finds it."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.prompt_cost import TARGET, all_hits, play, priced
from bot.agent.prompt.repair import repair
from bot.config.settings import StreamTimeouts
from bot.extensions.anthropic.messages import AnthropicModel, cache_breakpoints
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.ports.model import Request, ToolSpec, Usage
from tests.bot.llm.conftest import user
from tests.fakes import anthropic, openai
from tests.fakes.anthropic import Text, Think, Tool
from tests.fakes.prompt_cache import AnthropicPromptCache
from threads import model as words
from threads.model import Message, ToolCall, ToolResult

TURNS = 50
TOOLS = (ToolSpec("go", "Goes.", {"type": "object"}), ToolSpec("look", "Looks.", {"type": "object"}))
SYSTEM = "You are a test. " * 300


def looks(turn: int, count: int) -> list[Tool]:
    return [Tool(f"tu_{turn}_{number}", "look", {"at": f"é{number}"}) for number in range(count)]


def answers(turn: int) -> list[list[Text | Think | Tool]]:
    """What the model says in a turn: mostly a text, now and then a loop, once with more calls than the lookback."""
    last = [Text(f"Answer {turn}. " * 20)]
    if turn == 20:
        return [looks(turn, 30), [Think("so many"), *looks(-turn, 25)], last]
    if turn % 4 == 2:
        return [[Think("hm"), Text("Let me see."), *looks(turn, 2)], [Think(""), *looks(-turn, 1)], last]
    return [last]


@dataclass
class Transcript:
    """What a provider saw of a thread, and what it counted."""

    bodies: list[dict] = field(default_factory=list)
    used: list[Usage] = field(default_factory=list)


def _reply(kind, body: dict, cache: AnthropicPromptCache, now: float, blocks):
    if kind is AnthropicModel:
        return anthropic.answer(*blocks, usage=cache.usage(body, now), end_usage={"output_tokens": 7})
    return openai.chat_answer(*blocks) if kind is OpenAIChatModel else openai.response_answer(*blocks)


async def play_thread(kind, http, listener, pace=lambda turn: 60.0) -> Transcript:
    """Hold a thread of `TURNS` turns; *pace* is the provider's time before a turn, each step in it takes 20 s."""
    played, cache, said, now = Transcript(), AnthropicPromptCache(), [], 0.0

    def script(seen):
        played.bodies.append(seen.json)
        return _reply(kind, seen.json, cache, now, said[0])

    fake = (anthropic.FakeAnthropic if kind is AnthropicModel else openai.FakeOpenAI)(script)
    async with fake:
        model = kind(
            "p", "m", api_key=lambda: "k", base_url=fake.base_url, http=http, timeouts=StreamTimeouts()
        )
        messages: list[Message] = []
        for turn in range(TURNS):
            now += pace(turn)
            messages.append(
                Message("user", (words.Text(f"[ann, 12:{turn}]"), words.Text(f"Question {turn}? " * 9)))
            )
            if turn % 7 == 3:
                messages.append(user("that turn failed, this is the next"))
            for blocks in answers(turn):
                said[:], now = [blocks], now + 20
                messages = repair(messages)
                request = Request(SYSTEM, tuple(messages), TOOLS, cache_key="t")
                done = await model.complete(request, listener)
                played.used.append(done.usage)
                messages.append(done.message)
                if calls := done.message.calls:
                    messages.append(
                        Message("user", tuple(ToolResult(call.id, f"seen {call.id}") for call in calls))
                    )
                    if turn % 8 == 2:
                        messages.append(user("a word in between"))
    return played


def unmarked(part):
    match part:
        case dict():
            return {name: unmarked(value) for name, value in part.items() if name != "cache_control"}
        case list():
            return [unmarked(value) for value in part]
    return part


def rendered(body: dict) -> str:
    """The request as bytes, in the order of the prompt and up to the end of what was said last."""
    said = body.get("messages") or body["input"]
    rest = {name: value for name, value in body.items() if name not in ("messages", "input")}
    return json.dumps(unmarked(rest)) + json.dumps(unmarked(said)).rstrip('"]}')


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIResponsesModel, OpenAIChatModel])
async def test_each_request_of_a_long_thread_begins_with_the_one_before(http, listener, kind):
    played = await play_thread(kind, http, listener)
    assert len(played.bodies) > TURNS
    before = ""
    for body in played.bodies:
        now = rendered(body)
        assert now.startswith(before)
        assert len(now) > len(before)
        before = now
    assert '"hm"' in before  # the thinking went back as well


@pytest.mark.parametrize(
    "pace",
    [lambda turn: 60.0, lambda turn: 2400.0, lambda turn: 3000.0 if turn % 2 else 1.0],
    ids=["a turn a minute", "one every forty minutes", "by fits and starts"],
)
async def test_all_of_a_prompt_but_its_new_part_is_read_from_the_cache(http, listener, pace):
    played = await play_thread(AnthropicModel, http, listener, pace)
    people = [usage.cache_write_1h for usage in played.used]
    for before, usage in zip([Usage(), *played.used], played.used, strict=False):
        slack = usage.prompt - before.prompt
        assert usage.cache_read <= before.prompt
        assert usage.input == 0
        assert usage.cache_write >= slack
    read = sum(usage.cache_read for usage in played.used) / sum(usage.prompt for usage in played.used)
    assert read > 0.9
    assert any(people)


async def test_in_a_quick_thread_nothing_is_written_twice(http, listener):
    played = await play_thread(AnthropicModel, http, listener, lambda turn: 20.0)
    for before, usage in zip(played.used, played.used[1:], strict=False):
        assert usage.cache_read == before.prompt


async def test_inside_a_loop_five_minutes_are_enough(http, listener):
    played = await play_thread(AnthropicModel, http, listener)
    looped = [usage for usage in played.used if usage.cache_write > usage.cache_write_1h]
    assert len(looped) == sum(len(answers(turn)) - 1 for turn in range(TURNS) if turn % 8 != 2)


async def test_after_more_than_an_hour_all_is_written_anew_and_nothing_breaks(http, listener):
    played = await play_thread(AnthropicModel, http, listener, lambda turn: 4000.0 if turn == 30 else 60.0)
    assert [usage.cache_read for usage in played.used].count(0) == 2


@pytest.mark.parametrize(
    "name", ["anthropic/claude-sonnet-5-5", "openai/gpt-6.1-sol", "openai/gpt-6.1-terra"]
)
async def test_a_thread_of_fifty_turns_costs_hardly_more_than_if_all_were_read(name):
    """Claude's prices are compared at the lifetime we choose, OpenAI's with the best there is."""
    used = await play(name, TURNS)
    price = priced(name)
    best = all_hits(used, "1h" if name.startswith("anthropic") else "5m")
    assert sum(map(price, used)) <= TARGET * sum(map(price, best))
    assert sum(usage.prompt for usage in used) == pytest.approx(947_500, rel=0.02)


def results(count: int) -> Message:
    return Message("user", tuple(ToolResult(f"c{n}", "x") for n in range(count)))


CALLS = Message("assistant", (ToolCall("c0", "look", {}),))
SAID = Message("assistant", (words.Text("a"),))
STEERED = Message("user", (ToolResult("c0", "x"), words.Text("wait")))

MARKS = {
    "a first word": ([user("a")], {0: "1h"}),
    "the second turn": ([user("a"), SAID, user("b")], {0: "1h", 2: "1h"}),
    "the third turn": ([user("a"), SAID, user("b"), SAID, user("c")], {2: "1h", 4: "1h"}),
    "one step": ([user("a"), SAID, user("b"), CALLS, results(1)], {0: "1h", 2: "1h", 4: "5m"}),
    "two steps": (
        [user("a"), SAID, user("b"), CALLS, results(1), CALLS, results(1)],
        {2: "1h", 4: "5m", 6: "5m"},
    ),
    "three steps": (
        [user("a"), CALLS, results(1), CALLS, results(1), CALLS, results(1)],
        {0: "1h", 4: "5m", 6: "5m"},
    ),
    "a word in between": ([user("a"), CALLS, STEERED], {0: "1h", 2: "1h"}),
    "a step after it": ([user("a"), CALLS, STEERED, CALLS, results(1)], {0: "1h", 2: "1h", 4: "5m"}),
}


@pytest.mark.parametrize(("messages", "expected"), MARKS.values(), ids=MARKS)
def test_marks_stand_where_the_next_request_will_look(messages, expected):
    assert cache_breakpoints(messages) == expected


@given(st.lists(st.sampled_from([user("a"), SAID, CALLS, results(1), STEERED]), max_size=12))
def test_there_are_never_more_than_three_marks_and_hours_come_first(messages):
    found = cache_breakpoints(messages)
    assert len(found) <= 3
    assert list(found) == sorted(found)
    assert list(found.values()) == sorted(found.values())
    assert all(messages[place].role == "user" for place in found)
