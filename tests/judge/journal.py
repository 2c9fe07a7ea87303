"""What the journal of a simulated run says of each message, and the keys and clocks in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.judge.records import NOT_SAVED, REPEAT, key_of, read_lines, scrubbed
from tests.sim.record import Sent

BEGAN = datetime(2026, 11, 21, 10, tzinfo=UTC)
START = 1000.0


@dataclass(slots=True)
class Lifecycle:
    """What the journal tells of one message."""

    received: list[dict[str, Any]] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    answered_at: str = ""
    """When the first answer was ready, as far as the journal still has it."""
    settled: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "received":
                self.received.append(line)
                self.text = self.text if self.started else line["text"]
            case "started":
                self.started.append(line)
            case "intent" if line["post"] == "reply" and line["outcome"] == "answered":
                self.answered_at = self.answered_at or line["at"]
            case "settled" if line not in self.settled:
                self.settled.append(line)

    @property
    def outcome(self) -> str:
        return self.settled[-1]["outcome"] if self.settled else ""

    @property
    def by(self) -> str:
        return self.settled[-1].get("by", "") if self.settled else ""


def read_journal(data: bytes, lifecycles: defaultdict[str, Lifecycle]) -> Iterator[str]:
    """Enter what the journal tells into *lifecycles*, and yield what is wrong with the file itself."""
    seqs: dict[tuple[int, str], dict[str, Any]] = {}
    for line in read_lines(data):
        if line is None:
            yield "journal: a damaged line was left in place"
            continue
        if not line["seq"]:
            yield f"journal: a {line['kind']} record without its seq"
        elif seqs.setdefault((line["seq"], line["kind"]), line) != line:
            yield f"journal: seq {line['seq']} means two things"
        lifecycles[key_of(line["thread_id"], line["message_id"])].add(line)


def sibling(sent: Sent, number: int) -> str:
    """Return the key of another message of the same thread."""
    return f"{sent.key.rpartition('-')[0]}-{number}"


def namesake(sent: Sent, message_id: str) -> str:
    """Return the key of the message with this id in the same channel."""
    return f"{sent.key.rsplit(':', 1)[0]}:{message_id}"


def clock(at: str) -> float:
    """Return the seconds since the beginning; instants are cut to milliseconds."""
    return START + (datetime.fromisoformat(at) - BEGAN).total_seconds()


def plain(text: str) -> str:
    """Return a post's text without what two posts of one answer may differ by."""
    return scrubbed(text.replace(REPEAT, "").replace(NOT_SAVED, "")).strip()
