"""Which buttons go when they are pressed, and which stay with their draft or question."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.world import message
from threads.model import Incoming, Taken
from transports.base.presses import Presses


@dataclass(frozen=True)
class Press:
    incoming: Incoming
    ephemeral: bool = False


@pytest.mark.parametrize(
    ("command", "goes"),
    [("/retry m1", True), ("/stop", False), ("/approve q1 once", False), ("/deny", False)],
)
def test_a_button_goes_when_its_press_is_taken_but_for_those_of_a_draft_or_a_question(command, goes):
    presses, press = Presses(), Press(message(1, command))
    presses.pressed(press)
    assert presses.taken("m1", Taken(again=False, text=command)) == (press if goes else None)
