"""The YAML at the head of a Markdown file. Loaded only where there are skills: the libraries take 50 ms to import.

YAML can say more than a name and a description need, and some of that is made to hurt: aliases that grow without end,
nesting that exhausts the stack, tags that stand for other types. All of it is refused before anything is built, and
every value is read as the text it was written as.
"""

from __future__ import annotations

import frontmatter
import yaml  # type: ignore[import-untyped]
from frontmatter.default_handlers import YAMLHandler

LONGEST = 8_000
"""Characters of the head."""

DEEPEST = 8


class FrontMatterBroken(ValueError):
    """There is none, or it cannot be read; the text says why, in one line."""


class _Plain(YAMLHandler):
    def load(self, fm: str) -> dict[str, object]:  # type: ignore[override]
        if len(fm) > LONGEST:
            raise FrontMatterBroken(f"its front matter has more than {LONGEST:,} characters")
        depth = 0
        for event in yaml.parse(fm, Loader=yaml.BaseLoader):
            if isinstance(event, yaml.AliasEvent):
                raise FrontMatterBroken("its front matter has an alias (*…)")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEEPEST:
                raise FrontMatterBroken("its front matter is nested too deeply")
        said: object = super().load(fm, Loader=yaml.BaseLoader)
        return said if isinstance(said, dict) else {}


def split(text: str) -> tuple[dict[str, object], str]:
    """Return what the head says and the text below it; raises `FrontMatterBroken`."""
    head = _Plain()
    if not head.detect(text.lstrip()):
        raise FrontMatterBroken("it does not begin with front matter (---)")
    try:
        said, body = frontmatter.parse(text, handler=head)
    except yaml.YAMLError as error:
        raise FrontMatterBroken(f"its front matter is no YAML: {_where(error)}") from error
    if not said:
        raise FrontMatterBroken("its front matter has no end (---), or nothing in it")
    return said, body


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or "it cannot be read").split())[:200]
    return f"{problem} (line {mark.line + 1})" if mark else problem
