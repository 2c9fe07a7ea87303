"""The chat platforms that the settings name, asked with their own tokens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

from bot.admin.doctor.checks import AS_ROOT, Context, Findings
from bot.config.settings import Discord, Section, Slack
from bot.ports.errors import ConfigInvalid
from transports.shared.checks import Finding

UNREAD = "not checked: its secrets cannot be read (see above)"
LATER = "It cannot be checked."


def check_slack(look: Context) -> Findings:
    given = look.settings.transports.slack or Slack()

    def check() -> Findings:
        from bot.wiring.run import slack_options  # noqa: PLC0415 - 1 s, for who has it
        from transports.slack.checks import check_slack  # noqa: PLC0415 - as above

        options = slack_options(look.settings, given, look.environ)
        place = "" if look.post_in.isdecimal() else look.post_in
        return check_slack(options, running=look.running, post_in=place)

    return _asked("slack", look, look.settings.transports.slack, check)


def check_discord(look: Context) -> Findings:
    given = look.settings.transports.discord or Discord()

    def check() -> Findings:
        from bot.wiring.run import discord_options  # noqa: PLC0415 - as above
        from transports.discord.checks import check_discord  # noqa: PLC0415 - as above

        options = discord_options(look.settings, given, look.environ, look.settings.model)
        place = look.post_in if look.post_in.isdecimal() else ""
        return check_discord(options, running=look.running, post_in=place)

    return _asked("discord", look, look.settings.transports.discord, check)


async def _asked(name: str, look: Context, given: Section | None, check: Callable[[], Findings]) -> Findings:
    if given is None:
        return
    if look.offline:
        yield Finding(name, "ok", "not asked (--offline)")
        return
    try:
        looks = check()
    except ConfigInvalid:
        fix = AS_ROOT if look.has_all_links else f"`threadfast init {name}` asks for what is missing."
        yield Finding(name, "warn", UNREAD, LATER, fix)
        return
    async with aclosing(looks) as findings:
        async for finding in findings:
            yield finding


async def check_transports(look: Context) -> Findings:
    named = look.settings.transports
    if named.slack is None and named.discord is None:
        yield Finding(
            "transports",
            "ok",
            "no platform is configured: the bot works in the terminal only",
            fix="`threadfast init slack` or `init discord` sets one up.",
        )
