"""One round of a catch-up in one channel: its messages, and the threads that moved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from threads.model import Incoming
from transports.slack.api.json_fields import Shape, instant, stamp


@dataclass(slots=True)
class CatchUpRound:
    """The oldest ``most`` messages after ``since``; ``cut`` if there are more.

    ``threads`` are to be read. The pages so far do not show whether those in ``unsure`` moved. ``back`` counts the
    pages that were read for their sake.
    """

    since: Decimal
    most: int
    messages: dict[str, Incoming] = field(default_factory=dict)
    threads: dict[str, None] = field(default_factory=dict)
    cut: bool = False
    unsure: set[str] = field(init=False)
    back: int = 0

    def __post_init__(self) -> None:
        self.unsure = {*self.threads}

    def add(self, messages: Sequence[Incoming]) -> None:
        self.messages.update(
            {message.id: message for message in messages if instant(message.id) > self.since}
        )
        if len(self.messages) > self.most:
            self.messages = {message.id: message for message in self.ordered()[: self.most]}
            self.cut = True

    def ordered(self) -> list[Incoming]:
        return sorted(self.messages.values(), key=lambda message: instant(message.id))

    def note(self, message: Shape) -> bool:
        """Note whether a message shows a thread that moved. Returns False for one before ``since``."""
        ts, root, latest = (stamp(message, name) for name in ("ts", "thread_ts", "latest_reply"))
        self.unsure -= {ts, root}
        if root and instant(latest or ts or root) > self.since:
            self.threads[root] = None
        elif latest or not root:
            self.threads.pop(root or ts, None)
        return not ts or instant(ts) > self.since

    def goes_back(self) -> bool:
        """Return whether to read one more page: it may show many threads, which take a call each otherwise."""
        self.back += 1
        return len(self.unsure) > self.back
