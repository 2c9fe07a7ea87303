"""Slack as an extension: workspaces that the settings name, each with one app."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import Extension, TransportHost, TransportKind
from transports.slack.settings import SETTINGS, SlackSettings, features

if TYPE_CHECKING:
    from bot.host.checks import Context, Findings
    from bot.host.setup import PlatformSetup
    from transports.slack.client import Options, Slack


def _options(settings: Settings, given: SlackSettings, environ: Mapping[str, str]) -> Options:
    from bot.config.load import resolve_secret
    from transports.slack.client import Options

    return Options(
        bot_token=resolve_secret(given.bot_token, environ),
        app_token=resolve_secret(given.app_token, environ),
        api_base_url=given.api_base_url,
        features=features(settings, given),
        prompts=tuple((prompt.title, prompt.message) for prompt in given.suggested_prompts),
        feedback=given.feedback,
        stream_in_channels=given.stream_in_channels,
        bots=frozenset(given.bots),
        links=frozenset(settings.links.allow),
        max_age_s=settings.recovery.max_age_s,
    )


def _open(host: TransportHost) -> Slack:
    import anyio.to_thread

    from bot.host.storage import recent_threads
    from threads.store.disk import PosixDisk
    from transports.shared.checks import utc_now
    from transports.slack.api.rate_limits import RateLimits
    from transports.slack.client import Slack

    settings, store = host.current.settings, host.storage.store
    transport = Slack(
        _options(settings, host.given, host.environ),
        settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(recent_threads, store, host.name),
        marks=store.marks(host.name),
        name=host.name,
    )
    transport.count_unread = host.count_unread
    if settings.store.kind != "files":
        transport.limits = RateLimits(shared=store, workers=lambda: store.workers, name=host.name)
        transport.others_seen = lambda: store.others_seen
    return transport


def _check(context: Context, name: str) -> Findings:
    from transports.slack.checks import check_slack

    given = served(context.settings)[name]
    assert isinstance(given, SlackSettings)
    options = _options(context.settings, given, context.environ)
    post_in = "" if context.post_in.isdecimal() else context.post_in  # that is a channel of Discord
    return check_slack(options, running=context.running, post_in=post_in)


def _setup() -> PlatformSetup:
    from transports.slack.setup import SETUP

    return SETUP


extension = Extension(
    "slack",
    "serves workspaces of Slack, over Socket Mode",
    transports={
        "slack": TransportKind(
            SETTINGS, _open, _check, needs="SLACK_BOT_TOKEN and SLACK_APP_TOKEN", setup=_setup
        )
    },
)
