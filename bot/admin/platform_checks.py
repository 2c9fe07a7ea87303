"""Checks a chat platform with the tokens of the settings: for `threadfast init` and `threadfast doctor`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from bot.config.scopes import CurrentSettings
from bot.config.settings import Discord, Settings, Slack
from transports.shared.checks import Finding


def platform_checks(
    name: str, settings: Settings, environ: Mapping[str, str], *, running: bool, post_in: str = ""
) -> AsyncGenerator[Finding]:
    """Start the live checks of *name*, "slack" or "discord". Raises `ConfigInvalid` for an unreadable secret.

    *running* leaves out what would disturb a bot that is connected. *post_in* is a channel of either platform, for a
    test message.
    """
    from bot.wiring.run import discord_options, slack_options  # noqa: PLC0415 - 1 s, and only with a platform

    is_discord_channel = post_in.isdecimal()
    if name == "slack":
        from transports.slack.checks import check_slack  # noqa: PLC0415 - as above

        slack = slack_options(settings, settings.transports.slack or Slack(), environ)
        return check_slack(slack, running=running, post_in="" if is_discord_channel else post_in)
    from transports.discord.checks import check_discord  # noqa: PLC0415 - as above

    discord = settings.transports.discord or Discord()
    options = discord_options(CurrentSettings(settings), discord, environ, settings.model)
    return check_discord(options, running=running, post_in=post_in if is_discord_channel else "")
