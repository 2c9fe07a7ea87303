"""The YAML at the head of a Markdown file. Imported only if there are skills: PyYAML takes a while.

A name and a description need little of YAML, and the rest can do harm: aliases that grow without end, nesting that
exhausts the stack, tags that stand for other types. All of it is refused before a value is built, and every value is
text.
"""

from __future__ import annotations

import re

import yaml  # type: ignore[import-untyped]

LONGEST = 8_000
"""Characters of the head."""

DEEPEST = 8

_BORDER = re.compile(r"^-{3,}\s*$", re.MULTILINE)


class FrontMatterBroken(ValueError):
    """The front matter is missing or cannot be read; the text says why, in one line."""


def split(text: str) -> tuple[dict[str, object], str]:
    """Return the values of the head and the text below it; raises `FrontMatterBroken`."""
    before, *rest = _BORDER.split(text, 2)
    if before.strip() or not rest:
        raise FrontMatterBroken("it does not begin with front matter (---)")
    try:
        values = _values(rest[0]) if len(rest) == 2 else None
    except yaml.YAMLError as error:
        raise FrontMatterBroken(f"its front matter is not valid YAML: {_where(error)}") from error
    if not isinstance(values, dict) or not values:
        raise FrontMatterBroken("its front matter has no end (---), or nothing in it")
    return values, rest[1].strip()


def _values(head: str) -> object:
    if len(head) > LONGEST:
        raise FrontMatterBroken(f"its front matter has more than {LONGEST:,} characters")
    depth = 0
    for event in yaml.parse(head, Loader=yaml.BaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise FrontMatterBroken("its front matter has an alias (*…)")
        if depth > DEEPEST:
            raise FrontMatterBroken("its front matter is nested too deeply")
    return yaml.load(head, Loader=yaml.BaseLoader)  # noqa: S506 - it builds nothing but strings, lists and dicts


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or "it cannot be read").split())[:200]
    return f"{problem} (line {mark.line + 1})" if mark else problem
