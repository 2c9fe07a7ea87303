"""The commands before the first start: `init`, `check` and `schema`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.config.built_in_extensions import BUILT_IN
from bot.host.invocation import (
    data_option,
    find_settings,
    json_option,
    print_json,
    refuse,
    settings_option,
)
from bot.host.terminal_repair import repair_terminal
from bot.ports.config_error import EX_CONFIG, ConfigInvalid

if TYPE_CHECKING:
    from bot.admin.setup.options import InitOptions
    from bot.config.settings import Settings
    from bot.host.setup import PlatformSetup

NO_PLATFORM = "No chat platform is configured. `threadfast chat` works; `threadfast init slack` adds one."
_file = click.Path(path_type=Path)


class InitCommand(click.Command):
    """Takes the platforms that are installed here, and the options that each of them has."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        setups = _setups()
        platform = click.Argument(["platform"], type=click.Choice(list(setups)), required=False)
        options: dict[str, click.Parameter] = {}
        for setup in setups.values():
            for token in setup.tokens:
                about = f"{setup.title}: file that holds the {token.title}."
                options[token.name] = click.Option([token.option], default=None, type=_file, help=about)
            for name, about in setup.addresses.items():
                options[name] = click.Option([f"--{name.replace('_', '-')}"], default="", help=about)
        return [platform, *super().get_params(ctx), *options.values()]


def _setups() -> dict[str, PlatformSetup]:
    from bot.host.extension import transport_kinds

    return {name: kind.setup() for name, kind in transport_kinds().items() if kind.setup}


@click.command(cls=InitCommand)
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
@click.option(
    "--as", "transport", default="", help="Name of a further workspace or bot, by which the settings know it."
)
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
    from bot.admin.setup.dialog import SetupScreen
    from bot.admin.setup.wizard import set_up
    from bot.guards.hardening import harden_process

    harden_process()
    repair_terminal()
    options = _options(platform or "", settings_file, flags, as_json=as_json)
    interactive = not options.yes and on_terminal()
    screen = SetupScreen(interactive=interactive, quiet=as_json)
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

    setups = _setups()
    owners_of = {name: [*setups] for name in ("users", "admins", "transport")}
    for owner, setup in setups.items():
        for name in (*(f"{token.name}_file" for token in setup.tokens), *setup.addresses):
            owners_of.setdefault(name, []).append(owner)
    source = click.get_current_context().get_parameter_source
    for name, value in flags.items():
        if value == "" and source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_flag(name)} is empty")
        owners = owners_of.get(name)
        if value and owners and platform not in owners:
            raise click.UsageError(f"{_flag(name)} goes with: threadfast init {owners[0]}")
        if value and name in {"base_url", "key_file", "free", "price"} and not flags["model"]:
            raise click.UsageError(f"{_flag(name)} goes with --model: it is about that model's provider")
    if flags["free"] and flags["price"]:
        raise click.UsageError("--free and --price exclude each other")
    if flags["price"] and not price_of(str(flags["price"])):
        raise click.UsageError("--price: write two numbers, such as 0.50/1.50")
    paths = {token.name: flags.pop(f"{token.name}_file") for one in setups.values() for token in one.tokens}
    files = {name: path for name, path in paths.items() if isinstance(path, Path)}
    named = {name for one in setups.values() for name in one.addresses}
    addresses = {name: url for name in named if (url := str(flags.pop(name)))}
    transport = str(flags.pop("transport")) or platform
    verify = not flags.pop("no_verify")
    yes = bool(flags.pop("yes")) or as_json
    path = settings_file or Path("settings.json")
    where = InitOptions(path.absolute(), platform, transport, files=files, addresses=addresses)
    return replace(where, verify=verify, yes=yes, **flags)  # type: ignore[arg-type]


def _flag(name: str) -> str:
    return "--" + {"users": "user", "admins": "admin", "transport": "as"}.get(name, name).replace("_", "-")


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
    from bot.config.transports import served
    from bot.host.extension import extensions_of, transport_kinds
    from bot.host.model_settings import model_faults, model_warnings

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
    kinds = transport_kinds(loaded.settings)
    serves = [kinds[given.kind].about(name, given) for name, given in served(loaded.settings).items()]
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
