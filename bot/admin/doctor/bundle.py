"""`doctor --bundle`: one text to attach to a report, with what a maintainer needs and nothing private.

| in it                                                  | not in it                                            |
|--------------------------------------------------------|------------------------------------------------------|
| versions: program, Python, system, libraries           | names of the machine and its users, paths            |
| settings: numbers, switches, model names, references   | texts, addresses, names; ids only as marks           |
| all findings                                           | names in them, output of other programs              |
| the status of the running bot                          | where its data is                                    |
| counts of outcomes, failures with their references     | messages and their authors                           |
| the last lines of the log: time, level, event          | the texts of the lines                               |

What goes in is listed here; everything else is left out. Secrets are masked at the end all the same.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import secrets
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import JsonValue

from bot.admin.doctor.checks import Context
from bot.admin.doctor.records import summarize_journal
from bot.admin.doctor.screen import plain_lines
from bot.admin.status.client import NoStatus
from bot.config.settings import REFERENCE
from threads.errors import NewerSchema
from transports.shared.checks import Finding

LIBRARIES = (
    "anthropic", "anyio", "discord.py", "genai-prices", "mcp", "openai", "pydantic", "rich", "slack-bolt",
    "slack-sdk", "aiohttp", "httpx", "playwright", "uvloop",
)  # fmt: skip
LOG_LINES = 200
LOG_BYTES = 1_000_000
REFERENCES = 5
"""Of each code of an error, how many of the last ones."""

PLAIN_KEYS = frozenset({
    "model", "fallback_models", "model_map", "mode", "kind", "backoff", "acknowledge", "busy", "sandbox", "streaming",
    "log_level", "log_format", "enabled", "after_outside_text", "policy",
    "bot_token", "app_token", "token", "api_key",
})  # fmt: skip
"""Keys of the settings whose words are ours, a model's name, or a reference."""

NAMED = frozenset({"providers", "prices", "models", "model_map", "per_tool", "policy"})
"""Maps whose keys are names of models, providers and tools."""

MARKED = frozenset({"mcp_servers", "env", "headers"})
"""Maps whose keys are anything."""

OMITTED = frozenset({"$schema", "data"})
LOCAL = re.compile(
    r"(?:http|ws)s?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?:/(?:v1|api/?(?:v10)?)?)?/?$"
)
"""Addresses that are the same on every machine."""

IDS = frozenset({"users", "roles", "channels", "admins", "bots", "in_place", "channel"})
EVENT = re.compile(r"([a-z_]+(?:\.[a-z_]+)+|library)(?::|$)")
PATTERN = re.compile(r"\(.*", re.DOTALL)


