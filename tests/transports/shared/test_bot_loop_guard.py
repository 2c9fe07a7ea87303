"""Two bots in one thread stop talking until a person speaks."""

from __future__ import annotations

from itertools import cycle

import pytest

from threads.model import Author, Incoming, ThreadId
from transports.shared.bot_loop_guard import IN_A_ROW, BotLoopGuard

HERE = ThreadId("slack", "T1", "C1", "1.0")
ELSEWHERE = ThreadId("slack", "T1", "C1", "2.0")


def sent(number, by="B2", thread=HERE):
    return Incoming(f"{number}.0", thread, Author(by), "beep")


@pytest.mark.parametrize("bots", [["B2"], ["B2", "B3"]])
def test_after_so_many_messages_in_a_row_bots_are_not_heard_until_a_person_speaks(bots):
    guard = BotLoopGuard(frozenset(bots))
    admitted = [guard.admits(sent(number, by)) for number, by in zip(range(IN_A_ROW + 5), cycle(bots))]
    assert admitted == [True] * IN_A_ROW + [False] * 5
    assert guard.admits(sent(100, thread=ELSEWHERE))
    assert guard.admits(sent(101, by="U1"))
    assert guard.admits(sent(102))


def test_a_message_that_comes_again_counts_once():
    guard = BotLoopGuard(frozenset({"B2"}))
    assert all(guard.admits(sent(number // 3)) for number in range(3 * IN_A_ROW))
    assert not guard.admits(sent(IN_A_ROW))
