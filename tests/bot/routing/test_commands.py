"""What counts as a command, and what is for the model."""

import pytest

from bot.routing.commands import Command, parse


@pytest.mark.parametrize("text", ["/stop", "!stop", "stop", " Stop \n", "STOP", "/stop now please"])
def test_stop_has_many_forms(text):
    assert parse(text).name == "stop"


@pytest.mark.parametrize(
    "text", ["", "stop it", "/etc/passwd", "/ stop", "!", "please stop", "a /stop", "/1", "!!!"]
)
def test_ordinary_text_is_for_the_model(text):
    assert parse(text) is None


def test_a_command_that_does_not_exist_is_still_no_question_for_the_model():
    assert parse("/halp") == Command("", "halp")
