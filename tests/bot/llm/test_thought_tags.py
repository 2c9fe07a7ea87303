"""Thoughts that arrive as text are told from the answer, however a server cuts the text into pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.extensions.openai.chat import OpenAIChatModel
from bot.llm.adapters.thought_tags import ANSWER, THOUGHTS, ThoughtTags
from docs.generate.servers import ANSWER_MARKS, THOUGHT_MARKS
from tests.bot.llm.apis import ANSWERS as ANSWERED
from tests.bot.llm.apis import each_api
from tests.bot.llm.conftest import ask, user
from tests.fakes.anthropic import Text as Piecewise
from tests.fakes.openai import chunk, stream
from threads import model as words

ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
ANSWERS = {
    "no tags": ("Hello", "", "Hello"),
    "both tags": ("<think>hm\n</think>\n\nHello", "hm\n", "Hello"),
    "blank before the tags": ("\n <think>hm</think>Hello", "hm", "Hello"),
    "no thought": ("<think>\n\n</think>\n\nHello", "\n\n", "Hello"),
    "only the last tag": ("hm, so\n</think>\n\nHello", "hm, so\n", "Hello"),
    "only the last tag, at the end of a line": ("hm, so</think>Hello", "hm, so", "Hello"),
    "no end": ("<think>hm </thin", "hm </thin", ""),
    "no answer": ("<think>hm</think>\n", "hm", ""),
    "two thoughts": ("<think>a</think>\n<think>b</think>\nHello", "ab", "Hello"),
    "a thought within the answer": ("One\n<think>hm</think>\nTwo", "hm", "One\nTwo"),
    "a line of marks, which is no thought": (
        "Begin with\n<think>\nand go on.",
        "\nand go on.",
        "Begin with\n<think>\nand go on.",
    ),
    "in any case": ("<THINK>hm</Think>Hello", "hm", "Hello"),
    "in a fence": ("```\n<think>\na</think>\n```\nb", "", "```\n<think>\na</think>\n```\nb"),
    "the last tag in a fence": ("Write\n~~~xml\n</think>\n~~~", "", "Write\n~~~xml\n</think>\n~~~"),
    "after a fence": ("```\nx\n```\nhm</think>Hello", "```\nx\n```\nhm", "Hello"),
    "within a piece of code": ("Put `a </think> b` there", "", "Put `a </think> b` there"),
    "in quotation marks": ("The mark '[/THINK]' ends it", "", "The mark '[/THINK]' ends it"),
    "gpt-oss": (f"{ANALYSIS}hm<|end|><|start|>assistant{FINAL}Hello<|return|>", "hm", "Hello"),
    "gpt-oss, thinking twice": (
        f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|><|start|>assistant{FINAL}Hi",
        "ab",
        "Hi",
    ),
    "gpt-oss, without a thought": (f"{FINAL}Hello", "", "Hello"),
    "Command": ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hello<|END_RESPONSE|>", "hm", "Hello"),
    "OpenThinker": (
        "<|begin_of_thought|>hm<|end_of_thought|>\n<|begin_of_solution|>Hello<|end_of_solution|>",
        "hm",
        "Hello",
    ),
    **{mark.text: (f"{mark.text}hm{mark.end}\n\nHello", "hm", "Hello") for mark in THOUGHT_MARKS},
    **{f"only {mark.end}": (f"hm{mark.end}Hello", "hm", "Hello") for mark in THOUGHT_MARKS},
    **{
        f"{mark.text} in code": (
            f"It is `{mark.text}`, `{mark.end}`",
            "",
            f"It is `{mark.text}`, `{mark.end}`",
        )
        for mark in THOUGHT_MARKS
    },
    **{
        f"{mark.text} {mark.end} around the answer": (
            f"<think>hm</think>{mark.text}Hello{mark.end}",
            "hm",
            "Hello",
        )
        for mark in ANSWER_MARKS
    },
    "a tag after the thought": ("<think>a</think>b</think>c", "a", "b</think>c"),
    "a tag within an answer": ("Use <think>a</think>.", "", "Use <think>a</think>."),
    "a quoted tag": ("Close it with `</think>`.", "", "Close it with `</think>`."),
    "part of a tag": ("<thin", "", "<thin"),
    "less than": ("a <b and b <", "", "a <b and b <"),
    "blank": ("  \n", "", "  \n"),
    "indented": ("  a\n  b", "", "  a\n  b"),
}


def read(pieces):
    """Return the thought and the text that a reader of the pieces ends with."""
    tags, thought, text = ThoughtTags(), "", ""
    for split in [*map(tags.feed, pieces), tags.finish()]:
        if split.all_before:
            thought, text = thought + text, ""
        thought += split.thought
        text += split.text
    return thought, text


@pytest.mark.parametrize(("content", "thought", "text"), ANSWERS.values(), ids=ANSWERS)
def test_thought_and_answer_are_told_apart_also_letter_by_letter(content, thought, text):
    assert read([content]) == read(content) == (thought, text)


def test_every_mark_has_a_place_in_the_catalogue():
    assert {mark.text.lower(): mark.end.lower() for mark in THOUGHT_MARKS} == THOUGHTS
    assert {text.lower() for mark in ANSWER_MARKS for text in (mark.text, mark.end)} == set(ANSWER)
    assert all(mark.source and mark.models for mark in (*THOUGHT_MARKS, *ANSWER_MARKS))


contents = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<",
            "think>",
            "/",
            "`",
            " ",
            "\n",
            "ab",
            "```",
            "[THINK]",
            "[/THINK]",
            "[",
            FINAL,
        ]
    ),
    max_size=12,
)


@given(contents.map("".join), st.data())
@example("ab</think>`</think>", None)
def test_the_size_of_the_pieces_changes_nothing(content, data):
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8)) if data else range(len(content))
    places = [0, *sorted(cuts), len(content)]
    pieces = [content[begin:end] for begin, end in pairwise(places)]
    assert read(pieces) == read([content])


@each_api
@pytest.mark.parametrize("pieces", [1, 5, 40])
@pytest.mark.parametrize(
    "content",
    [
        "<think>let me see</think>\n\nHello!",
        "let me see</think>\n\nHello!",
        "[THINK]let me see[/THINK]Hello!",
    ],
)
async def test_thoughts_among_the_text_are_never_part_of_an_answer(complete, listener, api, content, pieces):
    done, _ = await complete(api, reply=ANSWERED[api](Piecewise(content, pieces)))
    assert listener.text == done.message.text == "Hello!"
    assert done.message.blocks[0] == words.Thinking("let me see", "p/m", {})
    assert not content.startswith(("<", "[")) or pieces == 1 or "".join(listener.thoughts) == "let me see"


@each_api
async def test_thoughts_among_the_text_are_not_sent_again(complete, api):
    said = words.Message("assistant", (words.Thinking("hm", "p/m", {}), words.Text("Hello")), model="p/m")
    _, seen = await complete(api, ask(user("hi"), said, user("and?")))
    assert "hm" not in str(seen.json)
    assert "Hello" in str(seen.json)


PARTS = {
    "reasoning_content": {"reasoning_content": "let me see"},
    "reasoning": {"reasoning": "let me see"},
    "thinking": {"thinking": "let me see"},
    "OpenRouter's details": {"reasoning_details": [{"type": "reasoning.text", "text": "let me see"}]},
    "details beside a field": {"reasoning": "let me see", "reasoning_details": [{"text": "let me see"}]},
    "Mistral's parts": {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "let me see"}]}]
    },
    "a part of text": {"content": [{"type": "thinking", "thinking": "let me see"}]},
}


@pytest.mark.parametrize("delta", PARTS.values(), ids=PARTS)
async def test_thoughts_beside_the_text_are_told_from_the_answer(complete, listener, delta):
    reply = stream(chunk(delta), chunk({"content": "Hello", "reasoning": None}), chunk(finish="stop"))
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert listener.text == done.message.text == "Hello"
    assert "".join(listener.thoughts) == "let me see"
