"""A post as terminal text; pure. A model cannot steer the terminal or hide where a link leads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from textwrap import indent
from typing import ClassVar, assert_never

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from threads.model import Choice, Outgoing
from transports.base.model_forms import with_model_forms
from transports.base.tables import with_whole_rows
from transports.base.text import without_controls
from transports.console.lookups import Exchange

_PADDING = re.compile(r" *(\x1b\[0m)?(?:\x1b\[[0-9;]+m *\x1b\[0m| )*$", re.MULTILINE)
"""Blanks at the end of a line, in colours or not."""
_ANSWER = re.compile(r"(/approve|/deny) q[0-9a-f]{8}(?: once)?|/answer q[0-9a-f]{8} #")
"""The command of a button. Its id is not needed if no other question is open, and an answer needs no command."""

MAX_MARKDOWN = 50_000
"""Characters; a longer text is not laid out, which would take too long."""

FIRST_ROWS, LAST_ROWS, RECALLED = 8, 4, 4_000
"""What is shown of what was said before this chat: rows at the beginning and at the end, of so many characters."""


class _PlainHeading(Heading):
    """A heading at the left."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _CloseCode(CodeBlock):
    """Code without empty lines above and below."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True)
        yield Padding(code, (0, 1))


class _ExactCode(CodeBlock):
    """Code to be approved: complete, with wrapped rows marked."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - 2, 1)
        for line in str(self.text).removesuffix("\n").split("\n"):
            first, *more = chop_cells(line.expandtabs(4), room) or [""]
            yield Text(
                "\n".join([f"│ {first}", *(f"┆ {row}" for row in more)]), overflow="ignore", no_wrap=True
            )


class _ChatMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        **dict.fromkeys(("fence", "code_block"), _CloseCode),
    }


class _QuestionMarkdown(_ChatMarkdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **_ChatMarkdown.elements,
        **dict.fromkeys(("fence", "code_block"), _ExactCode),
    }


def render(
    outgoing: Outgoing,
    width: int,
    *,
    heading: str = "",
    tools: Sequence[str] = (),
    colour: bool = True,
    alone: bool = True,
) -> str:
    """Return the whole lines to print, an empty one last.

    *heading* names a thread that is not the current one; *tools* are lines about tools that ran before.
    *alone*: no other question is open there, so an answer needs no id.
    """
    style = partial(_styled, width=width, colour=colour)
    lines = [style(f"[{heading}]", "bold cyan")] if heading else []
    lines += [style(f"· {tool}", "dim") for tool in tools]
    text = without_controls(outgoing.text).strip("\n")
    match outgoing.kind:
        case "reply":
            lines.append(_markdown(_ChatMarkdown, text, width, colour=colour))
        case "notice" if outgoing.choices:
            lines += [_markdown(_QuestionMarkdown, f"? {text}", width, colour=colour), "\n"]
        case "notice" | "refusal":
            lines.append(style(f"· {text}", "dim"))
        case "error":
            lines.append(style(f"! {text}", "red"))
        case _:
            assert_never(outgoing.kind)
    if outgoing.choices:
        switch = (Choice("go there first, then:", f"/thread {heading}"),) if heading else ()
        lines.append(style(_choices((*switch, *outgoing.choices), alone=alone), "bold"))
    return "".join(lines) + "\n"


def _choices(choices: Sequence[Choice], *, alone: bool) -> str:
    """List the commands, each with its meaning."""
    typed = [_ANSWER.sub(r"\1", choice.command) if alone else choice.command for choice in choices]
    longest = max(map(len, typed))
    labels = [
        without_controls(choice.label).removeprefix(f"{command}. ")
        for command, choice in zip(typed, choices, strict=True)
    ]
    return "\n".join(f"  {command:<{longest}}  {label}" for command, label in zip(typed, labels, strict=True))


def note(text: str, width: int, *, colour: bool = True) -> str:
    """Return a message of the console itself, dimmed, and an empty line."""
    return _styled(without_controls(text), "dim", width, colour=colour) + "\n"


