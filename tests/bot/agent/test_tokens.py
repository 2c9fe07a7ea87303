"""How long a conversation is, before a provider has counted it."""

import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bot.agent.prompt.token_estimate import estimate, most_tokens, request_size, size_of, uncached_size
from bot.ports.model import Request, ToolSpec
from threads.model import Image, Message, Text, Thinking, ToolCall, ToolResult

TOOL = ToolSpec("shell", "Runs a command.", {"type": "object", "properties": {"cmd": {"type": "string"}}})


def user(text: str) -> Message:
    return Message("user", (Text(text),), source="m1")


def counted(tokens: int, model: str = "p/a") -> Message:
    return Message("assistant", (Text("word " * 1000),), model=model, tokens=tokens)


def test_latin_text_has_3_5_characters_a_token_and_dense_scripts_1_2():
    assert estimate("") == 0
    assert estimate("a" * 3_500) == 1_000
    assert estimate("漢" * 1_200) == 1_000
    assert estimate("ไ" * 1_200) == 1_000
    assert estimate("a" * 3_500 + "漢" * 1_200) == 2_000
    assert 1_000 < estimate("я" * 3_500) < 2_500


@given(st.text(st.characters(), max_size=50), st.text(st.characters(), max_size=50))
def test_more_text_is_never_fewer_tokens_and_never_more_than_its_bytes(a, b):
    assert estimate(a) <= estimate(a + b) <= len((a + b).encode("utf-8", "surrogatepass"))


def test_every_kind_of_block_counts():
    empty = size_of("", [user("")], [])
    blocks = [
        Text("x" * 350),
        ToolCall("c1", "shell", {"cmd": "x" * 350}),
        ToolResult("c1", "x" * 350),
        Thinking("", "p/a", {"type": "redacted", "data": "x" * 350}),
        Image("attachments/a.png", "image/png"),
    ]
    for block in blocks:
        assert size_of("", [Message("user", (block,))], []) >= empty + 100
    assert empty + 100 <= size_of("x" * 350, [user("")], []) <= empty + 110
    assert size_of("", [user("")], [TOOL]) > empty


def test_the_newest_real_count_stands_for_all_that_it_covers():
    after = user("x" * 350)
    messages = [user("q" * 99_999), counted(70), user("more"), counted(5_000), after]
    assert size_of("s" * 9_999, messages, [TOOL]) == 5_000 + size_of("", [after], [])
    assert request_size(Request("s" * 9_999, messages, [TOOL])) == size_of("s" * 9_999, messages, [TOOL])
    assert size_of("", [*messages, counted(0)], []) > 5_000 + 1_400


def test_without_a_count_all_of_it_is_estimated():
    assert size_of("s" * 3_500, [user("x" * 3_500), counted(0)], [TOOL]) > 2_000 + 1_400


def test_new_to_a_model_is_what_follows_its_own_newest_count_and_the_answer():
    other = replace(counted(70, "p/b"), blocks=(Text("x" * 350),))
    request = Request("s" * 9_999, [user("q" * 99_999), counted(90_000), user("x" * 350), other], [TOOL])
    new = size_of("", [user("x" * 350), replace(other, tokens=0)], [])
    assert uncached_size(request, "p/a") == new + 1_000
    assert uncached_size(replace(request, max_tokens=50), "p/a") == new + 50
    assert uncached_size(request, "p/b") == 1_000


def test_all_of_a_prompt_is_new_to_a_model_that_never_counted_it():
    request = Request("s" * 350, [user("q" * 3_500), replace(counted(7), blocks=())], [TOOL])
    assert uncached_size(request, "p/c") == size_of(request.system, request.messages[:1], [TOOL]) + 1_000


def test_the_upper_bound_is_the_bytes_of_what_nobody_counted():
    message = user("漢" * 100)
    assert most_tokens(Request("s" * 50, [message])) == most_tokens(Request("s" * 50, [user("x" * 300)]))
    bound = most_tokens(Request("s" * 99_999, [user("q" * 99_999), counted(5_000), message], [TOOL]))
    assert 5_300 <= bound <= 7_000


def test_the_upper_bound_counts_the_schema_of_the_answer():
    request = Request("", [user("q"), counted(5_000)])
    assert most_tokens(replace(request, output_schema={"x": "y" * 500})) > most_tokens(request) + 500


def test_the_upper_bound_does_not_trust_what_another_model_counted():
    request = Request("", [user("q" * 50_000), counted(10, "p/a"), user("x"), counted(20, "p/b"), user("y")])
    assert most_tokens(request) < 2_000
    assert 6_000 < most_tokens(request, "p/a") < 8_000
    assert most_tokens(request, "p/c") > 50_000


blocks = st.one_of(
    st.builds(Text, st.text(st.characters(), max_size=30)),
    st.builds(
        ToolCall, st.just("c"), st.just("t"), st.dictionaries(st.text(max_size=3), st.text(max_size=9))
    ),
    st.builds(ToolResult, st.just("c"), st.text(max_size=30)),
    st.builds(Thinking, st.just("hm"), st.just("p/a"), st.just({"signature": "s" * 40})),
    st.just(Image("a.png", "image/png")),
)
messages = st.lists(
    st.builds(
        lambda role, b, tokens: Message(role, tuple(b), tokens=tokens if role == "assistant" else 0),
        st.sampled_from(["user", "assistant"]),
        st.lists(blocks, max_size=3),
        st.sampled_from([0, 0, 40]),
    ),
    max_size=6,
)


@given(messages)
def test_the_upper_bound_is_never_below_the_estimate(history):
    request = Request("Be kind.", history, [TOOL])
    assert most_tokens(request) >= request_size(request) + 500


def test_a_long_history_is_measured_in_a_few_milliseconds():
    history = [user("word " * 200) if n % 2 else counted(0) for n in range(500)]
    history[400] = counted(90_000)
    begun = time.process_time()
    for _ in range(20):
        size_of("", history, [])
        most_tokens(Request("", history))
    assert (time.process_time() - begun) / 20 < 0.02
