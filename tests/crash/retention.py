"""A bot of the crash runs that forgets: what people ask it to, and what is old, by a clock that is nearly a day ahead."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from unittest.mock import patch

from bot.config.extensions import settings_model
from bot.extensions.retention import due, sweep
from bot.guards.redaction import Masker
from bot.host.storage import Resources
from bot.observe.turn_events import Observing
from bot.wiring.app import extension_commands, utc_now
from bot.wiring.store import make_storage
from bot.wiring.tool_set import open_tool_set
from threads.actor.registry import Registry
from threads.journal.records import Ledger
from threads.model import Outgoing, Sink, ThreadId
from threads.store.disk import Disk
from threads.store.disk_threads import DiskThreads

DAY = timedelta(days=1)
PARTS = ("conversation", "attachments", "workspace", "dead_letters", "audit")
"""All but the history: a thread of which nothing is left is not known any more, and what is missed there stays so."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """What the extensions bring: some of the ``parts`` of the core, and what is around its sink."""

    parts: dict[str, object]
    receiving: Callable[[Sink], Sink]


@asynccontextmanager
async def forgetting(
    args: Namespace, disk: Disk, offload: DiskThreads, journal_offload: DiskThreads
) -> AsyncIterator[Extensions]:
    """Open the extensions over the store of the product: they forget what was quiet for ``args.forgets`` seconds."""
    given = {
        "data": str(args.data),
        "tools": {"enabled": []},
        "retention": {f"{what}_days": 1 for what in PARTS},
    }
    settings = settings_model().model_validate(given, strict=False)
    sweep.LOOK_EVERY_S, sweep.PAUSE_S, sweep.QUIET_S = 0.3, 0.0, 0.0

    def late() -> datetime:
        return utc_now() + DAY - timedelta(seconds=args.forgets)

    resources = Resources(disk, offload, offload, utc_now, Masker(), Observing())
    storage = make_storage(settings, {}, resources, journal_offload)
    await storage.open()
    later = replace(resources, now=late)
    options = {"transports": [], "is_admin": lambda _: False, "post": nowhere}
    async with open_tool_set(settings, {}, later, storage, **options) as tool_set:
        parts = {
            "store": storage.store,
            "attach": tool_set.attach,
            "extensions": extension_commands(settings, tool_set),
            "is_forgotten": tool_set.is_forgotten,
        }
        yield Extensions(parts, tool_set.receiving)


async def nowhere(_: Outgoing) -> None:
    """Post nothing."""


async def at_once(_: Registry, __: ThreadId, work: Callable[[], Awaitable[None]]) -> bool:
    """Take what is old of a thread, whatever is owed there."""
    await work()
    return True


def forget_all(ledger: Ledger, thread: ThreadId) -> None:
    """Forget the ids of messages with what they say."""
    forget_texts(ledger, thread)
    for key in [key for key, end in ledger.settled.items() if end.thread_id == str(thread)]:
        del ledger.settled[key]


forget_texts = Ledger.forget_texts
greedy = patch.object(Registry, "between_turns", at_once), patch.object(due, "open_in", lambda *_: ())
FORGETTING_WRONGLY = {"greedy": greedy, "amnesiac": [patch.object(Ledger, "forget_texts", forget_all)]}
"""Faults, each as the patches that put it in."""
