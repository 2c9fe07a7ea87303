"""Checks the configured chat platforms, each with what its kind looks at."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from bot.config.transports import served
from bot.host.checks import AS_ROOT, Context, Findings
from bot.host.extension import transport_kinds
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding


async def check_platforms(context: Context) -> Findings:
    """Report that no platform is configured; each configured one has its own checks."""
    kinds, named = transport_kinds(context.settings), served(context.settings)
    if not any(kinds[given.kind].setup for given in named.values()):
        where = "on its page" if named else "in the terminal"
        found = f"no platform is configured: the bot works {where} only"
        yield Finding("transports", "ok", found, fix="`threadfast init slack` or `init discord` sets one up.")


async def check_platform(name: str, context: Context) -> Findings:
    """Check the transport that the settings call *name*. A test message goes to a channel of it, or of any."""
    kind = served(context.settings)[name].kind
    platform = transport_kinds(context.settings)[kind]
    if context.offline and platform.setup:
        yield Finding(name, "ok", "not asked (--offline)")
        return
    of, _, channel = context.post_in.rpartition(":")
    context = replace(context, post_in=channel if of in ("", name) else "")
    try:
        async with aclosing(platform.checks(context, name)) as findings:
            async for finding in findings:
                yield replace(finding, name=f"{name}{finding.name.removeprefix(kind)}")
    except ConfigInvalid:
        setup = f"threadfast init {kind}{'' if kind == name else f' --as {name}'}"
        fix = AS_ROOT if context.has_all_links else f"`{setup}` asks for what is missing."
        found = "not checked: its secrets cannot be read (see above)"
        yield Finding(name, "warn", found, "It cannot be checked.", fix)
