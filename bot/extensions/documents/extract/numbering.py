"""The numbers of a Word document's lists and headings, which stand in no paragraph: "3.2", "(b)", "iv."; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .package import Element, Package, attribute, below, name_of

_PLACE = re.compile(r"%([1-9])")
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_BOXES = tuple("☐☑☒")
_MOST_DEEP = 9


class Numbering:
    """Counts the numbered paragraphs of one document, in their order."""

    def __init__(self, package: Package, part: str) -> None:
        self._levels: dict[str, dict[int, Element]] = {}
        self._lists: dict[str, str] = {}
        self._styles: dict[str, tuple[str, int]] = {}
        self._counts: dict[str, list[int]] = {}
        for name in package.linked(part, "numbering"):
            for one in package.children(name):
                if name_of(one) == "abstractNum":
                    self._levels[attribute(one, "abstractNumId")] = {
                        int(attribute(level, "ilvl") or 0): level for level in one if name_of(level) == "lvl"
                    }
                elif (kind := below(one, "abstractNumId")) is not None:
                    self._lists[attribute(one, "numId")] = attribute(kind, "val")
        for name in package.linked(part, "styles"):
            for style in package.children(name):
                if (found := _numbered(style.iter())) is not None:
                    self._styles[attribute(style, "styleId")] = found

    def next(self, properties: Iterable[Element], style: str) -> str:
        """Return the number or the mark of the next paragraph, "" if it has none."""
        own = _numbered(one for child in properties for one in child.iter())
        number, depth = own or self._styles.get(style, ("0", 0))
        if own and own[0] == "" and style in self._styles:
            number = self._styles[style][0]
        levels = self._levels.get(self._lists.get(number, ""), {})
        if number == "0" or depth not in range(_MOST_DEEP):
            return ""
        level = levels.get(depth)
        if level is None or _value(level, "numFmt", "decimal") in ("bullet", "none"):
            sign = _value(level, "lvlText", "") if level is not None else ""
            return f"- {sign} " if sign in _BOXES else "- "
        counts = self._counts.setdefault(self._lists[number], [])
        counts += [_start(levels.get(at)) - 1 for at in range(len(counts), depth + 1)]
        counts[depth] += 1
        for at in range(depth):
            counts[at] = max(counts[at], _start(levels.get(at)))
        del counts[depth + 1 :]
        shown = _PLACE.sub(
            lambda found: _written(counts, int(found[1]) - 1, levels), _value(level, "lvlText", "%1.")
        )
        return f"{shown} " if shown.strip() else ""


def _numbered(elements: Iterable[Element]) -> tuple[str, int] | None:
    """Return the list and the depth that a paragraph or a style is in, None if it says nothing of it."""
    for one in elements:
        if name_of(one) == "numPr":
            values = {name_of(child): attribute(child, "val") for child in one}
            return values.get("numId", ""), int(values.get("ilvl") or 0)
    return None


def _value(level: Element, name: str, default: str) -> str:
    found = next((one for one in level if name_of(one) == name), None)
    return attribute(found, "val") if found is not None else default


def _start(level: Element | None) -> int:
    return int(_value(level, "start", "1") or 1) if level is not None else 1


def _written(counts: list[int], depth: int, levels: dict[int, Element]) -> str:
    if depth >= len(counts):
        return ""
    number, level = counts[depth], levels.get(depth)
    match _value(level, "numFmt", "decimal") if level is not None else "decimal":
        case "lowerLetter":
            return _letters(number)
        case "upperLetter":
            return _letters(number).upper()
        case "lowerRoman":
            return _roman(number)
        case "upperRoman":
            return _roman(number).upper()
        case _:
            return str(number)


def _letters(number: int) -> str:
    """Return "a" to "z", then "aa", "bb" and so on, as Word counts."""
    rounds, letter = divmod(max(number, 1) - 1, 26)
    return chr(ord("a") + letter) * (rounds % 9 + 1)


def _roman(number: int) -> str:
    written = ""
    for value, letters in _ROMAN:
        written += letters * (number // value % 10 if value == 1000 else number // value)
        number %= value
    return written
