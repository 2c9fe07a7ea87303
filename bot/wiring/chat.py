"""`threadfast chat`: the console over the whole bot. It needs no account, no settings file and no key."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TextIO

import anyio

from bot.config.load import SettingsFile, check_start, secrets_of
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.llm.detect_model import choose
from bot.observe.live_parts import LiveParts
from bot.observe.logs import configure_logging
from bot.ports.config_error import ConfigInvalid
from bot.routing.commands import MEANINGS
from bot.wiring.app import serve, unwatched
from bot.wiring.model_chain import offered, used
from bot.wiring.reload import Reload
from bot.wiring.verify_models import verify_all
from transports.console import CONSOLE_USER, Console

LOG_BYTES = 5_000_000
"""Bytes of the log of interactive chats beyond which the next start sets it aside."""


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
    completions = ["/model default", *(f"/model {name}" for name in offered(settings, model))]
    console = Console(
        session=session,
        history_file=settings.data / "console-history",
        commands=MEANINGS,
        completions=completions,
        attached=settings.data / "attached",
    )
    say = partial(print, file=sys.stdout if console.interactive else sys.stderr, flush=True)
    say(f"Model: {model} ({reason}). Data: {settings.data}")
    with _log_stream(settings, interactive=console.interactive) as stream:
        # In a pipe the console shows waits and retries itself, so only warnings are logged.
        secrets = configure_console_logs(
            settings, environ, stream, "warning" if console.interactive else "error"
        )
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
            watch=_preparing if console.interactive else unwatched,
            reload=Reload(CurrentSettings(settings), file, environ, complete) if file else None,
        )
    return console.exit_code


@asynccontextmanager
async def _preparing(live: LiveParts) -> AsyncIterator[None]:
    """Prepare the first answer while a person types."""

    async def prepare() -> None:
        await live.prepare()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prepare)
        yield
        tasks.cancel_scope.cancel()


def configure_console_logs(
    settings: Settings, environ: Mapping[str, str], stream: TextIO, usual: str
) -> list[str]:
    """Send logs to *stream*, from the level *usual* on unless the settings have one. Returns the masked secrets."""
    given = settings.observe
    level = given.log_level if "log_level" in given.model_fields_set else usual
    form = given.log_format if "log_format" in given.model_fields_set else "text"
    secrets = secrets_of(settings, environ)
    configure_logging(level, form, stream, secrets=secrets)
    return secrets


def with_owner(settings: Settings) -> Settings:
    """Make the person at the console an admin. They own the machine, and nobody else could decide."""
    admins = (*settings.access.admins, CONSOLE_USER)
    access = settings.access.model_copy(update={"admins": admins})
    return settings.model_copy(update={"access": access})


async def with_model(settings: Settings, environ: Mapping[str, str]) -> tuple[Settings, str, str]:
    """Return the model to use, and why. A detected local server becomes a provider."""
    if "model" in settings.model_fields_set:
        return settings, settings.model, "as the settings say"
    choice = await choose(environ)
    if choice.provider is not None:
        providers = {**settings.providers, choice.model.partition("/")[0]: choice.provider}
        settings = settings.model_copy(update={"providers": providers})
    return settings, choice.model, choice.reason


def completed(started: Settings, model: str, settings: Settings) -> Settings:
    """Return changed settings with what `with_model` added to the *started* ones."""
    if "model" in settings.model_fields_set:
        return settings
    return settings.model_copy(
        update={"model": model, "providers": {**started.providers, **settings.providers}}
    )


@contextmanager
def _log_stream(settings: Settings, *, interactive: bool) -> Iterator[TextIO]:
    """Return standard error, or a file if that is a terminal, because log lines would garble the screen."""
    if not interactive:
        yield sys.stderr
        return
    path = settings.data / "threadfast.log"
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.rename(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    with path.open("a", encoding="utf-8") as stream:
        yield stream
