"""How findings look: on a terminal as they come, with colours; through a pipe as plain lines that can be pasted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bot.admin.terminal.safe_text import flat, plain
from bot.admin.terminal.table import console
from transports.shared.checks import Finding, State

STYLES: Mapping[State, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}
GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("version", "user", "open_files", "systemd"), "Machine"),
    **dict.fromkeys(("settings", "secrets"), "Settings"),
    "data": "Data folder",
    "bot": "Running bot",
    "model": "Models",
    **dict.fromkeys(("sandbox", "browser", "mcp_servers"), "Tools"),
    **dict.fromkeys(("slack", "discord", "transports"), "Platforms"),
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
        self.console.print(shown(finding, self.console))

    @contextmanager
    def waiting(self) -> Iterator[Callable[[Sequence[str]], None]]:
        """Give what shows, on a terminal only, who still looks; it leaves no trace."""
        if not self.console.is_terminal:
            yield lambda _: None
            return
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


def shown(finding: Finding, to: Console) -> Padding:
    """Return one finding as it stands on a terminal: who is in a hurry reads the first column."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=STATE_WIDTH)
    table.add_column(width=NAME_WIDTH)
    table.add_column(overflow="fold", width=max(20, to.width - INDENT - 1))
    name, state = plain(finding.name), Text(finding.state, STYLES[finding.state])
    if len(name) > NAME_WIDTH:
        # A long name has a line of its own: cut in two it cannot be read.
        head = Table.grid(padding=(0, 2, 0, 0))
        head.add_column(width=STATE_WIDTH)
        head.add_column(overflow="fold")
        head.add_row(state, name)
        table.add_row("", "", Text(plain(finding.found)))
        whole = Table.grid()
        whole.add_row(head)
        whole.add_row(_more(table, finding))
        return Padding(whole, (0, 0, 0, 1))
    table.add_row(state, name, Text(plain(finding.found)))
    return Padding(_more(table, finding), (0, 0, 0, 1))


def _more(table: Table, finding: Finding) -> Table:
    if finding.meaning and finding.state != "ok":
        table.add_row("", "", Text(plain(finding.meaning), "dim"))
    if finding.fix:
        table.add_row("", "", Text(f"→ {plain(finding.fix)}", "dim" if finding.state == "ok" else "cyan"))
    return table


def plain_lines(finding: Finding) -> Iterator[str]:
    """Return one finding as lines to paste."""
    yield f"{finding.state:<{STATE_WIDTH}}  {flat(finding.name):<{NAME_WIDTH}}  {flat(finding.found)}".rstrip()
    if finding.meaning and finding.state != "ok":
        yield f"{'':{STATE_WIDTH}}  {'means':<{NAME_WIDTH}}  {flat(finding.meaning)}"
    if finding.fix and finding.state != "ok":
        yield f"{'':{STATE_WIDTH}}  {'fix':<{NAME_WIDTH}}  {flat(finding.fix)}"


def err(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - its output
