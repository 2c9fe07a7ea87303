"""The command line. A command imports what it needs when it runs, so that the first prompt comes fast."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from bot.cli.check import check
from bot.cli.schema import schema
from bot.cli.serve import ask, chat, run
from bot.config.built_in_extensions import BUILT_IN
from bot.config.network import normalize_proxies
from bot.host.invocation import Program, find_settings

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from threads.store.json_file import States
    from transports.base.transport import Transport

EX_INTERRUPTED = 130
MOST_SETTINGS = 1_000_000
"""Bytes, as in `bot.config.load`."""

COLLECT_AFTER = (50_000, 10, 10)
"""The thresholds of the garbage collector.

A message keeps some sixty objects until it is settled. With a thousand at once a collection after 10,000 objects
frees none of them, and reading them again and again is a fifth of a message's work. Python's own thresholds also make
it a tenth of a start, which makes objects that all stay.
"""


ORDER = (
    "init", "chat", "ask", "run", "status", "events", "check", "doctor", "threads", "why", "usage", "dead-letters",
    "audit", "backup", "restore", "schema", "extensions",
)  # fmt: skip
"""Commands in the order in which they are needed, those of extensions among them. All others come after these."""


class InOrder(click.Group):
    """Lists its commands in order; Ctrl-C ends each without a word."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape
        theirs = (name for one in BUILT_IN.values() if one.commands and one.is_here for name in one.commands)
        names = {*self.commands, *theirs, *_commands_of_others()}
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        ours = _built_in_command(cmd_name) or super().get_command(ctx, cmd_name)
        return ours or _commands_of_others().get(cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(EX_INTERRUPTED)


def _built_in_command(name: str) -> click.Command | None:
    """Return a command that an extension of the program brings; it goes before the core's of the same name."""
    for one in BUILT_IN.values():
        if name in one.commands and one.is_here:
            module = import_module(f"{one.package}.command")
            return cast("click.Command", getattr(module, name.replace("-", "_")))
    return None


def _commands_of_others() -> dict[str, click.Command]:
    """Return the commands of the extensions that the settings of this place name."""
    given = os.environ.get("THREADFAST_SETTINGS", "")
    named = _named_extensions(find_settings(Path(given) if given else None))
    if not named:
        return {}  # without loading what reads settings: `--help` comes at once
    from bot.config.extensions import installed
    from bot.host.extension import Extension

    found = installed(named).extensions
    theirs = (one for name in named if isinstance(one := found.get(name), Extension))
    return {str(command.name): command for one in theirs for command in one.commands}


def _named_extensions(path: Path | None) -> tuple[str, ...]:
    """Return the names in a settings file. Of one that cannot be read, the command that needs it tells the faults."""
    try:
        with (path or Path(os.devnull)).open("rb") as file:
            document = json.loads(file.read(MOST_SETTINGS))
        return tuple(sorted(document["extensions"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ()


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="threadfast")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Threadfast: a self-hosted LLM agent that lives in chat threads and survives anything."""
    gc.set_threshold(*COLLECT_AFTER)
    # The interpreter's end collects twice, looking through all objects, and nobody needs the memory any more.
    atexit.register(gc.freeze)
    # Otherwise pydantic looks through every package for a plugin.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    normalize_proxies(os.environ)
    ctx.obj = Program(_states_beside, _serve)


def _states_beside(settings: Settings, environ: Mapping[str, str]) -> AbstractAsyncContextManager[States]:
    from bot.wiring.store import states_beside

    return states_beside(settings, environ)


async def _serve(settings: Settings, transport: Transport) -> None:
    from bot.wiring.app import serve
    from bot.wiring.chat import with_owner

    await serve(with_owner(settings), {}, model=settings.model, make_transports=lambda _: [transport])


for command in (chat, ask, run, check, schema):
    main.add_command(command)
