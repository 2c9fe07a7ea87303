"""A day of the week with every edge at once, and the rule by which the page once ended the bot."""

from __future__ import annotations

import pytest

from tests.week.__main__ import run

pytestmark = pytest.mark.timeout(900)
"""Of computing, not of waiting: a minute on a free machine."""


def test_a_day_with_every_edge_at_once_keeps_every_promise():
    told, wrong = run("all", 0.69)  # from before midnight until an hour after the restart
    assert wrong == [], told


def test_a_page_that_counts_as_a_silent_link_is_found_within_a_quarter_of_an_hour():
    _, wrong = run("web", 0.01, "silence")
    for what in ("no beat for systemd's watchdog", "systemd is told STATUS", "healthz"):
        assert any(what in one for one in wrong), (what, wrong)
