"""The dialog of a setup: colours and questions on a terminal, plain lines through a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click
from rich.status import Status
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bot.guards.redaction import Masker
from bot.host.terminal import MARKS, console
from bot.ports.config_error import ConfigInvalid

T = TypeVar("T")

WIDTH = 96
"""Columns: longer lines are hard to read."""


class SetupScreen:
    """*quiet* prints nothing, since the answer is one JSON document. Secrets that `hide` is given are masked."""

    def __init__(self, *, interactive: bool, quiet: bool = False) -> None:
        self.interactive = interactive
        self.mask = Masker()
        self._console = console(quiet=quiet)
        if self._console.is_terminal:
            self._console.width = min(self._console.width, WIDTH)

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these from now on."""
        self.mask = Masker(secrets)

    def title(self, text: str, subtitle: str) -> None:
        above = "\n" if self._console.is_terminal else ""
        self._console.print(Text.assemble(above, (text, "bold"), "  ", (subtitle, "dim")))

    def say(self, text: str, *, state: str = "", detail: str = "") -> None:
        """Print a line, or a paragraph that hangs under its mark."""
        mark, colour = MARKS[state]
        line = Text(self.mask(text))
        if detail:
            line.append(f"  ({self.mask(detail)})", "dim")
        if "://" in text or not self._console.is_terminal:  # a broken address cannot be copied
            self._console.print(Text.assemble((mark, colour), " ", line), soft_wrap=True)
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(mark, colour), line)
        self._console.print(grid)

    def options(self, offers: Sequence[tuple[str, str]]) -> None:
        """Print the choices, each with its reason."""
        self._numbered([(self.mask(name), Text(f"({self.mask(why)})", "dim")) for name, why in offers])

    def steps(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print what to do, each step with the address that it links to, or ``""``."""
        links = self._console.is_terminal
        self._numbered(
            [
                (Text(text, Style(link=url, underline=True)) if url and links else f"{text} {url}".rstrip(),)
                for text, url in lines
            ]
        )

    def _numbered(self, rows: Sequence[Sequence[str | Text]]) -> None:
        grid = Table.grid(padding=(0, 2))
        for number, row in enumerate(rows, 1):
            grid.add_row(Text(f" {number}", "bold"), *row)
        self._console.print(grid)

    def address(self, url: str) -> None:
        """Print a line that nothing breaks."""
        self._console.print(Text(url), soft_wrap=True)

    def closing(self, command: str, hello: str, *, starts: bool) -> None:
        """Say what comes next."""
        self.say(
            f"Starting. Ctrl-C stops it; later: {command}" if starts else f"Next: {command}", state="fix"
        )
        if hello:
            self.say(hello, state="fix")

    def working(self, text: str) -> Status:
        """Show that something is under way, on a terminal."""
        return self._console.status(Text(text, "dim"))

    def ask(
        self,
        question: str,
        read: Callable[[str], T],
        default: str = "",
        *,
        hidden: bool = False,
        otherwise: str = "",
    ) -> T:
        """Ask until *read* takes the answer, and return what it makes of it. Ctrl-C ends the setup.

        *read* raises `ConfigInvalid` for an answer to give again. This raises it with *otherwise* if nobody can be
        asked.
        """
        if not self.interactive:
            raise ConfigInvalid(otherwise)
        while True:
            try:
                return read(prompt(question, default, hidden=hidden).strip())
            except ConfigInvalid as error:
                self.say(str(error), state="warn")


def prompt(question: str, default: str, *, hidden: bool) -> str:
    """Read one line from the terminal, or *default* if it is empty. Raises `click.Abort` and KeyboardInterrupt.

    A *hidden* line is drawn as stars. No line is remembered.
    """
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - slow, and not for `--yes`
    from prompt_toolkit.history import DummyHistory  # noqa: PLC0415
    from prompt_toolkit.utils import is_dumb_terminal  # noqa: PLC0415

    ends = f" [{default}]: " if default else ": "
    if is_dumb_terminal():  # it cannot draw over what it has shown
        unseen: str = click.prompt(question, default=default, show_default=bool(default), hide_input=hidden)
        return unseen
    session: PromptSession[str] = PromptSession(
        [("bold", question), ("", ends)], history=DummyHistory(), is_password=hidden
    )
    try:
        return session.prompt() or default
    except EOFError as error:
        raise click.Abort from error
