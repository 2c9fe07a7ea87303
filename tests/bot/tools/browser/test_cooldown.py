"""When a feature that failed is used again: the whole table."""

import pytest

from bot.tools.browser.cooldown import COOLDOWN_S, Switch

ON, OFF, TRYING = Switch(), Switch("off", 100.0), Switch("trying", 100.0)


@pytest.mark.parametrize(
    ("switch", "now", "after", "may"),
    [
        (ON, 0, ON, True),
        (OFF, 0, OFF, False),
        (OFF, 99.9, OFF, False),
        (OFF, 100, TRYING, True),
        (OFF, 1e9, TRYING, True),
        (TRYING, 1e9, TRYING, False),
    ],
)
def test_who_asks_may_use_what_is_on_and_one_may_try_what_was_off(switch, now, after, may):
    assert switch.asked(now) == (after, may)


@pytest.mark.parametrize(
    ("switch", "how", "after"),
    [
        (ON, "worked", ON),
        (ON, "given up", ON),
        (ON, "failed", Switch("off", 200 + COOLDOWN_S)),
        (OFF, "worked", OFF),
        (OFF, "given up", OFF),
        (OFF, "failed", OFF),
        (TRYING, "worked", ON),
        (TRYING, "failed", Switch("off", 200 + COOLDOWN_S)),
        (TRYING, "given up", Switch("off", 200)),
    ],
)
def test_what_a_call_came_to_decides_what_is_next(switch, how, after):
    assert switch.ended(how, 200) == after


def test_a_try_that_was_given_up_leaves_the_next_call_to_try():
    switch, _ = TRYING.ended("given up", 200).asked(200)
    assert switch.state == "trying"
