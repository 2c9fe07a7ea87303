"""The commands before the first start: `init`, `check`, `manifest` and `schema`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.admin.cli.terminal_repair import repair_terminal
from bot.config.built_in_extensions import BUILT_IN
from bot.host.invocation import (
    data_option,
    find_settings,
    json_option,
    load,
    print_json,
    refuse,
    settings_option,
)
from bot.ports.config_error import EX_CONFIG, ConfigInvalid

if TYPE_CHECKING:
    from bot.admin.setup.options import InitOptions
    from bot.config.settings import Settings

NO_PLATFORM = "No chat platform is configured. `threadfast chat` works; `threadfast init slack` adds one."
SECRET_FILES = {"slack": ("bot_token", "app_token"), "discord": ("token",)}
"""Fields of each platform, with the flag `--FIELD-file`."""
PLATFORM_FLAGS = {
    **{f"{field}_file": (platform,) for platform, fields in SECRET_FILES.items() for field in fields},
    **dict.fromkeys(("users", "admins", "api_base_url"), ("discord", "slack")),
    "gateway_url": ("discord",),
}
"""Flags that are about a platform, and about which."""

_file = click.Path(path_type=Path)


@click.command()
@click.argument("platform", type=click.Choice(["slack", "discord"]), required=False)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: use what is found, or report what is missing.")
@click.option("--model", default="", help="provider/model that answers.")
@click.option("--base-url", default="", help="Address of its provider, OpenAI-compatible; ends in /v1.")
@click.option("--key-file", type=_file, help="File that holds its key.")
@click.option("--free", is_flag=True, help="Its provider's models cost nothing, as on a server of yours.")
@click.option(
    "--price",
    default="",
    metavar="INPUT/OUTPUT",
    help="What it costs, in USD per million tokens, if that is not known.",
)
@click.option("--bot-token-file", type=_file, help="Slack: file that holds the xoxb token.")
@click.option("--app-token-file", type=_file, help="Slack: file that holds the xapp token.")
@click.option("--token-file", type=_file, help="Discord: file that holds the bot token.")
@click.option(
    "--user",
    "users",
    multiple=True,
    help="Member id that may use the bot; repeat for more. Default: everyone.",
)
@click.option("--admin", "admins", multiple=True, help="Member id that may raise limits; repeat for more.")
@click.option("--name", default="", help="What the bot is called.")
@settings_option
@data_option
@click.option("--no-verify", is_flag=True, help="Do not test the model or the platform.")
@click.option("--no-start", is_flag=True, help="Do not start the bot at the end.")
@click.option("--api-base-url", default="", help="Address of a gateway in the platform's place.")
@click.option("--gateway-url", default="", help="Discord: the same, for its socket (wss://).")
@json_option
@click.pass_context
def init(
    context: click.Context,
    /,
    platform: str | None,
    settings_file: Path | None,
    *,
    no_start: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Set the bot up: a model, and a chat platform if you like. With a platform it then starts there.

    Secrets are typed unseen, or come from the environment, from files, or from a pipe with --yes, one per line. They
    are stored in credentials/ beside the settings. Nothing is written until everything is tested.
    """
    from bot.admin.setup.dialog import Screen
    from bot.admin.setup.wizard import set_up
    from bot.guards.hardening import harden_process

    harden_process()
    repair_terminal()
    options = _options(platform or "", settings_file, flags, as_json=as_json)
    interactive = not options.yes and on_terminal()
    screen = Screen(interactive=interactive, quiet=as_json)
    try:
        done = set_up(options, os.environ, screen)
    except ConfigInvalid as error:
        refuse(screen.mask(str(error)))
    except OSError as error:
        refuse(f"{error.filename or options.settings}: {error.strerror}. The settings are as they were.")
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nStopped; nothing was changed.", err=True)
        sys.exit(130)
    if as_json:
        print_json(done.document())
        return
    starts = bool(platform) and not no_start and done.startable
    screen.closing(done.then, done.hello, starts=starts)
    if starts:
        from bot.admin.cli.serve import run

        context.invoke(run, settings_file=options.settings, data=None)


def on_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _options(
    platform: str, settings_file: Path | None, flags: dict[str, object], *, as_json: bool
) -> InitOptions:
    """Gather the flags. Raises `click.UsageError` for one that is empty, or does not go with the others."""
    from bot.admin.setup.models import price_of
    from bot.admin.setup.options import InitOptions

    source = click.get_current_context().get_parameter_source
    for name, value in flags.items():
        if value == "" and source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_flag(name)} is empty")
        owners = PLATFORM_FLAGS.get(name)
        if value and owners and platform not in owners:
            raise click.UsageError(f"{_flag(name)} goes with: threadfast init {owners[-1]}")
        if value and name in {"base_url", "key_file", "free", "price"} and not flags["model"]:
            raise click.UsageError(f"{_flag(name)} goes with --model: it is about that model's provider")
    if flags["free"] and flags["price"]:
        raise click.UsageError("--free and --price exclude each other")
    if flags["price"] and not price_of(str(flags["price"])):
        raise click.UsageError("--price: write two numbers, such as 0.50/1.50")
    paths = {name: flags.pop(f"{name}_file") for fields in SECRET_FILES.values() for name in fields}
    files = {name: path for name, path in paths.items() if isinstance(path, Path)}
    verify = not flags.pop("no_verify")
    yes = bool(flags.pop("yes")) or as_json
    path = settings_file or Path("settings.json")
    return InitOptions(path.absolute(), platform, verify=verify, yes=yes, files=files, **flags)  # type: ignore[arg-type]


