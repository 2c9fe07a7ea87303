"""`doctor --bundle`: one text to attach to a report, with what a maintainer needs and nothing private.

| in it                                                  | not in it                                            |
|--------------------------------------------------------|------------------------------------------------------|
| versions: program, Python, system, libraries           | names of the machine and its users, paths            |
| all findings                                           | names in them, output of other programs              |
| the status of the running bot                          | where its data is                                    |
| counts of outcomes, failures with their references     | messages and their authors                           |

What goes in is listed here; everything else is left out. Secrets are masked at the end all the same.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bot.config.settings import Settings
from bot.extensions.doctor.records import summarize_journal
from bot.extensions.doctor.screen import plain_lines
from bot.host.checks import Context
from bot.host.extension import groups_of
from bot.ports.status import NoStatus
from threads.errors import NewerSchema
from transports.shared.checks import Finding

LIBRARIES = (
    "anthropic", "anyio", "discord.py", "genai-prices", "mcp", "openai", "pydantic", "rich",
    "slack-sdk", "aiohttp", "httpx2", "playwright", "uvloop",
)  # fmt: skip
REFERENCES = 5
"""The last ones of each error code."""


def bundle(context: Context, findings: Sequence[Finding], *, at: datetime) -> str:
    """Return the text. Blocking; raises nothing but for bugs."""
    parts = (
        ("Versions", _versions()),
        ("Checks", _checks(findings, context)),
        ("Running bot", _status(context)),
        ("Journal", _journal(context.settings)),
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

    groups = groups_of(context.settings)

    def hide(line: str, finding: Finding) -> str:
        for name in sorted((*finding.names, *(groups if "." in finding.name else ())), key=len, reverse=True):
            line = line.replace(" ".join(name.split()), "<name>") if name.strip() else line
        for place, short in sorted(places.items(), key=lambda pair: -len(pair[0])):
            line = line.replace(place, short) if len(place) > 1 else line
        return line

    return [hide(line, finding) for finding in findings for line in plain_lines(finding)]


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
