"""Prints findings: on a terminal as they come, with colours; through a pipe as plain lines that can be pasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.table import Table
from rich.text import Text

from bot.host.terminal import MARKS, console
from bot.reports.safe_text import flat, plain
from transports.shared.checks import Finding, State

STATE_WIDTH, NAME_WIDTH = 4, 18


class DoctorScreen:
    """Prints to *out*; ``tell`` is given each finding when it is its turn."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.console = console(out)

    def tell(self, finding: Finding) -> None:
        if not self.console.is_terminal:
            for line in plain_lines(finding):
                print(line, file=self.console.file, flush=True)
            return
        self.console.print(render(finding))

    @contextmanager
    def waiting(self) -> Iterator[Callable[[Sequence[str]], None]]:
        """Give a function that shows which checks still run; on a terminal only, and it leaves no trace."""
        with self.console.status("") as spinner:
            yield lambda names: spinner.update(
                Text(f"checking {', '.join(names)}", "dim", overflow="ellipsis")
            )

    def done(self, findings: Sequence[Finding], took_s: float) -> None:
        words = [f"{count} {word}" for word, count in _counts(findings)]
        summary = f"{len(findings)} checks in {took_s:.1f} s: {', '.join(words)}."
        if self.console.is_terminal:
            self.console.print(Text(f"\n{summary}", MARKS[worst(findings)][1]))
            self.console.print(Text("To report a problem: threadfast doctor --bundle", "dim"))
        else:
            print(summary, file=self.console.file)


def _counts(findings: Sequence[Finding]) -> Iterator[tuple[str, int]]:
    count = Counter(finding.state for finding in findings)
    yield "ok", count["ok"]
    if count["warn"]:
        yield "warnings" if count["warn"] > 1 else "warning", count["warn"]
    if count["fail"]:
        yield "failed", count["fail"]


def worst(findings: Sequence[Finding]) -> State:
    states = {finding.state for finding in findings}
    return "fail" if "fail" in states else "warn" if "warn" in states else "ok"


def render(finding: Finding) -> Table:
    """Return a finding for a terminal."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(min_width=NAME_WIDTH, overflow="fold")
    grid.add_column(overflow="fold", ratio=1)
    mark, colour = MARKS[finding.state]
    grid.add_row(Text(mark, colour), Text(plain(finding.name)), Text(plain(finding.found)))
    if finding.meaning and finding.state != "ok":
        grid.add_row("", "", Text(plain(finding.meaning), "dim"))
    if finding.fix:
        grid.add_row("", "", Text(f"→ {plain(finding.fix)}", "dim" if finding.state == "ok" else "cyan"))
    return grid


def plain_lines(finding: Finding) -> Iterator[str]:
    """Return a finding as lines to paste."""
    lines: list[tuple[str, str, str]] = [(finding.state, finding.name, finding.found)]
    if finding.state != "ok":
        lines += [
            ("", label, text) for label, text in (("means", finding.meaning), ("fix", finding.fix)) if text
        ]
    for state, label, text in lines:
        yield f"{state:<{STATE_WIDTH}}  {flat(label):<{NAME_WIDTH}}  {flat(text)}".rstrip()
