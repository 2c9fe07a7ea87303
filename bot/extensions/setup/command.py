"""The command `init`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from bot.host.invocation import folder_options, json_option, print_json, refuse
from bot.host.terminal_repair import repair_terminal
from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    from bot.extensions.setup.options import InitOptions
    from bot.host.setup import PlatformSetup

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
                if token.name in options:  # several platforms have a token of this name
                    about = f"{cast('click.Option', options[token.name]).help} {about}"
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
@folder_options
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
    from bot.extensions.setup.dialog import SetupScreen
    from bot.extensions.setup.wizard import set_up
    from bot.guards.hardening import harden_process

    harden_process()
    repair_terminal()
    options = _options(platform or "", settings_file, flags, as_json=as_json)
    screen = SetupScreen(interactive=not options.yes and on_terminal(), quiet=as_json)
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
        program = cast("click.Group", context.find_root().command)
        context.invoke(program.commands["run"], settings_file=options.settings, data=None)


def on_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _options(
    platform: str, settings_file: Path | None, flags: dict[str, object], *, as_json: bool
) -> InitOptions:
    """Gather the flags. Raises `click.UsageError` for one that is empty, or does not go with the others."""
    from bot.extensions.setup.models import price_of
    from bot.extensions.setup.options import InitOptions

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
    tokens = {token.name for one in setups.values() for token in one.tokens}
    paths = {name: flags.pop(f"{name}_file") for name in tokens}
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
