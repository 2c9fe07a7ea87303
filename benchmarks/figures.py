"""What a benchmark reports: figures with their units, and the targets that they are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. A figure without a limit is there to explain the others."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    @property
    def met(self) -> bool:
        """Whether the figure is within its limits, as far as it has any."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


@dataclass(frozen=True, slots=True)
class Conditions:
    """Where to measure, and whether a rough figure is enough. ``disk`` is a folder on the disk under test."""

    disk: Path
    quick: bool


class Benchmark(Protocol):
    def __call__(self, conditions: Conditions) -> Iterator[Figure]: ...


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which *share* of all lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Report:
    """The figures of all benchmarks as one table."""

    def __init__(self) -> None:
        self._table = Table(box=None, pad_edge=False, header_style="bold")
        self._table.add_column("benchmark")
        self._table.add_column("figure")
        self._table.add_column("measured", justify="right")
        self._table.add_column("target", justify="right")
        self._table.add_column("met")
        self._table.add_column("note", style="dim")
        self._verdicts: list[bool] = []

    def add(self, name: str, figure: Figure) -> None:
        verdict = ""
        if figure.target:
            self._verdicts.append(figure.met)
            verdict = "[green]yes[/]" if figure.met else "[red]NO[/]"
        measured = f"{rounded(figure.value)} {figure.unit}".strip()
        self._table.add_row(name, figure.what, measured, figure.target, verdict, figure.note)

    def print(self) -> None:
        console = Console()
        console.print(self._table if console.is_terminal else self._wide(), soft_wrap=True)
        console.print(f"\n{sum(self._verdicts)} of {len(self._verdicts)} targets met", highlight=False)

    def _wide(self) -> Table:
        self._table.width = 170
        return self._table


def rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