def _flag(name: str) -> str:
    return "--" + {"users": "user", "admins": "admin"}.get(name, name).replace("_", "-")


@click.group()
def manifest() -> None:
    """Print what a chat platform must know about the bot."""


@manifest.command("slack")
@settings_option
def manifest_slack(settings_file: Path | None) -> None:
    """Print the manifest of the Slack app. Paste it when you create the app."""
    from bot.wiring.run import slack_manifest

    app_manifest, reasons = slack_manifest(load(settings_file, None).settings)
    click.echo(json.dumps(app_manifest, indent=2, ensure_ascii=False))
    click.echo("Why it asks for these scopes:", err=True)
    for reason in reasons:
        click.echo(f"  {reason}", err=True)


@click.command()
@settings_option
@json_option
@click.option(
    "--for",
    "place",
    metavar="PLACE",
    default="",
    help="Print what holds there and why: slack:TEAM:CHANNEL, discord:GUILD:CHANNEL, or without the channel.",
)
@click.option("--person", metavar="ID", default="", help="With --for: what holds there for this person.")
def check(settings_file: Path | None, as_json: bool, place: str, person: str) -> None:
    """Check the settings, the secrets they refer to, and what extensions read. Nothing is started or contacted.

    It also shows what the tool profile and the policy mean together.
    """
    from bot.config.load import check_start
    from bot.config.load import load as read
    from bot.config.tool_profiles import describe
    from bot.host.extension import extensions_of
    from bot.wiring.app import model_faults, model_warnings

    if person and not place:
        raise click.UsageError("--person needs --for")
    warnings: list[str] = []
    try:
        loaded = read(find_settings(settings_file), environ=os.environ)
        faults = check_start(loaded.settings, loaded.environ, transports=True)
        faults += model_faults(loaded.settings)
        for one in extensions_of(loaded.settings):
            faults += [f"{one.name}: {fault}" for fault in one.faults(loaded.settings)]
        warnings = model_warnings(loaded.settings)
    except ConfigInvalid as error:
        if not as_json:
            refuse(str(error))
        faults = [line for line in str(error).splitlines() if not line.startswith("Correct this in ")]
    if place and not faults:
        _print_place(loaded.settings, place, person, as_json=as_json)
        return
    if as_json:
        print_json({"ok": not faults, "faults": faults, "warnings": warnings})
        sys.exit(EX_CONFIG if faults else 0)
    for warning in warnings:
        click.echo(f"settings: {warning}", err=True)
    if faults:
        refuse("\n".join(faults))
    file = settings_file or Path("settings.json")
    where = f"{file} is valid." if file.exists() else f"There is no {file}: all settings have their defaults."
    serves = [name for name in ("slack", "discord") if getattr(loaded.settings.transports, name) is not None]
    if web := loaded.settings.transports.web:
        serves.append(f"the page at {web.public_url or f'{web.host}, port {web.port}'}")
    click.echo(where)
    profile = loaded.settings.tools.profile
    click.echo(
        f"Tools ({f'profile {profile}' if profile else 'no profile'}): {describe(loaded.settings.tools)}."
    )
    click.echo(f"`threadfast run` serves {' and '.join(serves)}." if serves else NO_PLATFORM)


def _print_place(settings: Settings, place: str, person: str, *, as_json: bool) -> None:
    from bot.reports.effective_settings import place_of, report, table

    where = place_of(place, person)
    if where is None:
        raise click.UsageError(
            f"--for {place}: write slack:TEAM or slack:TEAM:CHANNEL, or discord:GUILD or discord:GUILD:CHANNEL."
        )
    found = report(settings, where)
    if as_json:
        print_json(asdict(found))
    else:
        click.echo(table(found))


OF_EXTENSIONS = [
    click.Option([f"--{name}", "of"], flag_value=place, help=f"Of a {name} instead.")
    for extension in BUILT_IN.values()
    if extension.is_here
    for name, place in extension.schemas.items()
]
"""The flags of `threadfast schema` for what extensions read."""


@click.command(params=OF_EXTENSIONS)
@click.option(
    "--events",
    "of",
    flag_value="bot.observe.event_lines:event_schema",
    help="Of a line of `threadfast events` instead.",
)
def schema(of: str | None) -> None:
    """Print the JSON Schema of settings.json."""
    module, _, function = (of or "bot.config.load:json_schema").partition(":")
    print_json(getattr(import_module(module), function)())