class Marks:
    """Replaces private words by marks, equal words alike within one bundle; nobody can find out what they were."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def __call__(self, text: str) -> str:
        return f"<{hashlib.blake2s(text.encode('utf-8', 'replace'), key=self._salt).hexdigest()[:6]}>"


def bundle(context: Context, findings: Sequence[Finding], *, at: datetime) -> str:
    """Return the text. Blocking; raises nothing but for bugs."""
    marks = Marks()
    parts = (
        ("Versions", _versions()),
        ("Checks", _checks(findings, context, marks)),
        ("Settings that are not the default", _settings(context, marks)),
        ("Running bot", _status(context)),
        ("Journal", _journal(context.settings.data)),
        ("Log", _log(context.settings.data / "threadfast.log")),
    )
    lines = [
        f"# Threadfast doctor, {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        "",
        "This text holds no messages, names, ids, addresses or secrets. Please read it before you share it.",
    ]
    for title, body in parts:
        lines += ["", f"## {title}", "", *(body or ["nothing"])]
    return context.mask("\n".join(lines)) + "\n"


def _versions() -> list[str]:
    libraries = [f"{name} {found}" for name in LIBRARIES if (found := _version(name))]
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"Python {platform.python_version()} ({sys.implementation.name})"
    return [
        f"threadfast {_version('threadfast')}, {python}, {system}",
        ", ".join(libraries),
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _checks(findings: Sequence[Finding], context: Context, marks: Marks) -> list[str]:
    places = {str(context.settings.data): "<data>", str(Path.home()): "~", str(Path.cwd()): "<here>"}
    if context.settings_file:
        places[str(context.settings_file.absolute().parent)] = "<settings>"

    def hide(line: str, finding: Finding) -> str:
        servers = context.settings.mcp_servers if finding.name.startswith("mcp_servers.") else ()
        for name in sorted((*finding.names, *servers), key=len, reverse=True):
            line = line.replace(" ".join(name.split()), marks(name)) if name.strip() else line
        for place, short in sorted(places.items(), key=lambda pair: -len(pair[0])):
            line = line.replace(place, short) if len(place) > 1 else line
        return line

    return [hide(line, finding) for finding in findings for line in plain_lines(finding)]


def _settings(context: Context, marks: Marks) -> list[str]:
    given: JsonValue = context.settings.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    values = masked_settings(given, "", marks)
    return json.dumps(values, indent=1, ensure_ascii=False).splitlines() if values else []


def masked_settings(value: JsonValue, key: str, marks: Callable[[str], str]) -> JsonValue:
    """Return settings without what is somebody's own; *key* is that of the settings which holds the value."""
    match value:
        case dict() if key in NAMED or key in MARKED:
            # A map: its keys are names, and what they hold is a section of its own, or the map's.
            tell = marks if key in MARKED else _without_pattern
            return {
                tell(name): masked_settings(held, "" if isinstance(held, dict) else key, marks)
                for name, held in value.items()
            }
        case dict():
            return {
                name: masked_settings(held, name, marks)
                for name, held in value.items()
                if name not in OMITTED
            }
        case list():
            return [masked_settings(held, key, marks) for held in value]
        case str() if (
            value in ("", "*") or key in PLAIN_KEYS or REFERENCE.fullmatch(value) or LOCAL.match(value)
        ):
            return value
        case str():
            return marks(value) if key in IDS else f"[{len(value)} characters]"
        case _:
            return value


def _without_pattern(name: str) -> str:
    """Return the name of a tool whose rule is about some of its calls."""
    return PATTERN.sub("(…)", name)


def _status(context: Context) -> list[str]:
    status = context.running_bot
    if isinstance(status, NoStatus):
        return [] if status.state == "absent" else [status.state]
    values = asdict(status) | {"data": "<data>"}
    values["troubles"] = len(status.troubles)
    values["transports"] = [
        {"name": edge.name, "state": edge.state, "silent_s": edge.silent_s} for edge in status.transports
    ]
    values["circuits"] = [
        {"model": one.model, "state": one.state, "waiting": one.waiting} for one in status.circuits
    ]
    return [f"{name}: {json.dumps(value)}" for name, value in values.items()]


def _journal(data: Path) -> list[str]:
    try:
        summary = summarize_journal(data)
    except (NewerSchema, OSError) as error:
        return [f"not read: {type(error).__name__}"]
    ends = [f"{outcome}: {count}" for outcome, count in sorted(summary.outcomes.items())]
    failures = [
        f"{code}: {len(references)}, the last ones {', '.join(filter(None, references[-REFERENCES:])) or 'unknown'}"
        for code, references in sorted(summary.failures.items())
    ]
    return [
        f"records: {summary.records}, damaged: {summary.damaged}, waiting: {summary.waiting}",
        *ends,
        *failures,
    ]


def _log(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return list(deque(_events(text.splitlines()), LOG_LINES))


def _events(lines: Sequence[str]) -> Iterator[str]:
    """Return when, how grave and which event each JSON line is about: never what it says."""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, Mapping):
            event = EVENT.match(str(entry.get("event", "")))
            at, level = str(entry.get("at", ""))[:23], str(entry.get("level", ""))[:8]
            reference = re.fullmatch(r"[0-9a-zA-Z-]{1,40}", str(entry.get("correlation_id", "")))
            logger = re.fullmatch(r"(?:bot|threads|transports)[a-z_.]*", str(entry.get("logger", "")))
            words = (
                at,
                level,
                logger[0] if logger else "",
                event[1] if event else "",
                reference[0] if reference else "",
            )
            if re.fullmatch(r"[0-9T:.-]*", at) and level.isalpha():
                yield " ".join(filter(None, words))
