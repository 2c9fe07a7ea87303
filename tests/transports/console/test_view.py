from math import inf

import pytest

from threads.model import (
    QuestionClosed,
    Resumed,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.console.view import (
    TAIL,
    View,
    asked,
    draft,
    listing,
    posted,
    said,
    saw,
    status,
    took_due,
    went,
)

START = went(View("main"), "main")


def after(*events, view=START, name="main", message_id="m1", now=0.0):
    for event in events:
        view = saw(view, name, message_id, event, now)
    return view


@pytest.mark.parametrize(
    ("events", "text", "line"),
    [
        ([], "", "main"),
        ([TurnStarted()], "", "main | thinking… 3 s"),
        ([TurnStarted(), TextDelta("a"), TextDelta("b")], "ab", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a"), TextReset(), TextDelta("b")], "b", "main | answering… 3 s"),
        ([TurnStarted(), ToolStarted("shell", "ls\n-l")], "", "main | shell ls -l… 3 s"),
        ([TurnStarted(), ToolStarted("a"), ToolStarted("b"), ToolFinished("a", ok=True)], "", "main | b… 3 s"),
        ([TurnStarted(), ToolStarted("a"), ToolFinished("a", ok=False)], "", "main | thinking… 3 s"),
        ([TurnStarted(), ToolFinished("never started", ok=False)], "", "main | thinking… 3 s"),
        ([TurnStarted(), TextDelta("a"), ToolStarted("x"), ToolFinished("x", ok=True), TextDelta("b"), TextReset()],
         "a", "main | thinking… 3 s"),
        ([TurnStarted(), Waiting("rate limited", 20, 2, 6)], "",
         "main | rate limited, trying again in 17 s, 2 of 6"),
        ([TurnStarted(), Waiting("rate limited", 2, 1, 6)], "", "main | rate limited, trying again in 0 s, 1 of 6"),
        ([TurnStarted(), Waiting("waiting for your approval", 60)], "", "main | waiting for your approval, 57 s left"),
        ([TurnStarted(), Waiting("your decision", inf)], "", "main | waiting: your decision"),
        ([TurnStarted(), Waiting("many ask at once", inf)], "", "main | waiting: many ask at once"),
        ([TurnStarted(), Waiting("x", 20, 2, 6), Resumed()], "", "main | thinking… 3 s"),
        ([TurnStarted(), Waiting("x", 20, 2, 6), TextDelta("a")], "a", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a"), TurnSettled("answered")], "", "main"),
        ([TextDelta("the start was dropped")], "the start was dropped", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a\x1b[2J\x9bb")], "a[2Jb", "main | answering… 3 s"),
    ],
)  # fmt: skip
def test_events_become_a_draft_and_a_status_line(events, text, line):
    view = after(*events)
    assert (draft(view), status(view, 3.0)) == (text, line)


def test_a_tool_that_ran_leaves_a_line_for_the_next_post_of_its_thread():
    view = after(
        TurnStarted(),
        ToolStarted("shell", "sleep\n9", "1", "running sleep\n9"),
        ToolStarted("shell", "false", "2", "running false"),
        ToolFinished("shell", ok=False, call_id="2"),
        ToolFinished("shell", ok=True, call_id="1"),
        TurnSettled("stopped"),
    )
    assert view.room.due == ("running false: did not work", "running sleep 9")
    view, lines = took_due(view, "main")
    assert lines == ("running false: did not work", "running sleep 9")
    assert took_due(view, "main")[1] == took_due(view, "other")[1] == ()


def test_a_message_waits_until_its_turn_starts_or_it_is_settled_without_one():
    view = said(said(said(START, "m1"), "m2"), "m3")
    assert status(view, 0) == "main | 3 waiting"
    view = after(TurnStarted(), view=view)
    assert status(view, 0) == "main | thinking… 0 s | 2 waiting"
    view = after(TurnSettled("merged"), view=view, message_id="m2")
    assert status(view, 0) == "main | thinking… 0 s | 1 waiting"
    view = after(TurnSettled("answered"), view=view)
    assert status(view, 0) == "main | 1 waiting"
    assert after(TurnSettled("stopped"), view=view, message_id="m3").room.busy is False


def test_what_a_message_that_is_not_live_does_changes_nothing():
    view = after(TurnStarted(), TextDelta("mine"))
    assert after(TextDelta("late"), TextReset(), Waiting("x", 1), view=view, message_id="m0") == view


def test_the_final_post_takes_the_draft_away_and_a_notice_does_not():
    view = after(TurnStarted(), TextDelta("a"))
    assert draft(posted(view, "main", "m1", final=False)) == "a"
    assert draft(posted(view, "main", "m0", final=True)) == "a"
    assert draft(posted(view, "main", "m1", final=True)) == ""


def test_another_thread_shows_as_busy_and_unread_until_it_is_visited():
    view = after(TurnStarted(), TextDelta("there"), name="work")
    assert (draft(view), status(view, 0)) == ("", "main | busy: work")
    view = posted(view, "work", "m1", final=True)
    view = posted(after(TurnSettled("answered"), view=view, name="work"), "work", "", final=False)
    assert status(view, 0) == "main | unread: work (2)"
    assert listing(view) == "* main\n  work (2 unread)"
    view = went(view, "work")
    assert status(view, 0) == "work"
    assert status(went(view, "main"), 0) == "main"


def test_each_thread_keeps_its_own_draft():
    view = after(TurnStarted(), TextDelta("here"), view=after(TurnStarted(), TextDelta("there"), name="work"))
    assert draft(view) == "here"
    assert draft(went(view, "work")) == "there"


def test_only_the_tail_of_a_long_draft_is_held():
    view = after(TurnStarted(), TextDelta("x" * TAIL), TextDelta("end"))
    assert len(draft(view)) == TAIL
    assert draft(view).endswith("xend")


def test_a_question_is_open_until_it_is_closed_or_its_turn_is_over():
    both = asked(asked(START, "main", "a"), "main", "b")
    assert both.room.asked == {"a", "b"}
    assert after(QuestionClosed("a", approved=True), view=both).room.asked == {"b"}
    assert after(TurnSettled("stopped"), view=both).room.asked == frozenset()
