"""Checks the configured chat platforms with their own tokens."""

from __future__ import annotations

from contextlib import aclosing

from bot.admin.doctor.checks import AS_ROOT, Context, Findings
from bot.admin.platform_checks import platform_checks
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding


async def check_platforms(context: Context) -> Findings:
    """Report that no platform is configured; each configured one has its own checks."""
    named = context.settings.transports
    if named.slack is None and named.discord is None:
        where = "on its page" if named.web else "in the terminal"
        found = f"no platform is configured: the bot works {where} only"
        yield Finding("transports", "ok", found, fix="`threadfast init slack` or `init discord` sets one up.")


async def check_platform(name: str, context: Context) -> Findings:
    if context.offline:
        yield Finding(name, "ok", "not asked (--offline)")
        return
    try:
        checks = platform_checks(
            name, context.settings, context.environ, running=context.running, post_in=context.post_in
        )
    except ConfigInvalid:
        fix = AS_ROOT if context.has_all_links else f"`threadfast init {name}` asks for what is missing."
        found = "not checked: its secrets cannot be read (see above)"
        yield Finding(name, "warn", found, "It cannot be checked.", fix)
        return
    async with aclosing(checks) as findings:
        async for finding in findings:
            yield finding
