"""The whole of `threadfast doctor`: load, mend if asked to, look, tell."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO

import anyio
import anyio.to_thread

from bot.admin.doctor.data_folder import look_at_folder
from bot.admin.doctor.examination import Findings, Look, Subject, examine
from bot.admin.doctor.machine import look_at_machine
from bot.admin.doctor.platforms import look_at_discord, look_at_slack, look_at_transports
from bot.admin.doctor.records import look_at_records
from bot.admin.doctor.running_bot import look_beside
from bot.admin.doctor.screen import Screen, err
from bot.admin.doctor.settings import look_at_settings, unreadable
from bot.admin.doctor.tools import look_at_browser, look_at_sandbox, mcp_servers
from bot.admin.status.client import who_runs
from bot.config.load import load, secrets_of
from bot.guards.redaction import Masker
from bot.ports.errors import EX_CONFIG, ConfigInvalid
from transports.shared.checks import Finding


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for; ``bundle`` is where it is to be written, None for no bundle."""

    settings_file: Path | None = None
    data: Path | None = None
    offline: bool = False
    post_in: str = ""
    fix: bool = False
    as_json: bool = False
    bundle: Path | None = None


def run_doctor(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Look, tell, and return the exit code: 1 if anything fails, 78 if the settings cannot be used."""
    return anyio.run(partial(_run, wanted, environ))


async def _run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    # What would be logged is among what is found; without a handler Python prints it between.
    logging.getLogger().addHandler(logging.NullHandler())
    look, fault = _look(wanted, environ)
    if wanted.fix and not fault:
        await _mended(look)
    beside = await who_runs(look.settings.data)
    look = replace(look, beside=beside)
    subjects = broken_settings(fault) if fault else await all_subjects(look)
    began = time.monotonic()
    if wanted.as_json:
        findings = await examine(subjects, look, lambda _: None)
        told = [masked(finding, look).document() for finding in findings]
        ok = not any(finding.state == "fail" for finding in findings)
        print(json.dumps({"ok": ok, "checks": told}, indent=2))  # noqa: T201 - its output
    else:
        findings = await _shown(subjects, look, began)
    written = True
    if wanted.bundle:
        written = await look.offload(_write_bundle, look, findings, wanted.bundle)
    if fault:
        return EX_CONFIG
    return int(not written or any(finding.state == "fail" for finding in findings))


async def _shown(subjects: Sequence[Subject], look: Look, began: float) -> list[Finding]:
    screen = Screen()
    with screen.waiting() as waiting:
        findings = await examine(subjects, look, lambda finding: screen.tell(masked(finding, look)), waiting)
    screen.done(findings, time.monotonic() - began)
    return findings


def masked(finding: Finding, look: Look) -> Finding:
    found, meaning, fix = map(look.mask, (finding.found, finding.meaning, finding.fix))
    return replace(finding, name=look.mask(finding.name), found=found, meaning=meaning, fix=fix)


def _look(wanted: Wanted, environ: Mapping[str, str]) -> tuple[Look, str]:
    """Return what is looked at, and what is wrong with the settings if they cannot be used."""
    file, fault = wanted.settings_file, ""
    try:
        loaded = load(file, environ=environ)
    except ConfigInvalid as error:
        fault = str(error)
        loaded = load(None, environ=environ)
    settings = loaded.settings
    if wanted.data:
        settings = settings.model_copy(update={"data": wanted.data.absolute()})
    mask = Masker(secrets_of(settings, loaded.environ))
    return Look(settings, loaded.environ, file, wanted.offline, wanted.post_in, mask=mask), fault


async def all_subjects(look: Look) -> list[Subject]:
    """Return all that is looked at, in the order in which it is told."""
    from bot.admin.doctor.models import model_subjects, models_of  # noqa: PLC0415 - the wiring of everything: 1 s

    return [
        Subject("machine", look_at_machine),
        Subject("settings", look_at_settings),
        Subject("data", look_at_folder),
        Subject("records", look_at_records),
        Subject("bot", look_beside),
        *model_subjects(await models_of(look.settings, look.environ)),
        Subject("sandbox", look_at_sandbox),
        Subject("browser", look_at_browser),
        *mcp_servers(look),
        Subject("transports", look_at_transports),
        Subject("slack", look_at_slack),
        Subject("discord", look_at_discord),
    ]


def broken_settings(fault: str) -> list[Subject]:
    """Return what can be looked at without settings."""

    async def told(_: Look) -> Findings:
        yield unreadable(fault)

    return [
        Subject("machine", look_at_machine),
        Subject("settings", told),
        Subject("sandbox", look_at_sandbox),
    ]


async def _mended(look: Look) -> None:
    from bot.admin.doctor.fixes import mend  # noqa: PLC0415 - only on demand

    done = await look.offload(lambda: list(mend(look)))
    for line in done or ["nothing to fix"]:
        err(look.mask(f"fix: {line}"))


def _write_bundle(look: Look, findings: Sequence[Finding], place: Path) -> bool:
    from bot.admin.doctor.bundle import bundle  # noqa: PLC0415 - only on demand

    text = bundle(look, findings, at=datetime.now(UTC))
    if str(place) == "-":
        print(text)  # noqa: T201 - its output
        return True
    try:
        with _for_us_alone(place) as file:
            file.write(text)
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else error.strerror
        err(f"Not written: {place}: {why}. Name another file.")
        return False
    err(f"Written: {place}. Please read it before you share it.")
    return True


def _for_us_alone(place: Path) -> TextIO:
    """Open a file that only we can read, whatever lay there. Raises OSError for what is a link, or not our file."""
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    file = os.fdopen(descriptor, "w", encoding="utf-8")
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, "is there, and no file of yours")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except OSError:
        file.close()
        raise
    return file
