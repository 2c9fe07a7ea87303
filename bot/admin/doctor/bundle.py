"""`doctor --bundle`: one text to attach to a report, with what a maintainer needs and nothing private.

| in it                                                  | not in it                                            |
|--------------------------------------------------------|------------------------------------------------------|
| versions: program, Python, system, libraries           | names of the machine and its users, paths            |
| settings: numbers, switches, model names, references   | texts, addresses, names, ids                         |
| all findings                                           | names in them, output of other programs              |
| the status of the running bot                          | where its data is                                    |
| counts of outcomes, failures with their references     | messages and their authors                           |
| the last lines of the log: time, level, event          | the texts of the lines                               |

What goes in is listed here; everything else is left out. Secrets are masked at the end all the same.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import JsonValue

from bot.admin.doctor.records import summarize_journal
from bot.admin.doctor.screen import plain_lines
from bot.config.settings import REFERENCE, Settings
from bot.host.checks import Context
from bot.host.extension import groups_of
from bot.ports.status import NoStatus
from threads.errors import NewerSchema
from transports.shared.checks import Finding

LIBRARIES = (
    "anthropic", "anyio", "discord.py", "genai-prices", "mcp", "openai", "pydantic", "rich",
    "slack-sdk", "aiohttp", "httpx2", "playwright", "uvloop",
)  # fmt: skip
LOG_LINES = 200
LOG_BYTES = 1_000_000
REFERENCES = 5
"""The last ones of each error code."""

PLAIN_KEYS = frozenset({
    "model", "fallback_models", "model_map", "mode", "kind", "backoff", "acknowledge", "busy", "sandbox", "streaming",
    "log_level", "log_format", "enabled", "after_outside_text", "policy",
    "bot_token", "app_token", "token", "api_key", "api_keys",
    "reasoning", "efforts", "retryable",
})  # fmt: skip
"""Settings keys whose values are words of ours, model names or references."""

NAMED = frozenset({"providers", "prices", "models", "model_map", "per_tool", "policy"})
"""Maps by model, provider or tool."""

PRIVATE_NAMES = frozenset(
    {"mcp_servers", "env", "headers", "metadata", "extra_body", "chat_template_kwargs", "scopes"}
)
"""Maps whose keys are left out."""

OMITTED = frozenset({"$schema", "data"})
LOCAL = re.compile(
    r"(?:http|ws)s?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?:/(?:v1|api/?(?:v10)?)?)?/?$"
)
"""Addresses that are the same on every machine."""

LOG_FIELDS = (
    ("at", re.compile(r"([0-9T:.-]{1,23})(?:[+Z].*)?$")),
    ("level", re.compile(r"([a-z]{1,8})$")),
    ("logger", re.compile(r"((?:bot|threads|transports)[a-z_.]*)$")),
    ("event", re.compile(r"([a-z_]+(?:\.[a-z_]+)+|library)(?::|$)")),
    ("correlation_id", re.compile(r"([0-9a-zA-Z-]{1,40})$")),
)
"""What a line of the log may show, and its form."""
PATTERN = re.compile(r"\(.*", re.DOTALL)


def bundle(context: Context, findings: Sequence[Finding], *, at: datetime) -> str:
    """Return the text. Blocking; raises nothing but for bugs."""
    parts = (
        ("Versions", _versions()),
        ("Checks", _checks(findings, context)),
        ("Settings that are not the default", _settings(context.settings)),
        ("Running bot", _status(context)),
        ("Journal", _journal(context.settings)),
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
    libraries = []
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            libraries.append(f"{name} {version(name)}")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    python = f"Python {platform.python_version()} ({sys.implementation.name})"
    return [f"threadfast {version('threadfast')}, {python}, {system}", ", ".join(libraries)]


def _checks(findings: Sequence[Finding], context: Context) -> list[str]:
    places = {str(context.settings.data): "<data>", str(Path.home()): "~", str(Path.cwd()): "<here>"}
    if context.settings_file:
        places[str(context.settings_file.absolute().parent)] = "<settings>"

    def hide(line: str, finding: Finding) -> str:
        groups = groups_of(context.settings)
        for name in sorted((*finding.names, *(groups if "." in finding.name else ())), key=len, reverse=True):
            line = line.replace(" ".join(name.split()), "<name>") if name.strip() else line
        for place, short in sorted(places.items(), key=lambda pair: -len(pair[0])):
            line = line.replace(place, short) if len(place) > 1 else line
        return line

    return [hide(line, finding) for finding in findings for line in plain_lines(finding)]


def _settings(settings: Settings) -> list[str]:
    changed: JsonValue = settings.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return json.dumps(public_settings(changed), indent=1, ensure_ascii=False).splitlines() if changed else []


def public_settings(value: JsonValue, key: str = "") -> JsonValue:
    """Return settings without private values; *key* is the settings key that holds *value*."""
    match value:
        case dict() if key in PRIVATE_NAMES:
            return [
                public_settings(inner, "" if isinstance(inner, dict) else key) for inner in value.values()
            ]
        case dict() if key in NAMED:
            # The rule of a tool may name some of its calls, which are private.
            return {
                PATTERN.sub("(…)", name): public_settings(inner, "" if isinstance(inner, dict) else key)
                for name, inner in value.items()
            }
        case dict():
            return {
                name: public_settings(inner, name) for name, inner in value.items() if name not in OMITTED
            }
        case list():
            return [public_settings(inner, key) for inner in value]
        case str() if not (
            value in ("", "*") or key in PLAIN_KEYS or REFERENCE.fullmatch(value) or LOCAL.match(value)
        ):
            return f"[{len(value)} characters]"
        case _:
            return value


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
        {"model": one.title, "state": one.state, "waiting": one.waiting} for one in status.circuits
    ]
    return [f"{name}: {json.dumps(value)}" for name, value in values.items()]


def _journal(settings: Settings) -> list[str]:
    if settings.store.kind != "files":
        return ["in the database"]
    try:
        summary = summarize_journal(settings.data)
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
    """Yield the time, level, logger, event and reference of each JSON line, but never its text."""
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, Mapping) and (words := [_public(entry, *field) for field in LOG_FIELDS])[0]:
            yield " ".join(filter(None, words))


def _public(entry: Mapping[str, object], name: str, pattern: re.Pattern[str]) -> str:
    found = pattern.match(str(entry.get(name, "")))
    return found[1] if found else ""
