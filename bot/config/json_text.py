"""Reads JSON that people write, and says what is wrong with it in their words: what stands there, what JSON wants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from pydantic import JsonValue
from pydantic_core import from_json

MOST_NAMED = 10
"""Names that are all listed where none is near."""

NO_COMMENTS = "JSON has no comments; remove it"
QUOTES = 'JSON writes texts and keys in straight double quotes, "like this"'
FOUND: tuple[tuple[str, str], ...] = (
    (r"//|/\*|#", f"this is a comment, and {NO_COMMENTS}"),
    (r"['`\u2018-\u201f\u00ab\u00bb]", f"this is another quotation mark, and {QUOTES}"),
    (r"(?:True|False|None|yes|no|on|off|nil)\b", "JSON writes true, false and null"),
    (r"[A-Za-z_][\w.-]*\s*:", f"this key has no quotes, and {QUOTES}"),
    (r"[A-Za-z_]", f"this has no quotes, and {QUOTES}"),
    (r"=", 'JSON writes a colon between a key and its value, "key": "value"'),
    (r"[\"\d{\[-]", "a comma is missing before this"),
)
"""What may stand where JSON wants something else, in this order."""

TRAILING = "the comma before this } or ] is one too many; remove it"
CUT_OFF = "the end is missing: each { needs its }, each [ its ], and each text its closing quotation mark"
YAML = 'this looks like YAML; JSON writes {"key": "value"}'

_PLACE = re.compile(r" at line (\d+) column (\d+)$")
_YAML = re.compile(r"\s*(?:---|(?:#.*\n\s*)*[\w-]+:(?:\s|$))")
_TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}\[\],]', re.DOTALL)


class JsonInvalid(ValueError):
    """A text is not JSON; ``str(error)`` says where and why, and repeats nothing of it."""


def parse(data: bytes) -> JsonValue:
    """Return the value of JSON text without NaN. Raises `JsonInvalid`."""
    try:
        text = data.decode()
        value: JsonValue = from_json(data, allow_inf_nan=False)
    except UnicodeDecodeError as error:
        raise JsonInvalid(f"is not UTF-8 text (byte {error.start + 1})") from error
    except ValueError as error:
        raise JsonInvalid(f"is not valid JSON: {_explain(text, str(error))}") from error
    return value


def _explain(text: str, fault: str) -> str:
    if _YAML.match(text):
        return YAML
    place = _PLACE.search(fault)
    if place is None or not fault.startswith(("expected", "key must", "trailing comma", "EOF")):
        return fault
    if fault.startswith("EOF"):
        return CUT_OFF
    line = text.encode().split(b"\n")[int(place[1]) - 1]
    there = line[max(0, int(place[2]) - 1) :].decode(errors="replace")
    known = (words for pattern, words in FOUND if re.match(pattern, there))
    words = TRAILING if fault.startswith("trailing comma") else next(known, "")
    return f"{words} (line {place[1]} column {place[2]})" if words else fault


@dataclass(slots=True)
class _Open:
    """An object or a list that is not closed yet; ``step`` is the key or the number of what comes next."""

    place: tuple[str | int, ...]
    step: str | int
    keys: dict[str, int] = field(default_factory=dict)
    """Where each key of an object begins."""


def repeated_keys(text: str) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """Yield the place of each key that stands again in one object, with the lines of both. *text* is valid JSON."""
    above: list[_Open] = []
    for token in _TOKEN.finditer(text):
        here = above[-1] if above else _Open((), "")
        match token[0][0]:
            case "{" | "[" as bracket:
                place = (*here.place, here.step) if above else ()
                above.append(_Open(place, "" if bracket == "{" else 0))
            case "}" | "]":
                above.pop()
            case "," if isinstance(here.step, int):
                here.step += 1
            case '"' if token[2]:
                here.step = str(from_json(token[1])) if "\\" in token[1] else token[1][1:-1]
                if here.step in here.keys:
                    first, again = (
                        text.count("\n", 0, at) + 1 for at in (here.keys[here.step], token.start())
                    )
                    yield (*here.place, here.step), first, again
                here.keys[here.step] = token.start()
            case _:
                pass


def near(name: str, known: list[str]) -> str:
    """Return a clause that names the known name that was probably meant, or all if there are few; else a blank."""
    if close := get_close_matches(name[:60], known, n=1):
        return f'the nearest known one is "{close[0]}"'
    return f"there are {', '.join(known)}" if 0 < len(known) <= MOST_NAMED else ""
