"""Two bots in one thread stop talking until a person speaks."""

from __future__ import annotations

from threads.model import Author, Incoming, ThreadId
from transports.shared.bot_loop_guard import IN_A_ROW, BotLoopGuard

HERE = ThreadId("slack", "T1", "C1", "1.0")
ELSEWHERE = ThreadId("slack", "T1", "C1", "2.0")


def said(number, by="B2", thread=HERE):
    return Incoming(f"{number}.0", thread, Author(by), "beep")


def test_after_so_many_messages_in_a_row_a_bot_is_not_heard_until_a_person_speaks():
    cap = BotLoopGuard(frozenset({"B2"}))
    heard = [cap.admits(said(number)) for number in range(IN_A_ROW + 5)]
    assert heard == [True] * IN_A_ROW + [False] * 5
    assert cap.admits(said(100, thread=ELSEWHERE))
    assert cap.admits(said(101, by="U1"))
    assert cap.admits(said(102))


def test_a_message_that_comes_again_counts_once():
    cap = BotLoopGuard(frozenset({"B2"}))
    assert all(cap.admits(said(number // 3)) for number in range(3 * IN_A_ROW))
    assert not cap.admits(said(IN_A_ROW))


def test_two_bots_that_talk_to_each_other_count_together():
    cap = BotLoopGuard(frozenset({"B2", "B3"}))
    heard = [cap.admits(said(number, by=f"B{2 + number % 2}")) for number in range(IN_A_ROW + 5)]
    assert heard == [True] * IN_A_ROW + [False] * 5
