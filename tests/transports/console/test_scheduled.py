"""A message that no person typed is shown at a console like the answer to any other."""

from __future__ import annotations

from threads.model import Taken, TextDelta, TurnSettled, TurnStarted
from transports.console.view import View

ID = "schedule-s1234-1795345260"


def test_it_is_drawn_while_it_runs_and_leaves_nothing_behind():
    view = View("main")
    for event in (Taken("do it"), TurnStarted("do it"), TextDelta("half")):
        view.thread.apply(ID, event, 1.0)
    assert view.draft == "half"
    assert "answering" in view.status(2.0)
    view.add_post("main", ID, final=True)
    view.thread.apply(ID, TurnSettled("answered"), 3.0)
    assert (view.draft, view.thread.busy, view.status(4.0)) == ("", False, "main")


def test_in_another_thread_it_is_counted_as_unread():
    view = View("main")
    view.threads["work"].apply(ID, TurnStarted("do it"), 1.0)
    view.add_post("work", ID, final=True)
    view.threads["work"].apply(ID, TurnSettled("answered"), 2.0)
    assert view.status(3.0) == "main | unread: work (1)"
