"""Thoughts that arrive as text are told from the answer, however a server cuts the text into pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.llm.adapters.openai_chat import OpenAIChatModel
from bot.llm.adapters.thought_tags import ThoughtTags
from tests.fakes.openai import chunk, stream
from threads import model as words

ANSWERS = {
    "no tags": ("Hello", "", "Hello"),
    "both tags": ("<think>hm\n</think>\n\nHello", "hm\n", "Hello"),
    "blank before the tags": ("\n <think>hm</think>Hello", "hm", "Hello"),
    "no thought": ("<think>\n\n</think>\n\nHello", "\n\n", "Hello"),
    "only the last tag": ("hm, so\n</think>\n\nHello", "hm, so\n", "Hello"),
    "only the last tag, at the end of a line": ("hm, so</think>Hello", "hm, so", "Hello"),
    "no end": ("<think>hm </thin", "hm </thin", ""),
    "no answer": ("<think>hm</think>\n", "hm", ""),
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
def test_thought_and_answer_are_told_apart(content, thought, text):
    assert read([content]) == (thought, text)


contents = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "think>", "/", "`", " ", "\n", "ab"]), max_size=12
)


@given(contents.map("".join), st.data())
@example("ab</think>`</think>", None)
def test_the_size_of_the_pieces_changes_nothing(content, data):
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8)) if data else range(len(content))
    places = [0, *sorted(cuts), len(content)]
    pieces = [content[begin:end] for begin, end in pairwise(places)]
    assert read(pieces) == read([content])


async def test_thoughts_among_the_text_are_never_part_of_an_answer(complete, listener):
    pieces = ["<thi", "nk>let me ", "see</th", "ink>\n\n", "Hello", "!"]
    reply = stream(*(chunk({"content": piece}) for piece in pieces), chunk(finish="stop"))
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert listener.text == done.message.text == "Hello!"
    assert "".join(listener.thoughts) == "let me see"


async def test_text_that_turns_out_to_be_thought_is_taken_back(complete, listener):
    pieces = ["let me ", "see\n</think>", "\n\nHello", "!"]
    reply = stream(*(chunk({"content": piece}) for piece in pieces), chunk(finish="stop"))
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert listener.text == done.message.text == "Hello!"
    assert done.message.blocks[0] == words.Thinking("let me see\n", done.message.blocks[0].model, {})
