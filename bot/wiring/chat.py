"""`threadfast chat`: the console over the whole bot. It needs no account, no settings file and no key."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TextIO, cast

from bot.config.load import SettingsFile, check_start, secrets_of
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.host.extension import thread_commands
from bot.host.model_settings import offered, used
from bot.llm.detect_model import with_model
from bot.observe.live_parts import LiveParts
from bot.observe.logs import configure_logging
from bot.ports.config_error import ConfigInvalid
from bot.routing.commands import with_extensions
from bot.wiring.app import serve
from bot.wiring.chat_lookups import lookups
from bot.wiring.reload import Reload
from bot.wiring.verify_models import verify_all
from threads.background import background_tasks
from transports.base.transport import CONSOLE_USER
from transports.console import Console

LOG = "threadfast.log"
LOG_BYTES = 5_000_000
"""Bytes of the log of chats beyond which the next start sets it aside."""

TRY = "Try: write a.txt hello   and then: run wc a.txt"
TRY_WITHOUT_SHELL = "Try: write a.txt hello   and then: read a.txt"


async def run_chat(settings: Settings, environ: Mapping[str, str], file: SettingsFile | None = None) -> int:
    """Chat until the input ends, and return the exit code. Changes of *file* are taken up.

    Raises as `bot.wiring.app.serve`.
    """
    settings, model, reason = await with_model(settings, environ)
    named = settings.model_copy(update={"model": model})
    if faults := check_start(named, environ, transports=False):
        raise ConfigInvalid("\n".join(faults))
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    session = format(time.time_ns() // 1_000_000, "x")
    console = Console(
        session=session,
        history_file=settings.data / "console-history",
        commands=with_extensions(thread_commands(settings)),
        attached=settings.data / "attached",
        lookups=lookups(settings, environ, offered(settings, model)),
    )
    say = to_person if console.interactive else partial(print, file=sys.stderr, flush=True)
    say_model(model, reason, settings.data, say)

    @asynccontextmanager
    async def start_screen(live: LiveParts) -> AsyncIterator[None]:
        for trouble in live.troubles():
            say(f"Note: {trouble}")
        if console.interactive and "files" in settings.tools.enabled:
            say(TRY if live.facts.get("sandbox", "off") != "off" else TRY_WITHOUT_SHELL)
        async with background_tasks() as tasks:
            if console.interactive:  # while a person types
                tasks.start_soon(live.prepare)
            yield

    with console_logs(settings, environ, interactive=console.interactive) as secrets:
        if settings.verify_providers:
            say("Asking for a word, since verify_providers says so …")
            for fault in await verify_all(used(named), settings, environ):
                say(f"Does not answer: {Masker(secrets)(fault)}")
        settings = with_owner(settings)

        def complete(changed: Settings) -> Settings:
            return with_owner(completed(settings, model, changed))

        await serve(
            settings,
            environ,
            model=model,
            make_transports=lambda _: [console],
            watch=start_screen,
            reload=Reload(CurrentSettings(settings), file, environ, complete) if file else None,
        )
    return console.exit_code


def say_model(model: str, reason: str, data: Path, say: Callable[[str], None]) -> None:
    """Say what a start has to say first."""
    say(f"Model: {model} ({reason}).")
    say(f"Data: {data}")


def to_person(text: str) -> None:
    """Print a line, on a terminal broken between words."""
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        text = textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
    print(text, flush=True)  # noqa: T201


@contextmanager
def console_logs(
    settings: Settings, environ: Mapping[str, str], *, interactive: bool = False
) -> Iterator[list[str]]:
    """Send logs to a file in the data folder: a person reads sentences. Yields the masked secrets.

    Through a pipe, settings that name a log level send them to standard error.
    """
    given = settings.observe
    named = "log_level" in given.model_fields_set
    form = given.log_format if "log_format" in given.model_fields_set else "text"
    secrets = secrets_of(settings, environ)
    to_file = cast("TextIO", _LogFile(settings.data / LOG))
    with nullcontext(sys.stderr) if named and not interactive else to_file as stream:
        configure_logging(given.log_level if named else "warning", form, stream, secrets=secrets)
        try:
            yield secrets
        finally:  # what ends the process is told on the way out
            configure_logging("critical", form, sys.stderr, secrets=secrets)


def with_owner(settings: Settings) -> Settings:
    """Make the person at the console an admin. They own the machine, and nobody else could decide."""
    access = settings.access.model_copy(update={"admins": (*settings.access.admins, CONSOLE_USER)})
    return settings.model_copy(update={"access": access})


def completed(started: Settings, model: str, settings: Settings) -> Settings:
    """Return changed settings with what `with_model` added to the *started* ones."""
    if "model" in settings.model_fields_set:
        return settings
    return settings.model_copy(
        update={"model": model, "providers": {**started.providers, **settings.providers}}
    )


class _LogFile(io.TextIOBase):
    """The log of chats. Its first line opens it: a start that is refused writes nothing into the folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: str) -> int:
        return self._file.write(text)

    def close(self) -> None:
        super().close()
        if "_file" in vars(self):
            self._file.close()

    @cached_property
    def _file(self) -> TextIO:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size > LOG_BYTES:
                self._path.rename(self._path.with_suffix(".log.1"))
        self._path.touch(mode=0o600)
        return self._path.open("a", buffering=1, encoding="utf-8")
