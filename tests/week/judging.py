"""What is judged when the week is over, from the bot's files, beside what the judges of the soak say."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.judge import soak
from tests.judge.records import Fields, read_lines
from tests.week.faults import ZONE
from tests.week.people import DAY_S

REMINDERS = "web::p8:reminders"
JUDGES = {"slack": soak.OfSlack, "discord": soak.OfDiscord, "web": soak.OfWeb}


@dataclass(frozen=True)
class Verdict:
    """``log`` counts the events that were logged, and ``asked`` is how many calls the providers got.

    ``journal.jsonl`` in the folder has every line that was ever in the bot's.
    """

    folder: Path
    start: float
    days: float
    places: dict[str, Any]
    log: Counter[str]
    asked: int

    def faults(self) -> Iterator[str]:
        lines = list(filter(None, read_lines((self.folder / "journal.jsonl").read_bytes())))
        yield from self._reminders([one for one in lines if one["thread_id"] == REMINDERS])
        yield from self._console([one for one in lines if one["thread_id"].startswith("console:")])
        yield from self._money()
        yield from self._unreached()
        self._hide_reminders()
        for name in filter(JUDGES.__contains__, self.places):
            judge = JUDGES[name](self.folder / name)
            judge.run()
            self.log[f"{name} settled"] = len(judge.settled)
            yield from (f"{name}: {violation}" for violation in judge.violations)

    def _hide_reminders(self) -> None:
        """Give the judges the whole journal, but for the thread that is judged here."""
        whole = (self.folder / "journal.jsonl").read_bytes().split(b"\n")
        kept = b"\n".join(line for line in whole if REMINDERS.encode() not in line)
        (self.folder / "data" / "journal.jsonl").write_bytes(kept)
        for folder in (self.folder / "data" / "threads").glob("web/*reminders"):
            shutil.rmtree(folder)

    def _reminders(self, lines: Sequence[Fields]) -> Iterator[str]:
        """Each night at half past two a reminder comes once, also when the clocks change, and is answered."""
        found = Counter(
            int(one["message_id"].rpartition("-")[2])
            for one in lines
            if one["kind"] == "settled" and one["outcome"] == "answered" and "schedule-" in one["message_id"]
        )
        due = Counter(self._due() if "web" in self.places else ())
        if found != due:
            yield f"reminders: {sorted(found.items())}, expected {sorted(due.items())}"

    def _due(self) -> Iterator[int]:
        day = datetime.fromtimestamp(self.start, ZoneInfo(ZONE)).replace(hour=2, minute=30)
        while (day := day + timedelta(days=1)).timestamp() < self.start + self.days * DAY_S:
            skipped = datetime.fromtimestamp(day.timestamp(), ZoneInfo(ZONE)).hour > 2
            yield int(day.timestamp()) - 1800 * skipped  # then it comes at three, when the hour is over

    def _console(self, lines: Sequence[Fields]) -> Iterator[str]:
        if console := self.places.get("console"):
            received = Counter(one["text"] for one in lines if one["kind"] == "received")
            settled = Counter(one["message_id"] for one in lines if one["kind"] == "settled")
            if received != Counter(console.lines) or Counter(settled.values()) != {1: len(received)}:
                yield f"console: said {len(console.lines)}, received {received}, settled {settled}"
            for said in console.lines:
                if console.heard.count(f"re {said.split()[-1]}\n".encode()) > 1:
                    yield f"console: {said} was answered twice"

    def _money(self) -> Iterator[str]:
        """What is set aside for a call is settled once, and no call goes out without."""
        files = (self.folder / "data" / "usage").glob("*.jsonl")
        lines = [line for path in files for line in read_lines(path.read_bytes()) if line]
        reserved = {line["seq"] for line in lines if line["kind"] == "reserve"}
        settled = Counter(
            {line["seq"]: line["reserve"] for line in lines if line["kind"] == "commit"}.values()
        )
        if settled != Counter(reserved):
            yield f"money: {len(reserved)} reserved, {len(settled)} settled, {settled.most_common(1)} most often"
        if self.asked > len(reserved):
            yield f"money: {self.asked} calls, {len(reserved)} reserved"

    def _unreached(self) -> Iterator[str]:
        """The week has to reach every limit of time that it is there for."""
        days, log, data = round(self.days), self.log, self.folder / "data"
        # one person may not ask while all is out
        many = int("console" not in self.places or len(self.places) > 1)
        audit = [
            line
            for path in (data / "audit").glob("*.jsonl")
            for line in read_lines(path.read_bytes())
            if line
        ]
        undecided = [line for line in audit if line["kind"] == "approval" and not line["author"]]
        ends = (self.start, self.start + self.days * DAY_S)
        months = {f"{datetime.fromtimestamp(end, UTC):%Y-%m}" for end in ends}
        seen = {
            "circuits that open": (log["circuit.opened"], many),
            "circuits that close": (log["circuit.closed"], many),
            "turns that run out of time": (log["turn.failed turn_timeout"], days // 7),
            "journals written anew": (log["journal written anew"], 1 + days // 3),
            "months": (len(list((data / "usage").glob("????-??.jsonl"))), len(months)),
        }
        if "slack" in self.places:
            seen["links without an event for 600 s"] = (log["link.renewed"], 20 * days)
        if "web" in self.places:
            seen["questions that expire"] = (len(undecided), days)
        for what, (found, least) in seen.items():
            if found < least:
                yield f"never reached: {what}: {found} of {least}"
