"""Typed or piped input as values; pure. Only the newline byte ends a line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

from threads.model import Attachment, Author, Incoming, ThreadId

MAX_LINE = 1 << 20
"""Bytes that one piped line may hold."""

LEAST_COLUMNS = 20
"""The least columns for the meanings of commands, and of a whole list."""

KEYS: Mapping[str, str] = {
    "Alt-Enter": "a new line in the same message; lines that are pasted stay together",
    "Escape": "close a list, or stop what is running",
    "Ctrl-C": "stop what is running, or clear the line; with neither, twice leaves",
    "Space": "after /thread or /model: choose from a list; type on to narrow it down, Down and Enter take one",
}
"""Keys at a terminal."""

OWN_COMMANDS: Mapping[str, str] = {
    "/thread NAME": "switch to a conversation, or start it; without a name, list them",
    "/attach PATH": "send a file with your next message (at a terminal); without a path, send none",
    "/help": "show this list",
    "/quit": "leave (also Ctrl-D)",
}

AT_ONCE = frozenset({"stop", "status", "approve", "deny"})
"""Commands that act on what is running."""

FIRST_THREAD = "main"
BAD_NAME = "A thread's name is 1 to 64 of these: a-z A-Z 0-9 - _ . with a letter or digit among them."
_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Sender:
    """The person at the console. Their messages and files are numbered, so each id is used once in a *session*."""

    session: str
    author: Author
    messages: int = 0
    files: int = 0

    def message(self, text: str, thread: str, files: Sequence[Attachment] = ()) -> Incoming:
        self.messages += 1
        message_id = f"{self.session}.{self.messages}"
        return Incoming(message_id, thread_id(thread), self.author, text, files=tuple(files))

    def sent(self, message_id: str) -> bool:
        """Return whether a message is of this session."""
        return message_id.startswith(f"{self.session}.")

    def file_id(self) -> str:
        self.files += 1
        return f"{self.session}-file-{self.files}"


class Action(NamedTuple):
    """What a line asks for: ``text`` is a message, a thread's name, a path ("" takes files back) or a reason."""

    kind: Literal["send", "switch", "list", "attach", "help", "quit", "reject"]
    text: str = ""


def acts_at_once(line: str) -> bool:
    """Return whether a line acts on what is running, so that it cannot wait for the end of that."""
    word, *_ = line.lower().split()
    return line.strip().lower() == "stop" or (word[0] in "/!" and word[1:] in AT_ONCE)


def is_thread_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def thread_id(name: str) -> ThreadId:
    return ThreadId("console", "local", "tty", name)


def action(line: str, commands: Mapping[str, str] = MappingProxyType({})) -> Action | None:
    """Return what a line asks for, or None for a blank line; *commands* are those of the bot."""
    match line.split(maxsplit=1):
        case []:
            return None
        case ["/thread", name]:
            return (
                Action("switch", name.strip()) if is_thread_name(name.strip()) else Action("reject", BAD_NAME)
            )
        case ["/thread"]:
            return Action("list")
        case ["/attach", *path]:
            return Action("attach", "".join(path).strip())
        case ["/help" | "/quit" as command]:
            return Action("help" if command == "/help" else "quit")
        case words:
            return _mistyped(words[0], commands) or Action("send", line)


def _mistyped(typed: str, commands: Mapping[str, str]) -> Action | None:
    """Reject what comes closest to a command of the console's own; the bot rejects its own."""
    own = [command.split()[0] for command in OWN_COMMANDS]
    known = [*own, *(command.split()[0] for command in commands)]
    close = get_close_matches(typed, known, n=1) if typed.startswith("/") and typed not in known else []
    if not close or close[0] not in own:
        return None
    return Action("reject", f"I do not know {typed}. Did you mean {close[0]}? /help lists what I know.")


def help_text(
    commands: Mapping[str, str], columns: int = MAX_LINE, *, keys: Mapping[str, str] = MappingProxyType({})
) -> str:
    """List the console's own commands, the bot's and *keys*, each with its meaning in a second column.

    A window that is too narrow for a second column folds the rows as they come.
    """
    rows = {**OWN_COMMANDS, **commands, **keys}
    width = max(map(len, rows)) + 2
    indent = " " * (width if columns - width >= LEAST_COLUMNS else 2)
    fill = partial(textwrap.fill, width=max(columns, LEAST_COLUMNS), subsequent_indent=indent)
    return "\n".join(fill(f"{command:<{width}}{meaning}") for command, meaning in rows.items())


class Lines:
    """Cuts a stream of bytes into lines; a line longer than *limit* bytes comes out as None."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = b""
        """The start of a line, or one byte more than the limit of one that is too long."""

    def feed(self, data: bytes) -> list[bytes | None]:
        """Take more bytes and return the lines that they complete."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: self._limit + 1]
        return [line if len(line) <= self._limit else None for line in lines]

    def end(self) -> list[bytes | None]:
        """Return the last line, if the input ends without a newline."""
        return self.feed(b"\n") if self._rest else []
