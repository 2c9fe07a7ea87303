"""Checks the configured chat platforms with their own tokens, and the page."""

from __future__ import annotations

import ssl
from contextlib import aclosing

from bot.admin.platform_checks import platform_checks
from bot.host.checks import AS_ROOT, Context, Findings
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import NoStatus
from threads.errors import TransportFatal
from transports.shared.checks import Finding


async def check_platforms(context: Context) -> Findings:
    """Report that no platform is configured; each configured one has its own checks."""
    named = context.settings.transports
    if named.slack is None and named.discord is None:
        where = "on its page" if named.web else "in the terminal"
        found = f"no platform is configured: the bot works {where} only"
        yield Finding("transports", "ok", found, fix="`threadfast init slack` or `init discord` sets one up.")


async def check_page(context: Context) -> Findings:
    """Check who may use the page, its certificate, and that its address can be had or answers."""
    from bot.wiring.web import address_of  # noqa: PLC0415 - the wiring of everything: 1 s
    from transports.web.server import listen  # noqa: PLC0415

    web, access = context.settings.transports.web, context.settings.access
    assert web
    if not (access.users or access.admins):
        fix = 'Name them, as in "access": {"users": ["ann"]}; then `threadfast web link --person ann`.'
        yield Finding("web", "warn", "access names nobody", "Nobody can use the page.", fix)
    address = address_of(web)
    try:
        if web.tls_certificate:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                web.tls_certificate, web.tls_key
            )
        if not context.running:
            listen(address).close()
    except (OSError, TransportFatal) as error:
        yield Finding("web", "fail", str(error), "The page cannot be served.", "Correct transports.web.")
        return
    status = context.running_bot
    states = {} if isinstance(status, NoStatus) else {one.name: one.state for one in status.transports}
    found = states.get("web", "unknown") if context.running else "can be served"
    yield Finding("web", "ok", f"{address.url}: {found}")


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
