"""Checks the configured chat platforms with their own tokens."""

from __future__ import annotations

from contextlib import aclosing

from bot.admin.doctor.checks import AS_ROOT, Context, Findings
from bot.config.settings import Discord, Slack
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding


async def check_platforms(context: Context) -> Findings:
    """Report that no platform is configured; each configured one has its own checks."""
    named = context.settings.transports
    if named.slack is None and named.discord is None:
        found = "no platform is configured: the bot works in the terminal only"
        yield Finding("transports", "ok", found, fix="`threadfast init slack` or `init discord` sets one up.")


async def check_platform(section: Slack | Discord, context: Context) -> Findings:
    name = type(section).__name__.lower()
    if context.offline:
        yield Finding(name, "ok", "not asked (--offline)")
        return
    try:
        checks = _checks(section, context)
    except ConfigInvalid:
        fix = AS_ROOT if context.has_all_links else f"`threadfast init {name}` asks for what is missing."
        found = "not checked: its secrets cannot be read (see above)"
        yield Finding(name, "warn", found, "It cannot be checked.", fix)
        return
    async with aclosing(checks) as findings:
        async for finding in findings:
            yield finding


def _checks(section: Slack | Discord, context: Context) -> Findings:
    """Start the platform's own checks. Raises `ConfigInvalid` for a secret that cannot be read."""
    from bot.wiring.run import discord_options, slack_options  # noqa: PLC0415 - 1 s, and only with a platform

    settings, environ, running, place = context.settings, context.environ, context.running, context.post_in
    on_discord = place.isdecimal()
    if isinstance(section, Slack):
        from transports.slack.checks import check_slack  # noqa: PLC0415 - as above

        slack = slack_options(settings, section, environ)
        return check_slack(slack, running=running, post_in="" if on_discord else place)
    from transports.discord.checks import check_discord  # noqa: PLC0415 - as above

    discord = discord_options(settings, section, environ, settings.model)
    return check_discord(discord, running=running, post_in=place if on_discord else "")
