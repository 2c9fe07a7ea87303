"""The chat platforms that the settings name, asked with their own tokens."""

from __future__ import annotations

from contextlib import aclosing

from bot.doctor.look import Findings, Look
from bot.errors import ConfigInvalid
from transports.checks import Finding

UNREAD = "not asked: its secrets cannot be read, as told above"
LATER = "Nothing about it can be looked at."


async def look_at_slack(look: Look) -> Findings:
    from bot.run import slack_options  # noqa: PLC0415 - 1 s, for who has it

    given = look.settings.transports.slack
    if given is None:
        return
    if look.offline:
        yield Finding("slack", "ok", "not asked (--offline)")
        return
    try:
        options = slack_options(look.settings, given, look.environ)
    except ConfigInvalid:
        yield Finding("slack", "warn", UNREAD, LATER, "`threadfast init slack` asks for its tokens.")
        return
    from transports.slack.checks import check_slack  # noqa: PLC0415 - as above

    place = "" if look.post_in.isdecimal() else look.post_in
    async with aclosing(check_slack(options, running=look.running, post_in=place)) as findings:
        async for finding in findings:
            yield finding


async def look_at_discord(look: Look) -> Findings:
    from bot.run import discord_options  # noqa: PLC0415 - as above

    given = look.settings.transports.discord
    if given is None:
        return
    if look.offline:
        yield Finding("discord", "ok", "not asked (--offline)")
        return
    try:
        options = discord_options(look.settings, given, look.environ, look.settings.model)
    except ConfigInvalid:
        yield Finding("discord", "warn", UNREAD, LATER, "`threadfast init discord` asks for its token.")
        return
    from transports.discord.checks import check_discord  # noqa: PLC0415 - as above

    place = look.post_in if look.post_in.isdecimal() else ""
    async with aclosing(check_discord(options, running=look.running, post_in=place)) as findings:
        async for finding in findings:
            yield finding


async def look_at_transports(look: Look) -> Findings:
    named = look.settings.transports
    if named.slack is None and named.discord is None:
        yield Finding(
            "transports",
            "ok",
            "no platform is named: this bot talks in the terminal only",
            fix="`threadfast init slack` or `init discord` sets one up.",
        )
