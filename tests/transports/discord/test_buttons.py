import pytest
from hypothesis import given
from hypothesis import strategies as st

from threads.model import Choice
from transports.discord.api.values import MAX_BUTTONS, Button
from transports.discord.markdown.buttons import (
    MAX_ID,
    MAX_LABEL,
    choice_buttons,
    choices_as_text,
    command_of,
    stop_button,
    stop_mark,
    without_button,
)
from transports.discord.markdown.render import utf16_size

COMMANDS = st.from_regex(r"/(approve|deny|retry|new|model)( [a-z0-9./-]{1,30}){0,3}", fullmatch=True)
CHOICES = st.lists(st.builds(Choice, st.text(max_size=120), COMMANDS | st.text(max_size=120)), max_size=40)


def test_a_choice_is_a_button_that_stands_for_its_command():
    choices = [
        Choice("Approve", "/approve q12ab 2.5"),
        Choice("Deny", "/deny q12ab"),
        Choice("Try again", "/retry 17"),
    ]
    assert choice_buttons(choices) == (
        Button("Approve", "choice:0:/approve q12ab 2.5", "success"),
        Button("Deny", "choice:1:/deny q12ab", "danger"),
        Button("Try again", "choice:2:/retry 17", "primary"),
    )
    assert choice_buttons([Choice("Start over", "/new")])[0].style == "secondary"
    assert [command_of(button.custom_id) for button in choice_buttons(choices)] == [
        c.command for c in choices
    ]


@given(CHOICES)
def test_every_choice_is_a_button_within_the_limits_or_spelled_out(choices):
    buttons, others = choice_buttons(choices), without_button(choices)
    assert len(buttons) + len(others) == len(choices)
    assert len(buttons) <= MAX_BUTTONS
    assert len({button.custom_id for button in buttons}) == len(buttons)
    for button in buttons:
        assert 0 < utf16_size(button.label) <= MAX_LABEL
        assert button.label.strip()
        assert utf16_size(button.custom_id) <= MAX_ID
        assert command_of(button.custom_id) in {choice.command for choice in choices}
    assert len(choices_as_text(others).splitlines()) == len(others)


def test_a_long_label_is_cut_and_a_command_that_is_too_long_is_spelled_out():
    choices = [Choice("y" * 100, "/approve q1"), Choice("Pick __it__", f"/model {'m' * 100}")]
    assert [button.label for button in choice_buttons(choices)] == ["y" * 79 + "…"]
    assert without_button(choices) == (choices[1],)
    assert choices_as_text(without_button(choices)) == rf"Pick \_\_it\_\_: `/model {'m' * 100}`"
    assert choices_as_text(choices[:1]) == f"{'y' * 100}: `/approve q1`"
    assert choices_as_text([]) == ""


def test_there_are_25_buttons_at_most_and_the_rest_is_spelled_out():
    choices = [Choice(f"Model {number}", f"/model m{number}") for number in range(30)]
    assert len(choice_buttons(choices)) == MAX_BUTTONS
    assert without_button(choices) == tuple(choices[25:])


def test_a_stop_button_marks_the_message_it_stands_under_as_unfinished():
    button = stop_button("k3x9-_A")
    assert button == Button("Stop", "stop:k3x9-_A", "danger")
    assert command_of(button.custom_id) == "/stop"
    assert stop_mark(["choice:0:/new", button.custom_id]) == "k3x9-_A"
    assert stop_mark(["choice:0:/new", "", "other"]) == stop_mark([]) == ""


@pytest.mark.parametrize(
    "custom_id",
    [
        "",
        "stop",
        "stop:",
        "stop:a b",
        "stop:" + "a" * 41,
        "choice:0:",
        "choice::/new",
        "choice:0:new",
        "choice:0:/new\n",
        "choice:0:/new  x",
        "choice:0:/new x\ny",
        "choice:0:/1",
        "choice:100:/new",
        "choice:٣:/new",
        "choice:0:/" + "a" * 22,
        "choice:0:/new " + "a" * 90,
        "choice:0:/new " + "a " * 45 + "a",
        "feedback:up",
        "\ud83d",
        "choice:0:/new \x00",
        "CHOICE:0:/new",
        " choice:0:/new",
    ],
)
def test_an_id_that_is_not_exactly_ours_stands_for_nothing(custom_id):
    assert command_of(custom_id) is None
    assert stop_mark([custom_id]) == ""


@given(st.text())
def test_foreign_ids_never_fail(custom_id):
    assert command_of(custom_id) is None or custom_id.startswith(("choice:", "stop:"))
    assert not stop_mark([custom_id]) or custom_id.startswith("stop:")
