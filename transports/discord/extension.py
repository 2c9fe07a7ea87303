"""Discord as an extension: bots that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import Extension, TransportHost, TransportKind, thread_commands
from transports.discord.settings import SETTINGS, DiscordSettings

if TYPE_CHECKING:
    from bot.host.checks import Context, Findings
    from bot.host.setup import PlatformSetup
    from transports.discord.api.options import Options
    from transports.discord.client import Discord


def _options(settings: Settings, given: DiscordSettings, environ: Mapping[str, str]) -> Options:
    from bot.config.load import resolve_secret
    from transports.discord.api.options import Options

    return Options(
        token=resolve_secret(given.token, environ),
        api_base_url=given.api_base_url,
        gateway_url=given.gateway_url,
        streaming=given.streaming,
        reactions=given.reactions,
        typing=given.typing,
        feedback=given.feedback,
        in_place=frozenset(given.in_place),
        ask_shortcut=given.ask_shortcut,
        ask_reaction=given.ask_reaction or "",
        bots=frozenset(given.bots),
        max_age_s=settings.recovery.max_age_s,
    )


def _open(host: TransportHost) -> Discord:
    import anyio.to_thread

    from bot.host.storage import recent_threads
    from bot.routing.commands import with_extensions
    from threads.store.disk import PosixDisk
    from transports.discord.api.account import GLOBAL_BURST, GLOBAL_PER_S
    from transports.discord.client import Discord
    from transports.shared.checks import utc_now

    current, store = host.current, host.storage.store
    transport = Discord(
        replace(
            _options(current.settings, host.given, host.environ),
            roles=lambda: _roles_in(current.settings),
            commands=with_extensions(thread_commands(current.settings)),
            models=("default", *host.models),
        ),
        current.settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(recent_threads, store, host.name),
        marks=store.marks(host.name),
        hold=store.hold,
        name=host.name,
    )
    transport.count_unread = host.count_unread
    if current.settings.store.kind != "files":
        transport.take_global = partial(store.take_token, host.name, GLOBAL_PER_S, GLOBAL_BURST)
        transport.ensure_ownership = store.ensure_ownership
    return transport


def _roles_in(settings: Settings) -> frozenset[str]:
    """Return the roles that grant access to anything."""
    scoped = (role for scope in settings.scopes.values() for role in scope.access.roles)
    return frozenset((*settings.access.roles, *scoped))


def _check(context: Context, name: str) -> Findings:
    from transports.discord.checks import check_discord

    given = served(context.settings)[name]
    assert isinstance(given, DiscordSettings)
    options = _options(context.settings, given, context.environ)
    post_in = context.post_in if context.post_in.isdecimal() else ""  # another is a channel of Slack
    return check_discord(options, running=context.running, post_in=post_in)


def _setup() -> PlatformSetup:
    from transports.discord.setup import SETUP

    return SETUP


extension = Extension(
    "discord",
    "serves bots on Discord, over its gateway",
    transports={"discord": TransportKind(SETTINGS, _open, _check, needs="DISCORD_TOKEN", setup=_setup)},
)
