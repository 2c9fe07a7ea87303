"""What a turn is doing, in words."""

from __future__ import annotations

import math

import pytest

from threads.model import ToolFinished, ToolStarted, Waiting
from transports.shared.live.activity import MOST_RUNNING, RunningTools, waiting_words


def test_the_newest_of_the_running_tools_speaks_and_then_the_one_before():
    running = RunningTools()
    first = running.started(ToolStarted("read_file", "a", "c1", "reading a"))
    second = running.started(ToolStarted("read_file", "b", label="reading b"))
    assert (first, running.words) == ("c1", "reading b") and second not in ("", "c1")
    found = running.finished(ToolFinished("read_file", ok=True))
    assert found == (second, ToolStarted("read_file", "b", label="reading b"))
    assert running.words == "reading a"
    assert running.finished(ToolFinished("other", ok=True)) is None
    assert running.finished(ToolFinished("read_file", ok=True, call_id="c1"))
    assert running.words == ""


def test_a_turn_with_too_many_tools_is_bounded():
    running = RunningTools()
    ids = [running.started(ToolStarted("x", "", call_id=str(number))) for number in range(MOST_RUNNING + 3)]
    assert ids.count("") == 3


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (
            Waiting("the provider is busy", 2.1, 2, 4),
            "is waiting: the provider is busy, trying again in 3 s, 2 of 4",
        ),
        (Waiting("the provider is busy", 2), "is waiting: the provider is busy, trying again in 2 s"),
        (Waiting("a slot", 0), "is waiting: a slot"),
        (Waiting("an admin", math.inf), "is waiting: an admin"),
    ],
)
def test_a_wait_says_why_and_how_long(waiting, words):
    assert waiting_words(waiting) == words
