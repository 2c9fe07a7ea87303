"""audit/<yyyy-mm-dd>.jsonl, read: who decided or judged what, and what the bot did of its own accord.

Kinds are not checked here: a newer bot may know more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from bot.admin.reports.line_reader import Damage, read_from
from bot.admin.reports.thread import in_json
from threads.store.checksummed_lines import SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One line of the audit."""

    at: str
    kind: str
    thread_id: str = ""
    message_id: str = ""
    author: str = ""
    details: dict[str, JsonValue] = field(default_factory=dict)
    correlation_id: str = ""
    v: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: from a day on or from an instant on (UTC, ISO 8601), of kinds, of threads; empty is any."""

    since: str = ""
    kinds: Sequence[str] = ()
    threads: Sequence[str] = ()
    about: Sequence[str] = ()
    """Ids of messages, or references of their turns."""

    def has(self, decision: Decision) -> bool:
        return (
            decision.at >= self.since
            and (not self.kinds or decision.kind in self.kinds)
            and (not self.threads or decision.thread_id in self.threads)
            and (not self.about or bool({decision.message_id, decision.correlation_id} & {*self.about}))
        )


@cache
def decision_adapter() -> TypeAdapter[Decision]:
    """Return the validator of audit lines, built on first use."""
    return TypeAdapter(Decision)


def days(data: Path, since: str = "") -> list[Path]:
    """Return the files from a day on, oldest first."""
    return sorted(path for path in (data / "audit").glob("????-??-??.jsonl") if path.stem >= since[:10])


def decisions(
    data: Path, wanted: Wanted, damage: Damage, wait: Callable[[], None] | None = None
) -> Iterator[Decision]:
    """Return the lines that are wanted, in their order. Raises `threads.errors.NewerSchema` and OSError.

    With *wait* it never ends: whenever there is no more, it waits and looks again, for a new day's file too.
    """
    words = [in_json(word) for word in wanted.about or wanted.threads]
    read: dict[Path, int] = {}
    while True:
        for path in days(data, wanted.since)[-2 if read else 0 :]:
            with path.open("rb") as file:
                file.seek(read.get(path, 0))
                yield from filter(wanted.has, read_from(file, decision_adapter(), damage, words))
                read[path] = file.tell()
        if wait is None:
            return
        wait()


INNER = frozenset({"call"})
"""Details that tell a person nothing: what a question and its answer know each other by."""


def told(decision: Decision) -> str:
    """Return a line's details in words, for people: what it is about, then the rest by name."""
    rest = {name: value for name, value in decision.details.items() if value not in ("", None)}
    first = ""
    match decision.kind, rest:
        case "retry", {"attempt": attempt, "wait_s": wait_s}:
            first = f"{_what(rest)}; try {attempt} in {wait_s} s"
        case "tool", {"tool": tool}:
            first = f"{tool} failed: {_what(rest, 'error', 'reason').removeprefix(f'{tool}: ')}"
        case (("error" | "failover"), {"event": _}):
            first = _what(rest)
        case "approval", {"tool": tool, "verdict": verdict}:
            first = f"{verdict}: {tool} {rest.get('about', '')}".rstrip()
        case "decision", {"about": about, "verdict": verdict}:
            first = f"{verdict}: {about}"
        case _:
            pass
    said = TOLD.get(decision.kind, INNER) if first else INNER
    return ", ".join([*([first] if first else []), *(f"{n} {v}" for n, v in rest.items() if n not in said)])


def _what(details: Mapping[str, JsonValue], *names: str) -> str:
    return ": ".join(str(details[name]) for name in names or ("event", "error", "reason") if name in details)


TOLD = {
    "retry": INNER | {"event", "error", "reason", "attempt", "wait_s", "model"},
    "failover": INNER | {"event", "error", "reason", "model", "from_model"},
    "tool": INNER | {"event", "error", "reason", "tool"},
    "error": INNER | {"event", "error", "reason"},
    "approval": INNER | {"tool", "verdict", "about"},
    "decision": frozenset({"verdict", "about"}),
}
"""Details that the first words tell already."""


def as_value(decision: Decision) -> dict[str, object]:
    value = asdict(decision)
    del value["v"]
    return value
