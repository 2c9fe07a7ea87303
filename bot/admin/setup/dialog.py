"""The dialog of a setup: colours and questions on a terminal, plain lines through a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.status import Status
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bot.admin.setup import tokens
from bot.admin.terminal import console, prompt
from bot.guards.redaction import Masker
from bot.ports.config_error import ConfigInvalid

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
    """*quiet* prints nothing, since the answer is one JSON document. Secrets that `hide` is given are masked."""

    def __init__(self, *, interactive: bool, quiet: bool = False) -> None:
        self.interactive = interactive
        self.mask = Masker()
        self.wanted: frozenset[str] = frozenset()
        """Kinds of secrets (`bot.admin.setup.tokens`) that this setup uses."""
        self.pasted: dict[str, str] = {}
        """Secrets by kind that were pasted at another question; the step that needs one takes it from here."""
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

    def ask(self, question: str, default: str = "", *, otherwise: str = "") -> str:
        """Ask, and return the answer. Raises `ConfigInvalid` with *otherwise* if nobody can be asked.

        If the answer is a secret, it goes to ``pasted``, and ``""`` is returned.
        """
        self._require_person(otherwise)
        answer = prompt(question, default, is_hidden=tokens.looks_secret).strip()
        if not tokens.looks_secret(answer):
            return answer
        for word in tokens.words(answer):
            self.set_aside(word)
        return ""

    def set_aside(self, secret: str) -> None:
        """Store a secret for the step that needs it, or say that it has no use here."""
        kind = tokens.kind(secret)
        if kind in self.wanted and tokens.usable(secret):
            self.pasted[kind] = secret
            self.say(f"That is {kind}. It is used as one and was not shown.", state="ok")
        else:
            what = f"That is {kind}" if kind else "That looks like a secret"
            self.say(f"{what}, which is not needed here. It was not shown or stored.", state="warn")

    def ask_secret(self, question: str, *, otherwise: str = "") -> str:
        """Ask for what must not be seen; an empty line is an answer."""
        self._require_person(otherwise)
        return prompt(question, "", is_hidden=lambda _: True)

    def _require_person(self, otherwise: str) -> None:
        if not self.interactive:
            raise ConfigInvalid(otherwise)
