"""Prints findings: on a terminal as they come, with colours; through a pipe as plain lines that can be pasted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bot.admin.terminal import console
from bot.reports.safe_text import flat, plain
from transports.shared.checks import Finding, State

STYLES: Mapping[State, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}
GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("version", "user", "open_files"), "Machine"),
    **dict.fromkeys(("settings", "secrets"), "Settings"),
    "data": "Data folder",
    "bot": "Running bot",
    **dict.fromkeys(("model", "transcription"), "Models"),
    **dict.fromkeys(("sandbox", "browser", "playbooks", "mcp_servers"), "Tools"),
    **dict.fromkeys(("slack", "discord", "web", "transports"), "Platforms"),
}
STATE_WIDTH, NAME_WIDTH = 4, 18
INDENT = STATE_WIDTH + NAME_WIDTH + 4


def group_of(name: str) -> str:
    return GROUPS.get(name.partition(".")[0], "Other")


class Screen:
    """Prints to *out*; ``tell`` is given each finding when it is its turn."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.console = console(out)
        self._group = ""

    def tell(self, finding: Finding) -> None:
        if not self.console.is_terminal:
            for line in plain_lines(finding):
                print(line, file=self.console.file, flush=True)
            return
        if (group := group_of(finding.name)) != self._group:
            self._group = group
            self.console.print(Text(f"\n{group}", "bold"))
        self.console.print(render(finding, self.console.width))

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
            self.console.print(Text(f"\n{summary}", STYLES[worst(findings)]))
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


def render(finding: Finding, width: int) -> Padding:
    """Return a finding for a terminal of this width."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for room in (STATE_WIDTH, NAME_WIDTH, max(20, width - INDENT - 1)):
        grid.add_column(width=room, overflow="fold")
    state, name = Text(finding.state, STYLES[finding.state]), Text(plain(finding.name))
    above: list[Text] = []
    if len(name) > NAME_WIDTH:  # a long name has a line of its own: cut in two it cannot be read
        above = [Text.assemble(state, " " * (STATE_WIDTH + 2 - len(state)), name, overflow="fold")]
        state = name = Text()
    grid.add_row(state, name, Text(plain(finding.found)))
    if finding.meaning and finding.state != "ok":
        grid.add_row("", "", Text(plain(finding.meaning), "dim"))
    if finding.fix:
        grid.add_row("", "", Text(f"→ {plain(finding.fix)}", "dim" if finding.state == "ok" else "cyan"))
    return Padding(Group(*above, grid), (0, 0, 0, 1))


def plain_lines(finding: Finding) -> Iterator[str]:
    """Return a finding as lines to paste."""
    lines: list[tuple[str, str, str]] = [(finding.state, finding.name, finding.found)]
    if finding.state != "ok":
        lines += [
            ("", label, text) for label, text in (("means", finding.meaning), ("fix", finding.fix)) if text
        ]
    for state, label, text in lines:
        yield f"{state:<{STATE_WIDTH}}  {flat(label):<{NAME_WIDTH}}  {flat(text)}".rstrip()
