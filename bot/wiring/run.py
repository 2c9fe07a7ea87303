"""`threadfast run`: serves the transports in the settings until the process ends."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from bot.config.load import SettingsFile, check_start, resolve_secret, secrets_of
from bot.config.scopes import CurrentSettings, enabled_anywhere, roles_in
from bot.config.settings import Discord, Settings, Slack
from bot.host.extension import extensions_of
from bot.host.storage import Storage
from bot.observe.event_stream import EventStream
from bot.observe.logs import configure_logging, log_format_for
from bot.observe.shutdown import Stop
from bot.observe.supervision import supervised
from bot.observe.systemd_notify import Notify
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import Status
from bot.wiring.app import serve, utc_now
from bot.wiring.chat import completed, with_model
from bot.wiring.model_chain import offered, used
from bot.wiring.reload import Reload
from bot.wiring.verify_models import verify_all
from threads.model import ThreadId
from threads.ports import Store
from threads.store.disk import PosixDisk
from transports.base.transport import Transport
from transports.slack.manifest import Features, manifest, scopes

if TYPE_CHECKING:
    from bot.observe.metrics import Metrics
    from transports.discord.client import Options as DiscordOptions
    from transports.slack.client import Options as SlackOptions

log = logging.getLogger(__name__)

NOTHING_NAMED = (
    'transports: none is named; add "slack": {} (with SLACK_BOT_TOKEN and SLACK_APP_TOKEN in the environment), '
    'or "discord": {} (with DISCORD_TOKEN), or "web": {} for a page in the browser, or talk to it here with: '
    "threadfast chat"
)


async def run_transports(
    settings: Settings,
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    on_open: Callable[[str], None] | None = None,
    complete: Callable[[Settings], Settings] | None = None,
) -> None:
    """Serve until cancelled or stopped by a signal; see `bot.observe.shutdown`. Changes of *file* are taken up.

    *on_open* is called with a link to the page for whoever started the program. *complete* adds to the settings of a
    changed file what was added to *settings*, by default a model that was found.
    Raises `ConfigInvalid` if a person has to fix something, and as `serve`.
    """
    stop, notify = Stop(settings.recovery.drain_s), Notify.from_environ(os.environ)
    await stop.run(partial(serve_until_stopped, settings, environ, stop, notify, file, on_open, complete))


async def serve_until_stopped(
    settings: Settings,
    environ: Mapping[str, str],
    stop: Stop,
    notify: Notify,
    file: SettingsFile | None = None,
    on_open: Callable[[str], None] | None = None,
    complete: Callable[[Settings], Settings] | None = None,
) -> None:
    faulthandler.enable()  # systemd's watchdog ends a stuck process with SIGABRT; the log then has its stack
    settings, model, reason = await with_model(settings, environ)
    named = settings.model_copy(update={"model": model})
    if faults := check_start(named, environ, transports=True):
        raise ConfigInvalid("\n".join(faults))
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = settings.observe
    form = log_format_for(sys.stderr, given.log_format if "log_format" in given.model_fields_set else None)
    configure_logging(given.log_level, form, sys.stderr, secrets=secrets_of(settings, environ))
    if not any((settings.transports.slack, settings.transports.discord, settings.transports.web)):
        raise ConfigInvalid(NOTHING_NAMED)
    log.info("model.chosen: %s (%s)", model, reason)
    if settings.verify_providers:
        await verify_all(used(named), settings, environ)
    metrics = _metrics() if given.metrics_port else None
    told = metrics.render if metrics else None
    status = StatusSource()
    watch = partial(supervised, observe=given, stop=stop, notify=notify, metrics=told, publish=status.publish)
    async with AsyncExitStack() as observers:
        events = EventStream()
        observing = Observing(events, *([metrics] if metrics else []))
        for extension in extensions_of(settings):
            if extension.observers and (
                sink := await observers.enter_async_context(extension.observers(settings))
            ):
                observing.add(sink)
        current = CurrentSettings(settings)
        complete = complete or partial(completed, settings, model)
        await serve(
            settings,
            environ,
            model=model,
            make_transports=partial(
                _transports,
                current,
                environ,
                model,
                PageSources(status, events, on_open),
                metrics.unread if metrics else _not_counted,
            ),
            watch=partial(watch, events=events),
            observing=observing,
            on_audit=events.audited,
            reload=Reload(current, file, environ, complete, notify) if file else None,
        )


def _metrics() -> Metrics:
    from bot.observe.metrics import Metrics  # noqa: PLC0415 - loaded only when asked for

    return Metrics()


def _not_counted(_transport: str, _kind: str) -> None:
    """Drop it: nobody asked for metrics."""


def slack_manifest(settings: Settings) -> tuple[dict[str, object], list[str]]:
    """Return the manifest of a Slack app for these settings, and the reason for each scope."""
    slack = settings.transports.slack or Slack()
    features = _slack_features(settings, slack)
    prompts = [prompt.model_dump() for prompt in slack.suggested_prompts]
    reasons = [f"{scope.name}: {scope.reason}" for scope in scopes(features)]
    return manifest(settings.name, features, prompts), reasons


def _slack_features(settings: Settings, slack: Slack) -> Features:
    return Features(slack.command or "", files="files" in enabled_anywhere(settings))


def _transports(
    current: CurrentSettings,
    environ: Mapping[str, str],
    model: str,
    page: PageSources,
    count_unread: Callable[[str, str], None],
    storage: Storage,
) -> Sequence[Transport]:
    settings = current.settings
    named = settings.transports
    slack, discord = (partial(count_unread, name) for name in ("slack", "discord"))
    return [
        *([_slack(settings, named.slack, environ, storage.store, slack)] if named.slack else []),
        *(
            [_discord(current, named.discord, environ, model, storage.store, discord)]
            if named.discord
            else []
        ),
        *([_web(current, environ, storage, page)] if named.web else []),
    ]


class StatusSource:
    """Returns the status of the running bot, for its own page: None until the bot is observed."""

    def __init__(self) -> None:
        self._read: Callable[[], Status | None] = lambda: None

    def publish(self, read: Callable[[], Status]) -> None:
        self._read = read

    def __call__(self) -> Status | None:
        return self._read()


@dataclass(frozen=True, slots=True)
class PageSources:
    """What the page shows of this process, and who is told its link once it can be reached, if anybody is."""

    status: Callable[[], Status | None]
    events: EventStream
    on_open: Callable[[str], None] | None = None


def _web(
    current: CurrentSettings, environ: Mapping[str, str], storage: Storage, page: PageSources
) -> Transport:
    from bot.wiring.web import make_web  # noqa: PLC0415 - loaded only when asked for

    return make_web(current, environ, storage, page)


def slack_options(settings: Settings, slack: Slack, environ: Mapping[str, str]) -> SlackOptions:
    """Return Slack's options. Raises `ConfigInvalid` for a secret that cannot be read."""
    from transports.slack.client import Options  # noqa: PLC0415 - loaded only when asked for

    return Options(
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


def _slack(
    settings: Settings,
    slack: Slack,
    environ: Mapping[str, str],
    store: Store,
    count_unread: Callable[[str], None],
) -> Transport:
    from transports.slack.api.rate_limits import Limits  # noqa: PLC0415 - loaded only when asked for
    from transports.slack.client import Slack as SlackTransport  # noqa: PLC0415

    transport = SlackTransport(
        slack_options(settings, slack, environ),
        settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(recent_threads, store, "slack"),
        marks=store.marks("slack"),
    )
    transport.count_unread = count_unread
    if settings.store.kind != "files":
        transport.limits = Limits(shared=store, workers=lambda: store.workers)
    return transport


def discord_options(
    current: CurrentSettings, discord: Discord, environ: Mapping[str, str], model: str
) -> DiscordOptions:
    """Return Discord's options. Raises `ConfigInvalid` for a secret that cannot be read."""
    from transports.discord.client import Options  # noqa: PLC0415 - loaded only when asked for

    settings = current.settings
    return Options(
        token=resolve_secret(discord.token, environ),
        api_base_url=discord.api_base_url,
        gateway_url=discord.gateway_url,
        streaming=discord.streaming,
        reactions=discord.reactions,
        typing=discord.typing,
        feedback=discord.feedback,
        in_place=frozenset(discord.in_place),
        bots=frozenset(discord.bots),
        roles=lambda: roles_in(current.settings),
        models=("default", *offered(settings, model)),
        max_age_s=settings.recovery.max_age_s,
    )


def _discord(
    current: CurrentSettings,
    discord: Discord,
    environ: Mapping[str, str],
    model: str,
    store: Store,
    count_unread: Callable[[str], None],
) -> Transport:
    from transports.discord.api.account import GLOBAL_BURST, GLOBAL_PER_S  # noqa: PLC0415 - loaded only when asked for
    from transports.discord.client import Discord as DiscordTransport  # noqa: PLC0415

    transport = DiscordTransport(
        discord_options(current, discord, environ, model),
        current.settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(recent_threads, store, "discord"),
        marks=store.marks("discord"),
        hold=store.hold,
    )
    transport.count_unread = count_unread
    if current.settings.store.kind != "files":
        transport.take_global = partial(store.take_token, "discord", GLOBAL_PER_S, GLOBAL_BURST)
        transport.ensure_ownership = store.ensure_ownership
    return transport


async def recent_threads(store: Store, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
    """Return the recent threads.

    If they are unknown, the bot starts without: only older threads are not caught up.
    """
    try:
        return await store.recent(transport, within_s, most)
    except OSError as error:
        log.error(  # noqa: TRY400 - the disk says why
            "transport.recent_unknown: the recent threads of %s cannot be listed, going on without: %s",
            transport,
            error,
        )
        return []
