"""docs/events.md: the names of all events in the log, and the lines of `threadfast events`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bot.observe.event_lines import event_schema
from bot.observe.logs import named

ROOT = Path(__file__).parents[2]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")

HEAD = """# Events in the log

Made from the code by `make docs`; a test fails when it is out of date, or when a call names no event. Each line is
one JSON object: `at` (UTC), `level`, `logger`, `event` (a name below, the same from version to version), `text` (for
people, may change), and the ids that are known: `thread_id`, `message_id`, `correlation_id`. `event` is `library` in
lines that a library wrote. `exception` below is level `error` with a traceback.

| event | level | text | written in |
|---|---|---|---|
"""


LINES = """
# Events for other programs

The lines of `threadfast events`, by their `kind`. `threadfast schema --events` prints the same as a JSON Schema. A
line has `kind`, `seq`, `at`, `thread_id`, `message_id` and `correlation_id` too. What is not known is left out.

| kind | meaning | fields |
|---|---|---|
"""
COMMON = ("kind", "seq", "at", "thread_id", "message_id", "correlation_id")


def lines() -> str:
    """Return the table of the kinds of lines."""
    rows = []
    for line in event_schema()["$defs"].values():
        if "kind" in (fields := line["properties"]):
            own = ", ".join(f"`{name}`" for name in fields if name not in COMMON)
            about = " ".join(line["description"].replace("``", "`").split())
            rows.append(f"| `{fields['kind']['const']}` | {about} | {own} |")
    return LINES + "\n".join(sorted(rows)) + "\n"


def calls_in(file: Path) -> Iterator[tuple[str, str]]:
    """Return the level and the format of each log call in a module."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[*given]) if (
                level in LEVELS
            ):
                said = given[1 if level == "log" else 0]
                yield (
                    level,
                    said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else "",
                )


def page() -> str:
    rows = []
    for package in ("bot", "threads", "transports"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for level, said in calls_in(file):
                event, text = named(said)
                shown = " ".join(text.split()).replace("|", "\\|") or "-"
                where = file.relative_to(ROOT).as_posix()
                rows.append(f"| `{event}` | {level} | {shown} | `{where}` |")
    return HEAD + "\n".join(sorted(set(rows))) + "\n" + lines()
