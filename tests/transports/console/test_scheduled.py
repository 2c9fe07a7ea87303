"""A message that no person typed is shown at a console like the answer to any other."""

from __future__ import annotations

from threads.model import Taken, TextDelta, TurnSettled, TurnStarted
from transports.console.view import View, draft, posted, saw, status

ID = "schedule-s1234-1795345260"


def test_it_is_drawn_while_it_runs_and_leaves_nothing_behind():
    view = View("main")
    for event in (Taken("do it"), TurnStarted("do it"), TextDelta("half")):
        view = saw(view, "main", ID, event, 1.0)
    assert draft(view) == "half"
    assert "answering" in status(view, 2.0)
    view = saw(posted(view, "main", ID, final=True), "main", ID, TurnSettled("answered"), 3.0)
    assert (draft(view), view.room.busy, status(view, 4.0)) == ("", False, "main")


def test_in_another_thread_it_is_counted_as_unread():
    view = posted(saw(View("main"), "work", ID, TurnStarted("do it"), 1.0), "work", ID, final=True)
    view = saw(view, "work", ID, TurnSettled("answered"), 2.0)
    assert status(view, 3.0) == "main | unread: work (1)"
