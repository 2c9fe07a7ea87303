"""Runs `threadfast doctor`: load the settings, apply fixes if requested, check, report."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import click

from bot.config.load import load, secrets_of
from bot.config.transports import served
from bot.extensions.doctor.checks import run_checks
from bot.extensions.doctor.data_folder import check_folder
from bot.extensions.doctor.machine import check_machine
from bot.extensions.doctor.models import model_checks, models_of
from bot.extensions.doctor.platforms import check_platform, check_platforms
from bot.extensions.doctor.records import check_records
from bot.extensions.doctor.running_bot import check_running_bot
from bot.extensions.doctor.screen import DoctorScreen
from bot.extensions.doctor.settings import check_settings, unreadable
from bot.guards.redaction import Masker
from bot.host.checks import Check, Context, Findings
from bot.host.extension import extensions_of
from bot.host.status_client import find_running_bot
from bot.ports.config_error import EX_CONFIG, ConfigInvalid
from threads.store.disk import PosixDisk, replace_file
from transports.shared.checks import Finding


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The options of the command; ``bundle`` is the file to write, None for no bundle."""

    settings_file: Path | None = None
    data: Path | None = None
    offline: bool = False
    post_in: str = ""
    fix: bool = False
    as_json: bool = False
    bundle: Path | None = None


def run_doctor(options: DoctorOptions, environ: Mapping[str, str]) -> int:
    """Run and report the checks. Returns the exit code: 1 if one fails, 78 if the settings cannot be used."""
    return anyio.run(partial(_run, options, environ))


async def _run(options: DoctorOptions, environ: Mapping[str, str]) -> int:
    # The findings say what the log would; without a handler Python prints it between them.
    logging.getLogger().addHandler(logging.NullHandler())
    context, fault = _context(options, environ)
    if options.fix and not fault:
        await _apply_fixes(context)
    context = replace(context, running_bot=await context.offload(find_running_bot, context.settings.data))
    checks = checks_without_settings(fault, context) if fault else await all_checks(context)
    began = time.monotonic()
    if options.as_json:
        findings = await run_checks(checks, context, lambda _: None)
        documents = [mask_finding(finding, context).document() for finding in findings]
        ok = not any(finding.state == "fail" for finding in findings)
        click.echo(json.dumps({"ok": ok, "checks": documents}, indent=2))
    else:
        screen = DoctorScreen()
        with screen.waiting() as waiting:
            findings = await run_checks(
                checks, context, lambda finding: screen.tell(mask_finding(finding, context)), waiting
            )
        screen.done(findings, time.monotonic() - began)
    bundle = options.bundle
    written = await context.offload(_write_bundle, context, findings, bundle) if bundle else True
    return EX_CONFIG if fault else int(not written or any(finding.state == "fail" for finding in findings))


def mask_finding(finding: Finding, context: Context) -> Finding:
    found, meaning, fix = map(context.mask, (finding.found, finding.meaning, finding.fix))
    return replace(finding, name=context.mask(finding.name), found=found, meaning=meaning, fix=fix)


def _context(options: DoctorOptions, environ: Mapping[str, str]) -> tuple[Context, str]:
    """Return the context of all checks, and what is wrong with the settings if they cannot be used."""
    file, fault = options.settings_file, ""
    try:
        loaded = load(file, environ=environ)
    except ConfigInvalid as error:
        fault = str(error)
        loaded = load(None, environ=environ)
    data = {"data": options.data.absolute()} if options.data else {}
    settings = loaded.settings.model_copy(update=data)
    mask = Masker(secrets_of(settings, loaded.environ))
    return Context(settings, loaded.environ, file, options.offline, options.post_in, mask=mask), fault


async def all_checks(context: Context) -> list[Check]:
    """Return every check, in the order of the report."""
    return [
        Check("machine", check_machine),
        Check("settings", check_settings),
        Check("data", check_folder),
        Check("records", check_records),
        Check("bot", check_running_bot),
        *model_checks(await models_of(context.settings, context.environ)),
        *checks_of_extensions(context),
        Check("transports", check_platforms),
        *(Check(name, partial(check_platform, name)) for name in served(context.settings)),
    ]


def checks_of_extensions(context: Context) -> list[Check]:
    return [check for extension in extensions_of(context.settings) for check in extension.checks(context)]


def checks_without_settings(fault: str, context: Context) -> list[Check]:
    """Return the checks that need no settings."""

    async def check_settings(_: Context) -> Findings:
        yield unreadable(fault)

    return [
        Check("machine", check_machine),
        Check("settings", check_settings),
        *checks_of_extensions(context),
    ]


async def _apply_fixes(context: Context) -> None:
    from bot.extensions.doctor.fixes import apply_fixes

    for line in await context.offload(lambda: list(apply_fixes(context))) or ["nothing to fix"]:
        click.echo(context.mask(f"fix: {line}"), err=True)


def _write_bundle(context: Context, findings: Sequence[Finding], place: Path) -> bool:
    from bot.extensions.doctor.bundle import bundle

    text = bundle(context, findings, at=datetime.now(UTC))
    if str(place) == "-":
        click.echo(text)
        return True
    try:
        replace_file(PosixDisk(), place, text.encode())  # for its owner alone, and through no link
    except OSError as error:
        click.echo(f"Not written: {place}: {error.strerror}. Name another file.", err=True)
        return False
    click.echo(f"Written: {place}. Please read it before you share it.", err=True)
    return True
