"""Results of tools, as `offline/demo` tells them to a person: a command's output as in a terminal, a file's text.

What is not in a tool's usual form is shown as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from threads.model import ToolResult

MAX_SHOWN = 3000
"""Characters of one text that are repeated."""

MENDABLE = frozenset({"validation", "not_found", "rate_limit"})
"""Errors of which the suggestion is of use to whoever wrote the line, too."""

Form = Mapping[str, JsonValue]

_OUTSIDE = re.compile(r"<outside (?P<seal>[0-9a-f]+) [^\n]*>\n(?P<text>.*)\n</outside (?P=seal)>", re.DOTALL)


def render_result(tool: str, result: ToolResult) -> str:
    """Put a tool's result into words."""
    content = _content(result)
    if isinstance(content, dict) and isinstance(error := content.get("error"), dict):
        return "\n\n".join([_failed(tool, error), *_partly(content.get("partial"))])
    value, errors = content, list[Form]()
    if isinstance(content, dict) and "result" in content:
        value, errors = content["result"], _forms(content.get("errors"))
    if value in ("", None, [], {}):
        said = f"`{tool}` worked and had nothing to show."
    elif result.is_error:
        said = f"`{tool}` did not work:\n\n{_block(_written(value))}"
    else:
        said = _worded(tool, value) or f"Here is what `{tool}` gave me:\n\n{_block(_written(value))}"
    return _more(said, [f"`{error.get('item')}`: {error.get('message')}" for error in errors])


def _content(result: ToolResult) -> JsonValue:
    try:
        content: JsonValue = from_json(result.content)
    except ValueError:
        content = result.content
    return _bare(content)


def _bare(value: JsonValue) -> JsonValue:
    """Return a value without the fences that are meant for a model."""
    match value:
        case str():
            found = _OUTSIDE.fullmatch(value)
            return found["text"] if found else value
        case list():
            return [_bare(item) for item in value]
        case dict():
            return {name: _bare(item) for name, item in value.items()}
        case _:
            return value


def _failed(tool: str, error: Form) -> str:
    said = str(error.get("message") or "It gave no reason.")
    if error.get("type") in MENDABLE and error.get("suggestion"):
        said += f" {error['suggestion']}"
    return f"`{tool}` {'was not used' if error.get('type') == 'permission' else 'did not work'}: {said}"


def _partly(partial: JsonValue) -> Sequence[str]:
    """Return what there was of a command's output when it was ended."""
    if isinstance(partial, dict) and "stdout" in partial:
        return _output(partial)
    return [_ends(partial)] if isinstance(partial, dict) and "head" in partial else ()


def _worded(tool: str, value: JsonValue) -> str:
    """Return the words for what a tool of ours gave back; blank for what is not in its form."""
    if not isinstance(value, dict):
        return ""
    if value.keys() >= {"head", "tail", "left_out"}:
        return _ends(value)
    key, words = _TOOLS.get(tool, ("", _written))
    return words(value) if key in value else ""


def _ran(value: Form) -> str:
    parts = _output(value)
    if value.get("signal"):
        parts.append(f"It was ended by {value['signal']}.")
    elif value.get("exit_code"):
        parts.append(f"It ended with exit code {value['exit_code']}.")
    return "\n\n".join(parts or ["It ran, and printed nothing."])


def _output(value: Form) -> list[str]:
    out, err = str(value.get("stdout", "")), str(value.get("stderr", ""))
    parts = [_block(out)] if out.strip() else []
    return [*parts, f"On standard error:\n\n{_block(err)}"] if err.strip() else parts


def _text(value: Form) -> str:
    if "binary" in value:
        return f"That is no text ({value['binary']}, {value.get('size'):,} bytes)."
    text = str(value.get("text", ""))
    return _more(
        _block(text) if text else "It is empty.", ["There is more of it."] * ("next_offset" in value)
    )


def _page(value: Form) -> str:
    if "moved_to" in value:
        return f"The page has moved: say `fetch {value['moved_to']}`."
    return f"{value.get('title') or 'The page'} ({value.get('url')}):\n\n{_text(value)}"


def _files(value: Form) -> str:
    lines = [
        f"{entry.get('size') if entry.get('kind') == 'file' else entry.get('kind')!s:>10}  {entry.get('name')}"
        for entry in _forms(value["entries"])
    ]
    more = [f"{value['not_shown']} more are not shown."] if "not_shown" in value else []
    return _more(_block("\n".join(lines)) if lines else "There are no files here.", more)


def _matches(value: Form) -> str:
    found = str(value["matches"])
    return _more(
        _block(found) if found else "No file holds that.", [str(value["more"])] if "more" in value else []
    )


def _wrote(value: Form) -> str:
    return (
        f"{'Wrote' if value.get('created') else 'Replaced'} `{value['written']}` ({value.get('size')} bytes)."
    )


def _edited(value: Form) -> str:
    return f"Edited `{value['edited']}`:\n\n{_block(str(value.get('diff')), 'diff')}"


def _notes(value: Form) -> str:
    lines = [f"- {note.get('text')} ({note.get('by')})" for note in _forms(value["notes"])]
    return "\n".join(["I remember:", "", *lines]) if lines else "I remember nothing like that."


_TOOLS: Mapping[str, tuple[str, Callable[[Form], str]]] = {
    "shell": ("stdout", _ran),
    "read_file": ("size", _text),
    "list_files": ("entries", _files),
    "search_files": ("matches", _matches),
    "write_file": ("written", _wrote),
    "edit_file": ("edited", _edited),
    "attach": ("posted", lambda value: f"Here is `{value['posted']}`."),
    "web_fetch": ("url", _page),
    "remember": ("remembered", lambda value: f"I will remember that {value['remembered']}."),
    "recall": ("notes", _notes),
}
"""What each tool's result has in it, and the words for it."""


def _ends(cut: Form) -> str:
    where = (
        [f"`{cut['file']}` has all of it: {cut.get('left_out')} characters are left out."]
        if cut.get("file")
        else []
    )
    return _more(_block(str(cut.get("head"))), where)


def _more(said: str, lines: Sequence[str]) -> str:
    return "\n\n".join([said, *lines])


def _forms(value: JsonValue) -> list[Form]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _written(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _block(text: str, language: str = "") -> str:
    text = text.removesuffix("\n")
    shown, more = text[:MAX_SHOWN], len(text) - MAX_SHOWN
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}{language}\n{shown}\n{fence}" + (f"\n({more} more characters)" if more > 0 else "")
