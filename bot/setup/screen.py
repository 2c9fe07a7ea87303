"""How a setup talks to a person: on a terminal with colour and questions, piped as plain lines without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bot.errors import ConfigInvalid
from bot.guards.secrets import Masker
from bot.telling.table import console

MARKS = {
    "ok": ("✓", "green"),
    "warn": ("!", "yellow"),
    "fail": ("✗", "red"),
    "fix": ("→", "bold"),
    "": (" ", ""),
}
TRIES = 6
"""How often one thing is asked before the setup ends."""

WIDTH = 96
"""Columns: longer lines are hard to read."""


class Screen:
    """*quiet* shows nothing, since the answer is one JSON document. Secrets that are told to `hide` are masked."""

    def __init__(self, *, interactive: bool, quiet: bool = False) -> None:
        self.interactive = interactive
        self.mask = Masker()
        self._console = console()
        self._quiet = quiet
        self._terminal = self._console.is_terminal and not quiet
        self._console.width = min(self._console.width, WIDTH)

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these from now on."""
        self.mask = Masker(secrets)

    def title(self, text: str, beside: str = "") -> None:
        if self._terminal:
            self._console.print(Text.assemble("\n", (text, "bold"), "  ", (beside, "dim")))
        else:
            self._plain(f"{text}  {beside}".rstrip())

    def say(self, text: str = "", *, state: str = "", detail: str = "") -> None:
        """Show one line, or a paragraph that hangs under its mark."""
        mark, colour = MARKS[state]
        text, detail = self.mask(text), self.mask(detail)
        if not self._terminal:
            self._plain(f"{mark} {text}{f'  ({detail})' if detail else ''}".rstrip())
            return
        line = Text.assemble(text, *([("  " + detail, "dim")] if detail else []))
        if "://" in text:  # an address that is broken over two lines cannot be copied
            self._console.print(Text.assemble((mark, colour), " ", line), soft_wrap=True)
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(mark, colour), line)
        self._console.print(grid)

    def options(self, offers: Sequence[tuple[str, str]]) -> None:
        """Show what there is to choose from, each with why it is there."""
        grid = Table.grid(padding=(0, 2))
        for number, (name, why) in enumerate(offers, 1):
            grid.add_row(Text(f" {number}", "bold"), self.mask(name), Text(self.mask(why), "dim"))
            if not self._terminal:
                self._plain(f"  {number}. {self.mask(name)}  ({self.mask(why)})")
        if self._terminal:
            self._console.print(grid)

    def steps(self, lines: Sequence[tuple[str, str]]) -> None:
        """Show what to do, numbered, each with the address that it leads to, or ``""``."""
        grid = Table.grid(padding=(0, 2))
        for number, (text, address) in enumerate(lines, 1):
            style = Style(link=address, underline=True) if address else ""
            grid.add_row(Text(f" {number}", "bold"), Text(text, style))
            if not self._terminal:
                self._plain(f"  {number}. {text}{f': {address}' if address else ''}")
        if self._terminal:
            self._console.print(grid)

    def address(self, url: str) -> None:
        """Show an address whole, on a line of its own that nothing breaks."""
        self._plain(url)

    def closing(self, command: str, hello: str, *, starts: bool) -> None:
        """Say what comes next."""
        if starts:
            self.say(f"Starting. Ctrl-C stops it; later: {command}", state="fix")
        else:
            self.say(f"Next: {command}", state="fix")
        if hello:
            self.say(hello, state="fix")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show that something is under way, on a terminal."""
        if not self._terminal:
            yield
            return
        with self._console.status(Text(text, "dim"), spinner="dots"):
            yield

    def ask(self, question: str, default: str, *, otherwise: str) -> str:
        """Ask, and return the answer. Raises `ConfigInvalid` with *otherwise* where nobody can be asked."""
        self._must_ask(otherwise)
        answer: str = click.prompt(
            click.style(question, bold=True), default=default, show_default=bool(default)
        )
        return answer.strip()

    def ask_secret(self, question: str, *, otherwise: str) -> str:
        """Ask for what must not be seen; an empty line is an answer."""
        self._must_ask(otherwise)
        answer: str = click.prompt(
            click.style(question, bold=True), default="", show_default=False, hide_input=True
        )
        return answer

    def _must_ask(self, otherwise: str) -> None:
        if not self.interactive:
            raise ConfigInvalid(otherwise)

    def _plain(self, text: str) -> None:
        if not self._quiet:
            click.echo(text)
