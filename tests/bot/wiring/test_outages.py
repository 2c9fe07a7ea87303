"""What is told of a transport that goes and comes: as values, second by second."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.wiring.outages import AGAIN_AFTER_S, STEADY_S, Outages

START = datetime(2026, 11, 22, 10, tzinfo=UTC)
DOWN = "I have been cut off from Discord"
BACK = "I am connected to Discord again"


class WatchedTransport:
    """One transport, and what people were told of it while they could be told."""

    def __init__(self) -> None:
        self.outages, self.now, self.told = Outages(), 0.0, list[str]()

    def pass_(self, state: str, seconds: int, *, tell: bool = True) -> list[str]:
        """Be in *state* for so many seconds; return what was told meanwhile."""
        before = len(self.told)
        for _ in range(seconds):
            self.now += 1
            self.outages.see("discord", state, START + timedelta(seconds=self.now), self.now)
            for news in [*self.outages.news(self.now)] if tell else ():
                self.told.append(news.text)
                self.outages.told(news, self.now)
        return self.told[before:]


def test_a_going_is_told_once_and_a_coming_back_once():
    link = WatchedTransport()
    assert link.pass_("connected", 5) == []
    assert link.pass_("reconnecting", 20) == []
    (gone,) = link.pass_("disconnected", 3000)
    assert gone.startswith(f"{DOWN} since 10:00 UTC")
    (back,) = link.pass_("connected", 60)
    assert back == f"{BACK}. I was cut off between 10:00 and 10:50 UTC."


def test_what_could_not_be_told_is_told_in_one_line_when_it_can_be():
    link = WatchedTransport()
    assert link.pass_("disconnected", 600, tell=False) == []
    assert link.pass_("connected", 60, tell=False) == []
    assert link.pass_("connected", 60) == [
        f"{BACK}. I was cut off between 10:00 and 10:10 UTC, and have not said so until now."
    ]


def test_a_going_that_could_not_be_told_is_told_while_it_lasts():
    link = WatchedTransport()
    link.pass_("disconnected", 600, tell=False)
    assert [text[: len(DOWN)] for text in link.pass_("disconnected", 60)] == [DOWN]


def test_a_link_that_flaps_is_told_of_as_one_outage():
    link = WatchedTransport()
    for _ in range(100):
        link.pass_("disconnected", 60)
        link.pass_("connected", int(STEADY_S) - 1)
    link.pass_("connected", 10)
    assert [text.partition(".")[0][: len(DOWN)] for text in link.told] == [DOWN, BACK[: len(DOWN)]]


def test_outages_that_follow_each_other_are_counted_and_told_together():
    link = WatchedTransport()
    for _ in range(4):
        link.pass_("disconnected", 30)
        link.pass_("connected", 30)
    assert len(link.told) == 2, "the first, as it went and as it came"
    (others,) = link.pass_("connected", int(AGAIN_AFTER_S))
    assert others == (
        f"{BACK}. I was cut off 3 times between 10:01 and 10:03 UTC, and have not said so until now."
    )


def test_a_transport_that_stopped_for_good_is_told_once_and_why():
    link = WatchedTransport()
    link.outages.stopped("discord", "Discord does not accept the bot token")
    (text,) = link.pass_("stopped", 100)
    assert text == (
        "I have stopped serving Discord, until somebody puts this right: Discord does not accept the bot token"
    )


@pytest.mark.parametrize("state", ["starting", "connected", "reconnecting", "stopped"])
def test_what_passes_by_itself_is_not_told(state):
    assert WatchedTransport().pass_(state, 1000) == []


def test_what_happens_while_the_word_is_on_its_way_is_told_after_it():
    link = WatchedTransport()
    link.pass_("disconnected", 10, tell=False)
    (going,) = link.outages.news(link.now)
    link.pass_("connected", 20, tell=False)
    link.outages.told(going, link.now)
    (back,) = link.outages.news(link.now)
    assert back.text.startswith(BACK)
    link.pass_("disconnected", 5, tell=False)
    link.outages.told(back, link.now)
    assert link.pass_("disconnected", 60) == []
    (again,) = link.pass_("disconnected", int(AGAIN_AFTER_S))
    assert again.startswith(f"{DOWN} since 10:00 UTC")


PERIODS = st.tuples(
    st.sampled_from(["connected", "reconnecting", "disconnected"]), st.integers(1, 400), st.booleans()
)


@given(st.lists(PERIODS, max_size=30))
def test_whatever_a_link_does_people_read_little_and_are_left_with_the_truth(periods):
    link = WatchedTransport()
    for state, seconds, tell in periods:
        link.pass_(state, seconds, tell=tell)
    assert sum(text.startswith(DOWN) for text in link.told) <= 1 + link.now / AGAIN_AFTER_S
    assert len(link.told) <= 2 * (1 + link.now / AGAIN_AFTER_S)
    link.pass_("connected", int(STEADY_S + AGAIN_AFTER_S) + 1)
    assert not link.told or link.told[-1].startswith(BACK)
    assert any(state == "disconnected" for state, _, _ in periods) == bool(link.told)
    link.pass_("disconnected", int(AGAIN_AFTER_S) + 1)
    assert link.told[-1].startswith(DOWN)
