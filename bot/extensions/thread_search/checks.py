"""Checks for `threadfast doctor` whether there is anything to search. What Slack's own search needs is a scope."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from bot.host.checks import Context, Findings
from bot.host.store_reader import open_reader
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding


async def check_search(context: Context) -> Findings:
    def count() -> int:
        with closing(open_reader(context.settings, context.environ)) as reader:
            return len(reader.threads())

    try:
        threads = await context.offload(partial(count))
    except (ConfigInvalid, OSError) as error:
        meaning, fix = "`search_threads` finds nothing.", "See what `doctor` says of the store."
        yield Finding("thread search", "fail", f"threads cannot be read: {error}", meaning, fix)
    else:
        yield Finding("thread search", "ok", f"reads {threads:,} thread{'' if threads == 1 else 's'}")
