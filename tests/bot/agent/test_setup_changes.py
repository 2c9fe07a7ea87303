"""What a thread is told about its model and its tools: once, with the first answer after a change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.prompt.setup_changes import (
    CHOSEN,
    ModelSetup,
    answered_setup,
    changes,
    latest_setup,
    missed_tools,
)
from tests.world import calls
from threads.model import Message, Text

NAMES = st.text("abcdefgh_-", min_size=1, max_size=8)


def setup(model="p/one", *tools):
    return ModelSetup(model, frozenset(tools))


def turn(n, record="", *, answered=True):
    asked = Message("user", (Text("?"),), source=f"m{n}", setup=record)
    return [asked, *([Message("assistant", (Text("!"),), source=f"m{n}")] if answered else [])]


@given(NAMES.map("p/{}".format), st.frozensets(NAMES), st.sampled_from(["", "user:U1"]))
def test_a_record_is_read_as_it_was_written(model, tools, scope):
    assert ModelSetup.parse(str(ModelSetup(model, tools, scope))) == ModelSetup(model, tools, scope)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (setup(), setup(), ""),
        (setup("p/one", "a"), setup("p/one", "a"), ""),
        (setup(), setup("p/two"), "(Since my last answer here: p/two is my model now, in place of p/one.)"),
        (setup(CHOSEN), setup("p/two"), ""),
        (setup(), setup(CHOSEN), ""),
        (setup("p/one", "a"), setup(), "(Since my last answer here: I can no longer use `a`.)"),
        (
            setup("p/one", "a", "b"),
            setup("p/two", "c", "d", "e"),
            (
                "(Since my last answer here: p/two is my model now, in place of p/one; I can no longer use `a` and `b`; "
                "I can now use `c`, `d` and `e`.)"
            ),
        ),
        (
            setup(),
            setup("p/one", *"abcdefgh"),
            "(Since my last answer here: I can now use `a`, `b`, `c`, `d`, `e` and 3 more.)",
        ),
    ],
)
def test_the_note_names_what_changed_but_not_what_people_chose(old, new, note):
    assert changes(old, new) == note


def test_what_counts_is_the_last_answer_not_a_turn_that_failed():
    assert answered_setup([]) == latest_setup([]) == ""
    assert answered_setup(turn(1, "x", answered=False)) == ""
    history = [*turn(1, "x"), *turn(2), *turn(3, "y", answered=False)]
    assert (answered_setup(history), latest_setup(history)) == ("x", "y")
    assert answered_setup([*history, *turn(4)]) == "y"


def test_people_with_a_scope_of_their_own_are_compared_with_themselves():
    everybody, own = "p/one  ", "p/two  user:U2"
    history = [*turn(1, everybody), *turn(2, own), *turn(3, everybody)]
    assert answered_setup(history) == everybody
    assert answered_setup(history, "user:U2") == own
    assert answered_setup(history, "user:U3") == ""


def test_a_summary_carries_on_what_was_answered_before_it():
    summary = Message("user", (Text("Summary"),), setup="x")
    assert answered_setup([summary, *turn(2, "y", answered=False)]) == "x"


def test_the_model_is_told_only_of_tools_that_it_used():
    used = [replace(calls("shell", id="c1"), source="")]
    old, new = setup("p/one", "shell", "browser"), setup("p/one")
    assert missed_tools(old, new, used) == ["shell"]
    assert missed_tools(old, new, []) == []
