"""How large the project is: `make size`. The gate fails above a ceiling.

Counted are lines that do something: no blanks, comments, docstrings and imports. The core is `threads`, the
console, what all platforms share, and all of `bot` but the extensions. The goals are those of the design. A ceiling
is what the last change has reached; it goes down with the next one.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTENSIONS = "bot/extensions", *(f"transports/{name}" for name in ("discord", "matrix", "slack", "web"))
QUIET = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the project: its folders without others, the most that it may have, and what it should come to."""

    folders: tuple[str, ...]
    ceiling: int
    goal: int
    without: tuple[str, ...] = ()


PARTS = {
    "core": Part(("bot", "threads", "transports"), 22_000, 22_000, EXTENSIONS),
    "product": Part(("bot", "threads", "transports"), 54_333, 40_000),
    "tests": Part(("tests",), 80_472, 58_000),
}


def main() -> int:
    counts = {name: sum(map(working_lines, _files(part))) for name, part in PARTS.items()}
    counts["extensions"] = counts["product"] - counts["core"]
    for name, count in counts.items():
        part = PARTS.get(name)
        limits = f"at most {part.ceiling:,}; the goal is {part.goal:,}" if part else ""
        print(f"{name:12} {count:7,}  {limits}")
    over = [name for name, part in PARTS.items() if counts[name] > part.ceiling]
    if over:
        print(
            f"Above the ceiling: {', '.join(over)}. Make something smaller, or say in the commit why it may grow."
        )
    return bool(over)


def _files(part: Part) -> Iterator[Path]:
    left_out = tuple(ROOT / folder for folder in part.without)
    for folder in part.folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(path.is_relative_to(other) for other in left_out):
                yield path


def working_lines(path: Path) -> int:
    """Return the lines of a module that do something."""
    text = path.read_text(encoding="utf-8")
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in QUIET
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node):
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(lines)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


if __name__ == "__main__":
    sys.exit(main())
