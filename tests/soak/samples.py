"""What was measured, and what is made of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLUMNS = (
    *("second", "pid", "rss", "pss", "dirty", "tree_rss", "tasks", "fds", "sockets", "threads", "actors"),
    *("lag_s", "objects", "disk", "said", "posted"),
)

Row = dict[str, Any]


@dataclass
class Samples:
    """A row a sample; ``second`` counts from when people began to talk."""

    folder: Path
    rows: list[Row] = field(default_factory=list)
    _read: int = 0

    @property
    def probes(self) -> Path:
        return self.folder / "probes.jsonl"

    def take(self, second: float, **more: Any) -> Row | None:
        """Add what the process has told of itself since the last time, if it has."""
        if not self.probes.exists():
            return None
        whole, _, _ = self.probes.read_bytes()[self._read :].rpartition(b"\n")
        if not whole:
            return None
        self._read += len(whole) + 1
        row = {"second": round(second, 1), **json.loads(whole.split(b"\n")[-1]), **more}
        self.rows.append(row)
        return row

    def write(self) -> Path:
        path = self.folder / "samples.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(self.rows)
        return path

    def of(self, name: str, since: float, until: float) -> list[tuple[float, float]]:
        """Return the values of the last process in a span, each with its second."""
        last = self.rows[-1]["pid"]
        return [
            (row["second"], row[name])
            for row in self.rows
            if row["pid"] == last and name in row and since <= row["second"] < until
        ]

    def thirds(
        self, name: str, seconds: float, of: Callable[[Sequence[float]], float]
    ) -> tuple[float, float]:
        """Return one figure *of* the second third of the run, and of the last."""
        middle, end = self.of(name, seconds / 3, 2 * seconds / 3), self.of(name, 2 * seconds / 3, seconds)
        return (
            of([value for _, value in middle]) if middle else 0.0,
            of([value for _, value in end]) if end else 0.0,
        )


def lowest(values: Sequence[float]) -> float:
    """Return the lowest tenth's upper end: what is held while little is going on, which only a leak raises."""
    return sorted(values)[len(values) // 10]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise: what was found, what is allowed, and whether it was kept; ``kept`` None is only told."""

    what: str
    found: str
    allowed: str
    kept: bool | None
