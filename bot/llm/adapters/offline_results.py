"""Results of tools as `offline/demo` words them: a sentence, texts in a block, and anything else as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from pydantic import JsonValue
from pydantic_core import from_json

from threads.model import ToolResult

MAX_SHOWN = 3000
"""Characters of one text that are repeated."""

SENTENCES: Mapping[str, str] = {
    "write_file": "Wrote `{written}` ({size} bytes).",
    "edit_file": "Edited `{edited}`.",
    "attach": "Here is `{posted}`.",
    "remember": "I will remember that {remembered}.",
}
TEXTS = ("stdout", "stderr", "text", "matches", "diff", "head")
"""What is shown in a block of its own, under these names in a tool's result."""

FOR_PEOPLE = frozenset({"validation", "not_found", "rate_limit"})
"""Errors with a suggestion that is of use to a person, too."""

_FENCE = re.compile(r"<outside (?P<seal>[0-9a-f]+) .*?>\\n(?P<text>.*?)\\n</outside (?P=seal)>")
"""The marks around a text from outside, as JSON has them: they are meant for a model."""


def render_result(tool: str, result: ToolResult) -> str:
    """Return a tool's result in words."""
    try:
        content: JsonValue = from_json(_FENCE.sub(lambda found: found["text"], result.content))
    except ValueError:
        content = result.content
    if not isinstance(content, dict):
        return _json(tool, content)
    if isinstance(error := content.get("error"), dict):
        verb = "was not used" if error.get("type") == "permission" else "did not work"
        hint = error.get("suggestion") if error.get("type") in FOR_PEOPLE else None
        words = " ".join(str(text) for text in (error.get("message"), hint) if text)
        return "\n\n".join([f"`{tool}` {verb}: {words}", *_words("", content.get("partial"))])
    value = content.get("result", content)
    parts = _words(tool, value) or [_json(tool, value)]
    faults = [f"`{fault.get('item')}`: {fault.get('message')}" for fault in _list(content, "errors")]
    return "\n\n".join([*parts, *faults])


def _words(tool: str, value: JsonValue) -> list[str]:
    if not isinstance(value, dict):
        return []
    parts = [_block(text) for name in TEXTS if isinstance(text := value.get(name), str) and text.strip()]
    with suppress(KeyError):
        parts.insert(0, SENTENCES[tool].format_map(value))
    if entries := _list(value, "entries"):
        sizes = (entry.get("size") or entry.get("kind") for entry in entries)
        lines = (f"{size!s:>10}  {entry.get('name')}" for size, entry in zip(sizes, entries, strict=True))
        parts.append(_block("\n".join(lines)))
    if notes := [f"- {note.get('text')} ({note.get('by')})" for note in _list(value, "notes")]:
        parts.append("\n".join(["I remember:", "", *notes]))
    if value.get("exit_code"):
        parts.append(f"It ended with exit code {value['exit_code']}.")
    if "next_offset" in value or "left_out" in value:
        parts.append(f"There is more of it in `{value.get('file') or value.get('path') or 'the file'}`.")
    return parts


def _list(value: Mapping[str, JsonValue], name: str) -> list[dict[str, JsonValue]]:
    items = value.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _json(tool: str, value: JsonValue) -> str:
    if not value or (isinstance(value, dict) and not any(value.values())):
        return f"`{tool}` worked and had nothing to show."
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"Here is what `{tool}` gave me:\n\n{_block(text)}"


def _block(text: str) -> str:
    text = text.removesuffix("\n")
    shown, more = text[:MAX_SHOWN], len(text) - MAX_SHOWN
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}\n{shown}\n{fence}" + (f"\n({more} more characters)" if more > 0 else "")
