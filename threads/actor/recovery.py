"""Recovery at a start: what to do with each message that has no outcome.

its transport is not served now      -> it waits for a start that serves it
intent on disk                       -> finish it, whatever its age, because it may have been posted; an answer
                                        that was not and is too old is told by a note (see `threads.delivery`)
younger than the limit               -> serve it, in the order of receipt
a question about it is open          -> serve it and ask again; the restart does not count as an attempt
its playbook has passed a border     -> serve it; the restart does not count as an attempt
older, or resuming is switched off   -> one note for all such messages of a thread
its text was lost to a damaged line  -> a note

The age of a turn that had begun counts from the start of its attempt, and its limit is longer by the time that a turn
may take. Later messages of its thread are served with it, because the turn may have read them already. It goes on
before an earlier message that was on its way to a refusal: that one would find it in the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from threads.journal.records import PendingMessage
from threads.model import ThreadId


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with the pending messages.

    ``serve`` is in the order of receipt, those whose turns had begun first. ``stale`` and ``cut`` map a thread to
    the messages that get one note; the turns of ``cut`` had begun. The transport of those ``elsewhere`` is not
    served now.
    """

    serve: list[PendingMessage] = field(default_factory=list)
    damaged: list[PendingMessage] = field(default_factory=list)
    stale: dict[ThreadId, list[PendingMessage]] = field(default_factory=dict)
    cut: dict[ThreadId, list[PendingMessage]] = field(default_factory=dict)
    elsewhere: list[PendingMessage] = field(default_factory=list)


def plan(
    messages: Iterable[PendingMessage],
    now: datetime,
    *,
    max_age_s: float,
    resume: bool,
    turn_s: Callable[[PendingMessage], float] = lambda _: 0.0,
    continues: Callable[[PendingMessage], bool] = lambda _: False,
    served: Callable[[str], bool] = lambda _: True,
) -> Plan:
    """Return what to do with the pending messages of another process.

    The turn of a message may take *turn_s* seconds. If *continues* says that it waited for a person, or came
    further than its attempt before, its attempts start again at 1.
    """
    result = Plan()

    def is_recent(at: str, seconds: float) -> bool:
        return at >= (now - timedelta(seconds=min(seconds, 1e9))).isoformat(timespec="milliseconds")

    going_on: set[ThreadId] = set()
    for pending in messages:
        thread, received = pending.incoming.thread, pending.received
        if not served(thread.transport):
            result.elsewhere.append(pending)
        elif pending.intent is not None:
            result.serve.append(pending)
        elif pending.damaged:
            result.damaged.append(pending)
        elif (
            pending.started
            and resume
            and (
                (harmless := continues(pending)) or is_recent(pending.started.at, max_age_s + turn_s(pending))
            )
        ):
            if harmless:  # the turn waited, or came further, so it is not what kills the process
                pending.started = replace(pending.started, attempt=1)
            result.serve.append(pending)
            going_on.add(thread)
        elif pending.started:
            result.cut.setdefault(thread, []).append(pending)
        elif resume and (is_recent(received.at, max_age_s) or thread in going_on) and not received.stale:
            result.serve.append(pending)
        else:
            result.stale.setdefault(thread, []).append(pending)
    result.serve.sort(key=lambda pending: pending.started is None)
    return result
