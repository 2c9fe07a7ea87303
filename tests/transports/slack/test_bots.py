"""Two bots in one thread stop talking, under whichever id one of them is listed."""

from __future__ import annotations

import pytest

from threads.model import Author, Incoming, ThreadId
from transports.slack.hear.bots import IN_A_ROW, BotCap

HERE = ThreadId("slack", "T1", "C1", "1.0")


def said(number, by="B2", thread=HERE):
    return Incoming(f"{number}.0", thread, Author(by), "beep")


def test_after_so_many_messages_in_a_row_a_bot_is_not_heard_until_a_person_speaks():
    cap = BotCap(frozenset({"B2"}))
    heard = [cap.admits(said(number)) for number in range(IN_A_ROW + 5)]
    assert heard == [True] * IN_A_ROW + [False] * 5
    assert cap.admits(said(100, thread=ThreadId("slack", "T1", "C1", "2.0")))
    assert cap.admits(said(101, by="U1"))
    assert cap.admits(said(102))


def test_a_message_that_comes_again_counts_once():
    cap = BotCap(frozenset({"B2"}))
    assert all(cap.admits(said(number // 3)) for number in range(3 * IN_A_ROW))
    assert not cap.admits(said(IN_A_ROW))


@pytest.mark.parametrize("listed", ["B2", "UB2"])
def test_a_bot_is_counted_by_the_id_it_is_listed_under(listed):
    from transports.slack.hear.message import Me, parse_message  # noqa: PLC0415

    me, bots = Me("T1", "UBOT", "BBOT"), frozenset({listed})
    cap = BotCap(bots)
    heard = []
    for number in range(IN_A_ROW + 2):
        message = {
            "ts": f"{1760000000 + number}.000100",
            "thread_ts": "1760000000.000100",
            "text": "<@UBOT> beep",
        }
        incoming = parse_message(
            {**message, "user": "UB2", "bot_id": "B2"}, "C1", me, direct=False, bots=bots
        )
        heard.append(cap.admits(incoming))
    assert heard.count(True) == IN_A_ROW
