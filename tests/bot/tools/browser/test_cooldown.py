"""When a feature that failed is used again: the whole table."""

import pytest

from bot.tools.browser.cooldown import COOLDOWN_S, Cooldown

OFF_AGAIN = Cooldown("off", 200 + COOLDOWN_S)


@pytest.mark.parametrize(
    ("state", "now", "after", "allowed"),
    [
        ("on", 0, "on", True),
        ("off", 0, "off", False),
        ("off", 99.9, "off", False),
        ("off", 100, "trying", True),
        ("trying", 1e9, "trying", False),
    ],
)
def test_a_call_may_use_what_is_on_and_one_call_may_try_what_was_off(state, now, after, allowed):
    cooldown = Cooldown(state, 100)
    assert (cooldown.allows(now), cooldown) == (allowed, Cooldown(after, 100))


@pytest.mark.parametrize(
    ("state", "outcome", "after"),
    [
        ("on", "worked", Cooldown("on", 100)),
        ("on", "given up", Cooldown("on", 100)),
        ("on", "failed", OFF_AGAIN),
        ("off", "worked", Cooldown("off", 100)),
        ("off", "given up", Cooldown("off", 100)),
        ("off", "failed", Cooldown("off", 100)),
        ("trying", "worked", Cooldown("on", 100)),
        ("trying", "failed", OFF_AGAIN),
        ("trying", "given up", Cooldown("off", 200)),
    ],
)
def test_the_outcome_of_a_call_decides_the_next_state(state, outcome, after):
    cooldown = Cooldown(state, 100)
    cooldown.record(outcome, 200)
    assert cooldown == after
