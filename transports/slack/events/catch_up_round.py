"""What a round of a catch-up found in one channel: the messages, and the threads that moved. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from threads.model import Incoming
from transports.slack.api.json_fields import Shape, instant, stamp


@dataclass(slots=True)
class CatchUpRound:
    """What one round found in a channel after ``since``: at most so many, the oldest; ``cut`` is where they end.

    ``threads`` are to be read; of those in ``unsure`` the pages so far do not show whether they moved.
    """

    since: Decimal
    most: int
    messages: dict[str, Incoming] = field(default_factory=dict)
    threads: dict[str, None] = field(default_factory=dict)
    cut: bool = False
    unsure: set[str] = field(init=False)
    back: int = 0
    """Pages that were read for the sake of those alone."""

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
        """Note whether a message of the channel shows a thread that moved; False for one before ``since``."""
        ts, root, latest = (stamp(message, name) for name in ("ts", "thread_ts", "latest_reply"))
        self.unsure -= {ts, root}
        if root and instant(latest or ts or root) > self.since:
            self.threads[root] = None
        elif latest or not root:
            self.threads.pop(root or ts, None)
        return not ts or instant(ts) > self.since

    def goes_back(self) -> bool:
        """Say whether to read a page more: it may show many threads at once, where else each takes a call."""
        self.back += 1
        return len(self.unsure) > self.back
