"""`threadfast run`: the transports that the settings name, over the whole bot, until the process is ended."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from bot.app import serve, utc_now
from bot.chat import with_model
from bot.errors import ConfigInvalid
from bot.lineup import offered
from bot.observe.logs import configure_logging
from bot.settings import check_used, resolve_secret, secrets_of
from bot.settings_model import Discord, Settings, Slack
from threads.disk import PosixDisk
from threads.model import ThreadId
from threads.workspace import recent_threads
from transports.base import Transport
from transports.slack.manifest import Features, manifest, scopes

log = logging.getLogger(__name__)

NOTHING_NAMED = (
    'transports: none is named; add "slack": {} (with SLACK_BOT_TOKEN and SLACK_APP_TOKEN in the environment), '
    'or "discord": {} (with DISCORD_TOKEN), or talk to it here with: threadfast chat'
)


async def run_transports(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve until cancelled. Raises `ConfigInvalid` when only a person can mend what is wrong, as `serve` does."""
    settings, model, reason = await with_model(settings, environ)
    if faults := check_used(settings.model_copy(update={"model": model}), environ, transports=True):
        raise ConfigInvalid("\n".join(faults))
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = settings.observe
    configure_logging(given.log_level, given.log_format, sys.stderr, secrets=secrets_of(settings, environ))
    transports = list(_transports(settings, environ, model))
    if not transports:
        raise ConfigInvalid(NOTHING_NAMED)
    log.info("model: %s (%s)", model, reason)
    await serve(settings, environ, model=model, transports=transports)


def slack_manifest(settings: Settings) -> tuple[dict[str, object], list[str]]:
    """Return the manifest of a Slack app that has what these settings use, and why it needs each scope."""
    slack = settings.transports.slack or Slack()
    features = _slack_features(settings, slack)
    prompts = [prompt.model_dump() for prompt in slack.suggested_prompts]
    reasons = [f"{scope.name}: {scope.reason}" for scope in scopes(features)]
    return manifest(settings.name, features, prompts), reasons


def _slack_features(settings: Settings, slack: Slack) -> Features:
    return Features(slack.command or "", files="files" in settings.tools.enabled)


def _transports(settings: Settings, environ: Mapping[str, str], model: str) -> Iterator[Transport]:
    if settings.transports.slack:
        yield _slack(settings, settings.transports.slack, environ)
    if settings.transports.discord:
        yield _discord(settings, settings.transports.discord, environ, model)


def _slack(settings: Settings, slack: Slack, environ: Mapping[str, str]) -> Transport:
    from transports.slack.client import Options, Slack as SlackTransport  # noqa: PLC0415, I001 - loaded only when asked for

    options = Options(
        bot_token=resolve_secret(slack.bot_token, environ),
        app_token=resolve_secret(slack.app_token, environ),
        api_base_url=slack.api_base_url,
        features=_slack_features(settings, slack),
        prompts=tuple((prompt.title, prompt.message) for prompt in slack.suggested_prompts),
        feedback=slack.feedback,
        stream_in_channels=slack.stream_in_channels,
        bots=frozenset(slack.bots),
        links=frozenset(settings.links.allow),
        max_age_s=settings.recovery.max_age_s,
    )
    return SlackTransport(
        options,
        settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(_recent, settings.data, "slack"),
    )


def _discord(settings: Settings, discord: Discord, environ: Mapping[str, str], model: str) -> Transport:
    from transports.discord.client import Discord as DiscordTransport, Options  # noqa: PLC0415, I001 - loaded only when asked for

    options = Options(
        token=resolve_secret(discord.token, environ),
        api_base_url=discord.api_base_url,
        gateway_url=discord.gateway_url,
        streaming=discord.streaming,
        reactions=discord.reactions,
        typing=discord.typing,
        in_place=frozenset(discord.in_place),
        bots=frozenset(discord.bots),
        roles=frozenset(settings.access.roles),
        models=("default", *offered(settings, model)),
        max_age_s=settings.recovery.max_age_s,
    )
    return DiscordTransport(
        options,
        settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(_recent, settings.data, "discord"),
    )


async def _recent(data: Path, transport: str, within_s: float, most: int) -> list[ThreadId]:
    """Without them only what is said in older threads meanwhile is not looked for: no reason to end."""
    try:
        return await anyio.to_thread.run_sync(recent_threads, data, transport, within_s, most)
    except OSError as error:
        log.error("the recent threads of %s cannot be listed, going on without: %s", transport, error)  # noqa: TRY400
        return []
