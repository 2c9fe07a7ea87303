"""Checks the settings, and the secrets that they refer to."""

from __future__ import annotations

import stat
from pathlib import Path

from bot.config.load import CREDENTIALS, check_used, references, unknown_skills
from bot.config.network import network_faults
from bot.extensions.doctor.data_folder import OPEN
from bot.host.checks import AS_ROOT, Context, Findings
from transports.shared.checks import Finding

WRITABLE = stat.S_IWGRP | stat.S_IWOTH
MOST_NAMED = 5


async def check_settings(context: Context) -> Findings:
    yield await context.offload(_settings, context)
    for finding in await context.offload(_secrets, context):
        yield finding
    for finding in await context.offload(_network, context):
        yield finding


def unreadable(faults: str) -> Finding:
    """Return the finding of settings that cannot be used; *faults* has one a line."""
    found = "; ".join(line.strip() for line in faults.splitlines()[:-1] or faults.splitlines())
    meaning = "The bot does not start (exit code 78). The checks below use the defaults."
    fix = "Correct it. `threadfast schema` prints every key and its allowed values."
    return Finding("settings", "fail", found, meaning, fix)


def _settings(context: Context) -> Finding:
    if (file := context.settings_file) is None:
        return Finding("settings", "ok", "no settings.json here: all settings have their defaults")
    if missing := unknown_skills(context.settings):
        found, fix = "; ".join(missing[:MOST_NAMED]), "Correct these names, or take them out."
        return Finding("settings", "fail", found, "The bot does not start (exit code 78).", fix)
    if file.stat().st_mode & WRITABLE:
        meaning = "Anyone who can write it controls what the bot runs."
        return Finding("settings", "warn", f"{file} can be written by others", meaning, f"chmod go-w {file}")
    return Finding("settings", "ok", f"{file} is valid")


def _secrets(context: Context) -> list[Finding]:
    faults = check_used(context.settings, context.environ, transports=True)
    findings = [_unread(fault, context) for fault in faults]
    open_ones = [place for place in secret_places(context) if _mode(place) & OPEN]
    if open_ones:
        names = ", ".join(sorted(str(file) for file in open_ones)[:MOST_NAMED])
        found, meaning = (
            f"others on this machine can read {names}",
            "Anyone who has a token can act as the bot.",
        )
        fix = "`threadfast doctor --fix`, or chmod 600 (a folder: 700)."
        findings.append(Finding("secrets.modes", "warn", found, meaning, fix))
    return findings or [Finding("secrets", "ok", "all are readable, and only by this user")]


def _unread(fault: str, context: Context) -> Finding:
    """Return the finding of a secret that this user cannot read. A running bot may have more rights."""
    if context.has_all_links:
        meaning = "This user cannot read it. The running bot could at its start."
        return Finding("secrets", "warn", fault, meaning, AS_ROOT)
    fix = "Set it, or run `threadfast init` to be asked for it."
    if ": file:" in fault:
        fix += " Under systemd only the service and root see it: `systemctl status threadfast` says whether it runs."
    return Finding("secrets", "fail", fault, "The bot does not start without it.", fix)


def _network(context: Context) -> list[Finding]:
    parts = (fault.partition(". ") for fault in network_faults(context.environ, context.settings.ca_file))
    meaning = "The bot does not start (exit code 78)."
    return [Finding("network", "fail", found, meaning, f"{fix or 'Correct it'}.") for found, _, fix in parts]


def secret_places(context: Context) -> set[Path]:
    """Return the files with secrets, and their folders, that are ours: systemd keeps its own closed."""
    own = Path(context.environ.get("CREDENTIALS_DIRECTORY", ""))
    files = {
        own / ref.removeprefix("file:")
        for ref in references(context.settings).values()
        if ref.startswith("file:")
    }
    folders = {file.parent for file in files if file.parent.name == CREDENTIALS}
    return {place for place in files | folders if not place.is_relative_to("/run/credentials")}


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0
