"""What was measured, and what is made of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
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

    def thirds(self, name: str, seconds: float) -> tuple[float, float]:
        """Return the medians of the second and of the last third of the run."""
        middle, end = self.of(name, seconds / 3, 2 * seconds / 3), self.of(name, 2 * seconds / 3, seconds)
        return _median(middle), _median(end)

    def slope(self, name: str, seconds: float) -> float:
        """Return how much it grows in an hour, over the last two thirds."""
        found = self.of(name, seconds / 3, seconds)
        if len(found) < 2:
            return 0.0
        return linear_regression([at for at, _ in found], [value for _, value in found]).slope * 3600

    def grown(self, seconds: float) -> list[tuple[str, int, int]]:
        """Return the types of which there are more in the last third than in the second, the most first."""
        counts: Callable[[float, float], list[Row]] = lambda since, until: [  # noqa: E731
            types
            for _, types in self.of("types", since, until)  # type: ignore[misc]
        ]
        middle, end = counts(seconds / 3, 2 * seconds / 3), counts(2 * seconds / 3, seconds)
        names = {name for types in end for name in types}
        both = [(name, _of(middle, name), _of(end, name)) for name in names]
        return sorted((one for one in both if one[2] > one[1]), key=lambda one: one[1] - one[2])[:10]


def _of(counted: Sequence[Row], name: str) -> int:
    found = [types[name] for types in counted if name in types]
    return round(median(found)) if found else 0


def _median(found: Iterable[tuple[float, float]]) -> float:
    values = [value for _, value in found]
    return median(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise: what was found, what is allowed, and whether it was kept; ``kept`` None is only told."""

    what: str
    found: str
    allowed: str
    kept: bool | None
