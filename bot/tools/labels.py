"""A tool call for people: what it does in a few words, its arguments and its result. Each character is visible."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from bot.guards.redaction import safe_prefix
from threads.invisible_text import escaped
from threads.model import ToolCall, ToolFinished, ToolResult, ToolStarted

LONGEST_LABEL = 120

LONGEST_SUMMARY = 80
"""Characters of a call's summary in a status line."""

LONGEST_SHOWN = 4_000
"""Characters of a call's arguments, and of its result, that people are shown."""

VERBS = {
    "read_file": "reading",
    "write_file": "writing",
    "edit_file": "editing",
    "list_files": "looking through",
    "attach": "attaching",
    "fetch_file": "getting",
    "shell": "running",
    "web_fetch": "reading",
    "web_search": "searching for",
    "browser": "browsing",
    "load_skill": "looking up",
    "recall": "remembering",
    "ask_person": "asking",
}
"""The verbs of common tools; any other tool is "using" and its name."""


def label(name: str, summary: str) -> str:
    """Return a line such as "reading notes.md"; the transport must escape it."""
    verb = VERBS.get(name) or f"using {name}"
    about = summary or ("files" if name in VERBS else "")
    line = " ".join(f"{verb} {about}".split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"


def tool_started(call: ToolCall, mask: Callable[[str], str]) -> ToolStarted:
    """Return the event of a call that begins, with secrets masked."""
    name, about = escaped(mask(call.name)), escaped(_summary(call, mask)[:LONGEST_SUMMARY])
    whole = escaped(call.malformed) or format_arguments(call.arguments)
    given = mask(safe_prefix(whole, LONGEST_SHOWN, mask)) + _left_out(whole)
    return ToolStarted(name, about, call.id, label(name, about), given)


def tool_finished(call: ToolCall, result: ToolResult, mask: Callable[[str], str]) -> ToolFinished:
    """Return the event of a call that ended. Secrets in its result are masked already."""
    shown = escaped(result.content[:LONGEST_SHOWN]) + _left_out(result.content)
    return ToolFinished(escaped(mask(call.name)), not result.is_error, call.id, shown)


def _left_out(text: str) -> str:
    return f"\n… ({len(text):,} characters)" if len(text) > LONGEST_SHOWN else ""


def _summary(call: ToolCall, mask: Callable[[str], str]) -> str:
    """Return the call's text arguments, masked, for a status."""
    return mask(", ".join(safe_prefix(v, 2_000, mask) for v in call.arguments.values() if isinstance(v, str)))


def format_arguments(arguments: Mapping[str, JsonValue]) -> str:
    """Return arguments for people, each character visible: a single text as it is, else each with its name.

    The lines of a longer text are indented, so that none of them can pass for another argument.
    """
    if len(arguments) == 1 and isinstance(only := next(iter(arguments.values())), str):
        return escaped(only)
    return "\n".join(f"{_format_name(name)}:{_format_value(value)}" for name, value in arguments.items())


def _format_name(name: str) -> str:
    return name if name.isidentifier() else escaped(json.dumps(name, ensure_ascii=False))


def _format_value(value: JsonValue) -> str:
    if not isinstance(value, str) or not value or value != value.strip(" "):
        return f" {escaped(json.dumps(value, ensure_ascii=False))}"
    if "\n" not in value:
        return f" {escaped(value)}"
    return "".join(f"\n  {line}" for line in escaped(value).split("\n"))
