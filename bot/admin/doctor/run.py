"""The whole of `threadfast doctor`: load, fix if asked, check, report."""

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
import click

from bot.admin.doctor.checks import Check, Context, Findings, run_checks
from bot.admin.doctor.data_folder import check_folder
from bot.admin.doctor.machine import check_machine
from bot.admin.doctor.platforms import check_discord, check_slack, check_transports
from bot.admin.doctor.records import check_records
from bot.admin.doctor.running_bot import check_running_bot
from bot.admin.doctor.screen import Screen
from bot.admin.doctor.settings import check_settings, unreadable
from bot.admin.doctor.tools import check_browser, check_sandbox, mcp_checks
from bot.admin.status.client import find_running_bot
from bot.config.load import load, secrets_of
from bot.guards.redaction import Masker
from bot.ports.errors import EX_CONFIG, ConfigInvalid
from transports.shared.checks import Finding


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What the command line asks for; ``bundle`` is where it is to be written, None for no bundle."""

    settings_file: Path | None = None
    data: Path | None = None
    offline: bool = False
    post_in: str = ""
    fix: bool = False
    as_json: bool = False
    bundle: Path | None = None


def run_doctor(wanted: DoctorOptions, environ: Mapping[str, str]) -> int:
    """Look, tell, and return the exit code: 1 if anything fails, 78 if the settings cannot be used."""
    return anyio.run(partial(_run, wanted, environ))


async def _run(wanted: DoctorOptions, environ: Mapping[str, str]) -> int:
    # What would be logged is among what is found; without a handler Python prints it between.
    logging.getLogger().addHandler(logging.NullHandler())
    look, fault = _look(wanted, environ)
    if wanted.fix and not fault:
        await _apply_fixes(look)
    beside = await find_running_bot(look.settings.data)
    look = replace(look, beside=beside)
    subjects = broken_settings(fault) if fault else await all_checks(look)
    began = time.monotonic()
    if wanted.as_json:
        findings = await run_checks(subjects, look, lambda _: None)
        told = [mask_finding(finding, look).document() for finding in findings]
        ok = not any(finding.state == "fail" for finding in findings)
        click.echo(json.dumps({"ok": ok, "checks": told}, indent=2))
    else:
        findings = await _shown(subjects, look, began)
    written = True
    if wanted.bundle:
        written = await look.offload(_write_bundle, look, findings, wanted.bundle)
    if fault:
        return EX_CONFIG
    return int(not written or any(finding.state == "fail" for finding in findings))


async def _shown(subjects: Sequence[Check], look: Context, began: float) -> list[Finding]:
    screen = Screen()
    with screen.waiting() as waiting:
        findings = await run_checks(
            subjects, look, lambda finding: screen.tell(mask_finding(finding, look)), waiting
        )
    screen.done(findings, time.monotonic() - began)
    return findings


def mask_finding(finding: Finding, look: Context) -> Finding:
    found, meaning, fix = map(look.mask, (finding.found, finding.meaning, finding.fix))
    return replace(finding, name=look.mask(finding.name), found=found, meaning=meaning, fix=fix)


def _look(wanted: DoctorOptions, environ: Mapping[str, str]) -> tuple[Context, str]:
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
    return Context(settings, loaded.environ, file, wanted.offline, wanted.post_in, mask=mask), fault


async def all_checks(look: Context) -> list[Check]:
    """Return all that is looked at, in the order in which it is told."""
    from bot.admin.doctor.models import model_checks, models_of  # noqa: PLC0415 - the wiring of everything: 1 s

    return [
        Check("machine", check_machine),
        Check("settings", check_settings),
        Check("data", check_folder),
        Check("records", check_records),
        Check("bot", check_running_bot),
        *model_checks(await models_of(look.settings, look.environ)),
        Check("sandbox", check_sandbox),
        Check("browser", check_browser),
        *mcp_checks(look),
        Check("transports", check_transports),
        Check("slack", check_slack),
        Check("discord", check_discord),
    ]


def broken_settings(fault: str) -> list[Check]:
    """Return what can be looked at without settings."""

    async def told(_: Context) -> Findings:
        yield unreadable(fault)

    return [
        Check("machine", check_machine),
        Check("settings", told),
        Check("sandbox", check_sandbox),
    ]


async def _apply_fixes(look: Context) -> None:
    from bot.admin.doctor.fixes import apply_fixes  # noqa: PLC0415 - only on demand

    done = await look.offload(lambda: list(apply_fixes(look)))
    for line in done or ["nothing to fix"]:
        click.echo(look.mask(f"fix: {line}"), err=True)


def _write_bundle(look: Context, findings: Sequence[Finding], place: Path) -> bool:
    from bot.admin.doctor.bundle import bundle  # noqa: PLC0415 - only on demand

    text = bundle(look, findings, at=datetime.now(UTC))
    if str(place) == "-":
        click.echo(text)
        return True
    try:
        with _for_us_alone(place) as file:
            file.write(text)
    except OSError as error:
        why = "is a link" if error.errno == errno.ELOOP else error.strerror
        click.echo(f"Not written: {place}: {why}. Name another file.", err=True)
        return False
    click.echo(f"Written: {place}. Please read it before you share it.", err=True)
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
