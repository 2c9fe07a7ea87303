"""Checks the sources of events for `threadfast doctor`: their secret, their channel, their access and the port."""

from __future__ import annotations

import anyio

from bot.config.load import resolve_secret
from bot.config.scopes import Place, resolve
from bot.config.transports import served
from bot.extensions.events.settings import EVENTS, EventSettings, Source
from bot.extensions.events.starter import author_of
from bot.host.checks import Context, Findings
from bot.ports.config_error import ConfigInvalid
from bot.routing.access import may_use
from threads.model import ThreadId
from transports.shared.checks import Finding


async def check_events(context: Context) -> Findings:
    """Check each source, and whether the running bot listens."""
    given = EVENTS.of(context.settings) or EventSettings()
    for name, source in given.sources.items():
        about, fault = f"events.{name}", await _fault(context, name, source)
        if fault:
            yield Finding(about, "fail", fault[0], "None of its events is answered.", fault[1])
        else:
            how = f"signed as {source.form}" if source.secret else "by `threadfast post` only"
            yield Finding(about, "ok", f"to {source.channel}, {how}, as {author_of(name).id}")
    if given.sources and not context.settings.access.admins:
        meaning = "What their turns ask, such as to write a file, nobody may answer."
        yield Finding("events.admins", "warn", "there are no admins", meaning, "Set `access.admins`.")
    if given.port is not None and context.running:
        try:
            async with await anyio.connect_tcp(given.host, given.port):
                yield Finding("events.port", "ok", f"the bot listens on port {given.port}")
        except OSError:
            found, fix = f"nobody listens on port {given.port}", "Give another port, and restart the bot."
            yield Finding("events.port", "fail", found, "No event comes.", fix)


async def _fault(context: Context, name: str, source: Source) -> tuple[str, str] | None:
    """Return what is wrong with a source, and how to fix it."""
    thread, author = ThreadId.parse(f"{source.channel}:"), author_of(name)
    access = resolve(context.settings, Place.in_thread(thread, author.id)).settings.access
    if thread.transport not in served(context.settings):
        return f"{thread.transport} is not served", "Name it in `transports`, or give another channel."
    if not may_use(access, author, thread):
        return f"{author.id} may not use the bot there", "Add it to `access.users`, or to a scope."
    try:
        if source.secret and not context.has_all_links:  # the running bot has it
            await context.offload(resolve_secret, source.secret, context.environ)
    except ConfigInvalid as error:
        return str(error), "Set the secret: without it the bot does not start."
    return None
