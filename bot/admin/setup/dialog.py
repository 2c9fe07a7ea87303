"""How a setup talks to a person: on a terminal with colour and questions, piped as plain lines without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bot.admin.setup import tokens
from bot.admin.terminal.table import console
from bot.guards.redaction import Masker
from bot.ports.errors import ConfigInvalid

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
        self.wanted: frozenset[str] = frozenset()
        """Kinds of secrets (`bot.admin.setup.tokens`) that this setup has a use for."""
        self.pasted: dict[str, str] = {}
        """Those that were pasted where something else was asked, by kind; whoever needs one takes it from here."""
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
        """Ask, and return the answer. Raises `ConfigInvalid` with *otherwise* where nobody can be asked.

        A secret is no answer: it goes to ``pasted``, and ``""`` is returned.
        """
        self._must_ask(otherwise)
        answer = read(question, default, hidden=False).strip()
        if not tokens.looks_secret(answer):
            return answer
        for word in tokens.words(answer):
            self.set_aside(word)
        return ""

    def set_aside(self, secret: str) -> None:
        """Keep a secret for where it belongs, or say that it has no use here."""
        kind = tokens.kind(secret)
        if kind in self.wanted and tokens.usable(secret):
            self.pasted[kind] = secret
            self.say(f"That is {kind}. It is used as one and was not shown.", state="ok")
        else:
            what = f"That is {kind}" if kind else "That looks like a secret"
            self.say(f"{what}, which is not needed here. It was not shown or stored.", state="warn")

    def ask_secret(self, question: str, *, otherwise: str) -> str:
        """Ask for what must not be seen; an empty line is an answer."""
        self._must_ask(otherwise)
        return read(question, "", hidden=True)

    def _must_ask(self, otherwise: str) -> None:
        if not self.interactive:
            raise ConfigInvalid(otherwise)

    def _plain(self, text: str) -> None:
        if not self._quiet:
            click.echo(text)


def read(question: str, default: str, *, hidden: bool) -> str:
    """Read one line from the terminal, *default* for an empty one. Raises `click.Abort` and KeyboardInterrupt.

    What looks like a secret is drawn as stars at any question, even if not *hidden*, and no line is remembered.
    """
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - slow to load, and only needed where somebody sits
    from prompt_toolkit.filters import Condition  # noqa: PLC0415
    from prompt_toolkit.history import DummyHistory  # noqa: PLC0415
    from prompt_toolkit.utils import is_dumb_terminal  # noqa: PLC0415

    ends = f" [{default}]: " if default else ": "
    if is_dumb_terminal():  # it cannot draw over what it has shown
        unseen: str = click.prompt(question, default=default, show_default=bool(default), hide_input=True)
        return unseen
    session: PromptSession[str] = PromptSession(
        [("bold", question), ("", ends)],
        history=DummyHistory(),
        is_password=Condition(lambda: hidden or tokens.looks_secret(session.default_buffer.text)),
    )
    try:
        return session.prompt() or default
    except EOFError as error:
        raise click.Abort from error