def table(text: str, width: int, *, colour: bool = True) -> str:
    """Return a note whose lines are cut where the window ends."""
    lines = (
        row if cell_len(row) <= width else f"{set_cell_size(row, width - 1)}…" for row in text.split("\n")
    )
    return note("\n".join(lines), width, colour=colour)


def recall(last: Exchange, width: int, *, colour: bool = True) -> str:
    """Return what was said last before this chat, dimmed, without the middle of what is long."""
    asked = _without_middle(without_controls(f"· Last time ({last.at}) you said: {last.asked}"))
    answer = _without_middle(without_controls(last.answer).strip("\n"))
    shown = _markdown(_ChatMarkdown, answer, width - 2, colour=colour, style="dim")
    return _ends(_styled(asked, "dim", width, colour=colour)) + indent(_ends(shown), "  ") + "\n"


def _without_middle(text: str) -> str:
    half = RECALLED // 2
    return text if len(text) <= RECALLED else f"{text[:half]}\n\n…\n\n{text[-half:]}"


def _ends(text: str) -> str:
    rows = text.splitlines(keepends=True)
    is_long = len(rows) > FIRST_ROWS + LAST_ROWS + 1
    return "".join([*rows[:FIRST_ROWS], "…\n", *rows[-LAST_ROWS:]] if is_long else rows)


def draft(text: str, width: int, rows: int, *, tools: Sequence[str] = (), colour: bool = True) -> str:
    """Return the last *rows* lines of what is still written, below the lines about *tools*.

    The first lines of a block say what it is; those between are beyond the screen, and cost time.
    """
    lines = text.split("\n")
    near = "\n".join(line[-width * rows :] for line in lines[:2] + lines[2:][-2 * rows :])
    shown = "".join(_styled(f"· {tool}", "dim", width, colour=colour) for tool in tools[-rows:])
    shown += _markdown(_ChatMarkdown, near, width, colour=colour) if text.strip() else ""
    return "".join(shown.splitlines(keepends=True)[-rows:])


def finished(text: str) -> int:
    """Return how many characters of a growing text are in blocks that no further line changes."""
    lines = text.split("\n")[:-1]
    starts = [token.map[0] for token in _parsed("\n".join(lines)) if token.level == 0 and token.map]
    return sum(len(line) + 1 for line in lines[: starts[-1]]) if starts else 0


def _console(width: int, *, colour: bool) -> Console:
    return Console(
        file=StringIO(),
        width=max(width, 1),
        force_terminal=True,
        color_system="standard" if colour else None,
        no_color=not colour,
    )


def _printed(content: Markdown | Text, width: int, *, colour: bool) -> str:
    console = _console(width, colour=colour)
    with console.capture() as captured:
        console.print(content)
    # A line filled with spaces would wrap into two when the window shrinks.
    return _PADDING.sub(r"\1", captured.get())


def _styled(text: str, style: str, width: int, *, colour: bool) -> str:
    return _printed(Text(text, style=style if colour else ""), width, colour=colour)


def _parsed(text: str) -> list[Token]:
    return with_model_forms(MarkdownIt().enable(["strikethrough", "table"])).parse(with_whole_rows(text))


def _markdown(kind: type[_ChatMarkdown], text: str, width: int, *, colour: bool, style: str = "none") -> str:
    if len(text) > MAX_MARKDOWN:
        return text + "\n"
    markdown = kind("", code_theme="ansi_dark", style=style, hyperlinks=False)
    markdown.parsed = _parsed(text)
    for token in markdown.parsed:
        if token.type == "html_block":
            token.type = "code_block"
        if token.type == "inline":
            token.children = list(_faithful(token.children or []))
    return _printed(markdown, width, colour=colour).strip("\n") + "\n"


def _faithful(tokens: Sequence[Token]) -> Iterator[Token]:
    """Keep what rich would drop: line ends, tags as written, the address of an image."""
    for token in tokens:
        match token.type:
            case "link_open" | "link_close" if token.markup == "autolink":
                continue
            case "softbreak":
                token.type = "hardbreak"
            case "html_inline" | "address":
                token.type = "text"
            case "image":
                token.type, token.tag, token.children = "text", "", None
                token.content = f"{token.content} ({token.attrs.get('src', '')})"
        yield token
