from math import inf

import pytest

from threads.model import (
    Outgoing,
    QuestionClosed,
    Resumed,
    StagesChanged,
    StageShown,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    UsageCounted,
    Waiting,
)
from transports.console.view import MAX_TOOL_LINES, TAIL, View

MAIN = ThreadId("console", "local", "tty", "main")


def stages(*states):
    return StagesChanged("triage", tuple(StageShown(f"s{n}", state) for n, state in enumerate(states)))


def after(*events, view=None, name="main", message_id="m1", now=0.0):
    view = view or View("main")
    for event in events:
        view.threads[name].apply(message_id, event, now)
    return view


@pytest.mark.parametrize(
    ("events", "text", "line"),
    [
        ([], "", "main"),
        ([TurnStarted()], "", "main | thinking… 3 s"),
        ([TurnStarted(), TextDelta("a"), TextDelta("b")], "ab", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a"), TextReset(), TextDelta("b")], "b", "main | answering… 3 s"),
        ([TurnStarted(), ToolStarted("shell", label="running ls\n-l")], "", "main | running ls -l… 3 s"),
        ([TurnStarted(), ToolStarted("a"), ToolStarted("b"), ToolFinished("a", ok=True)], "", "main | b… 3 s"),
        ([TurnStarted(), ToolStarted("a"), ToolFinished("a", ok=False)], "", "main | thinking… 3 s"),
        ([TurnStarted(), ToolFinished("never started", ok=False)], "", "main | thinking… 3 s"),
        ([TurnStarted(), TextDelta("a"), ToolStarted("x"), ToolFinished("x", ok=True), TextDelta("b"), TextReset()],
         "a", "main | thinking… 3 s"),
        ([TurnStarted(), Waiting("rate limited", 20, 2, 6)], "",
         "main | waiting: rate limited, trying again in 17 s, 2 of 6"),
        ([TurnStarted(), Waiting("rate limited", 2, 1, 6)], "", "main | waiting: rate limited"),
        ([TurnStarted(), Waiting("your decision", inf)], "", "main | waiting: your decision"),
        ([TurnStarted(), Waiting("x", 20, 2, 6), Resumed()], "", "main | thinking… 3 s"),
        ([TurnStarted(), Waiting("x", 20, 2, 6), TextDelta("a")], "a", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a"), TurnSettled("answered")], "", "main"),
        ([TextDelta("the start was dropped")], "the start was dropped", "main | answering… 3 s"),
        ([TurnStarted(), TextDelta("a\x1b[2J\x9bb")], "a[2Jb", "main | answering… 3 s"),
        ([TurnStarted(), stages("running", "waiting"), stages("passed", "running"), ToolStarted("a")],
         "triage\n✓ s0\n▸ s1", "main | a… 3 s"),
    ],
)  # fmt: skip
def test_events_become_a_draft_and_a_status_line(events, text, line):
    view = after(*events)
    assert (view.draft, view.status(3.0)) == (text, line)


@pytest.mark.parametrize(
    ("cost", "used"),
    [(0.01234, "a/b, $0.0123"), (0.0, "a/b"), (None, "a/b")],
    ids=["known", "free", "unknown"],
)
def test_the_line_ends_with_the_model_of_the_newest_answer_and_its_cost(cost, used):
    view = after(TurnStarted(), UsageCounted("a/b", 10, 0.0, cost))
    assert view.status(3.0) == f"main | thinking… 3 s | {used}"
    assert after(TurnSettled("answered"), view=view).status(3.0) == f"main | {used}"
    view.switch_to("work")
    assert view.status(3.0) == "work"


def test_a_tool_that_ran_leaves_a_line_for_the_next_post_of_its_thread():
    view = after(
        TurnStarted(),
        ToolStarted("shell", "sleep\n9", "1", "running sleep\n9"),
        ToolStarted("shell", "false", "2", "running false"),
        ToolFinished("shell", ok=False, call_id="2"),
        ToolFinished("shell", ok=True, call_id="1"),
        TurnSettled("stopped"),
    )
    assert view.take_tool_lines("main") == ["running false: did not work", "running sleep 9"]
    assert view.take_tool_lines("main") == view.take_tool_lines("other") == []


def test_only_the_last_lines_about_tools_are_stored():
    steps = [
        step
        for n in range(MAX_TOOL_LINES + 1)
        for step in (ToolStarted(f"t{n}"), ToolFinished(f"t{n}", ok=True))
    ]
    lines = after(*steps).take_tool_lines("main")
    assert len(lines) == MAX_TOOL_LINES
    assert "t1" in lines[0]


def test_a_message_waits_until_its_turn_starts_or_it_is_settled_without_one():
    view = View("main")
    view.thread.queued |= dict.fromkeys(("m1", "m2", "m3"), message := object())
    assert view.status(0) == "main | 3 waiting"
    after(TurnStarted(), view=view)
    assert view.status(0) == "main | thinking… 0 s | 2 waiting"
    after(TurnSettled("merged"), view=view, message_id="m2")
    assert view.status(0) == "main | thinking… 0 s | 1 waiting"
    after(TurnSettled("answered"), view=view)
    assert view.status(0) == "main | 1 waiting"
    after(TurnSettled("stopped"), view=view, message_id="m3")
    assert view.thread.dropped == [message]
    assert not view.thread.busy


def test_events_of_a_message_that_is_not_live_change_nothing():
    view = after(TurnStarted(), TextDelta("mine"))
    after(TextDelta("late"), TextReset(), Waiting("x", 1), view=view, message_id="m0")
    assert view.threads == after(TurnStarted(), TextDelta("mine")).threads


@pytest.mark.parametrize(
    ("message_id", "final", "draft"), [("m1", False, "a"), ("m0", True, "a"), ("m1", True, "")]
)
def test_the_final_post_takes_the_draft_away_and_a_notice_does_not(message_id, final, draft):
    view = after(TurnStarted(), TextDelta("a"))
    view.add_post("main", message_id, final=final)
    assert view.draft == draft


def test_another_thread_shows_as_busy_and_unread_until_it_is_visited():
    view = after(TurnStarted(), TextDelta("here"), view=after(TurnStarted(), TextDelta("there"), name="work"))
    assert (view.draft, view.status(0)) == ("here", "main | answering… 0 s | busy: work")
    view.switch_to("work")
    assert view.draft == "there"
    view.switch_to("main")
    after(TurnSettled("answered"), view=view)
    view.add_post("work", "m1", final=True)
    after(TurnSettled("answered"), view=view, name="work")
    view.add_post("work", "", final=False)
    assert view.status(0) == "main | unread: work (2)"
    stored = {"old": "its words", "work": "of work"}
    assert view.listing(stored) == "* main\n  work (2 unread)  of work\n  old              its words"
    view.switch_to("work")
    assert (view.draft, view.status(0)) == ("", "work")
    view.switch_to("main")
    assert view.status(0) == "main"


def test_what_is_printed_for_good_is_not_in_the_draft_and_a_stop_or_an_answer_does_not_repeat_it():
    view = after(TurnStarted(), TextDelta("first"), ToolStarted("x"), TextDelta("one\n\ntwo\n"))
    assert view.thread.live.take_finished() == "first\n\none"
    assert view.draft == "two"
    assert view.take_text(Outgoing(MAIN, "k", "one\n\ntwo\n\n3", "notice", "m1")) == "one\n\ntwo\n\n3"
    assert (
        view.take_text(Outgoing(MAIN, "k", "A note.\n\none\n\ntwo\n3", reply_to="m1")) == "two\n3\n\nA note."
    )
    assert view.take_text(Outgoing(MAIN, "k", "else", reply_to="m1")) == "else"
    after(TurnSettled("stopped", shown="first\n\none\n\ntwo"), view=view)
    assert view.take_text(Outgoing(MAIN, "k", "Stopped.")) == "two\n\n(Stopped here.)\n\nStopped."


def test_a_block_that_is_longer_than_what_is_stored_waits_for_the_answer():
    view = after(TurnStarted(), TextDelta("one\n\n" + "x" * TAIL), TextDelta("\n\nthree\n"))
    assert view.thread.live.take_finished() == ""
    assert view.take_text(Outgoing(MAIN, "k", "all of it", reply_to="m1")) == "all of it"


def test_only_the_tail_of_a_long_draft_is_stored():
    view = after(TurnStarted(), TextDelta("x" * TAIL), TextDelta("end"))
    assert len(view.draft) == TAIL
    assert view.draft.endswith("xend")


@pytest.mark.parametrize(
    ("event", "left"), [(QuestionClosed("a", approved=True), {"b"}), (TurnSettled("stopped"), set())]
)
def test_a_question_is_open_until_it_is_closed_or_its_turn_is_over(event, left):
    view = View("main")
    view.thread.questions |= {"a", "b"}
    assert after(event, view=view).thread.questions == left
