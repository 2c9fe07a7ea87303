"""What outlives the process, and what all parts of a running bot use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bot.agent.prompt.memory import MemoryStore
from bot.budget.accounts import SpendingLedger
from bot.guards.redaction import Masker
from bot.observe.audit import Append, AuditRecord, ignore
from bot.observe.turn_events import Observing
from bot.store.restored_answers import Restored
from threads.model import ThreadId, WallClock
from threads.ports import Store
from threads.store.disk import Disk, Offload
from threads.store.json_file import States
from transports.base.notices import Notices

log = logging.getLogger(__name__)

Claim = Callable[[str, float], Awaitable[bool]]
"""Returns whether this process is to report something: no other one did so within so many seconds."""


async def always(_: str, __: float) -> bool:
    """Claim a report for the only process."""
    return True


@dataclass(frozen=True, slots=True)
class Resources:
    """What all parts of a bot use. ``offload`` runs short jobs that people wait for, ``work`` the jobs of tools.

    ``on_audit`` gets each record of the audit.
    """

    disk: Disk
    offload: Offload
    work: Offload
    now: WallClock
    mask: Masker
    observing: Observing
    on_audit: Callable[[AuditRecord], None] = ignore


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything that outlives the process. Call ``open`` first. It raises `NewerSchema` and OSError."""

    store: Store
    ledger: SpendingLedger
    states: States
    memory: MemoryStore
    append_audit: Append
    now: WallClock
    open: Callable[[], Awaitable[object]]
    restored: Callable[[], Awaitable[Restored | None]]
    notices: Notices | None = None
    """Texts to all workers of the store; None if this process is the only one."""
    worker: str = ""
    """The name of this process among the workers; blank if it is the only one."""
    trouble: Callable[[], str] = lambda: ""
    """Returns what is wrong with the store now, for people; blank if nothing is."""
    claim_report: Claim = always
    """Returns whether this process is to report something to the operators."""
    on_erase: list[Callable[[ThreadId], Awaitable[object]]] = field(default_factory=list)
    """Each drops what it keeps of a thread's settled messages, beside its conversation and history."""


async def recent_threads(store: Store, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
    """Return the recent threads of a transport.

    If they are unknown, the bot starts without: only older threads are not caught up.
    """
    try:
        return await store.recent(transport, within_s, most)
    except OSError as error:
        log.error(  # noqa: TRY400 - the disk says why
            "transport.recent_unknown: the recent threads of %s cannot be listed, going on without: %s",
            transport,
            error,
        )
        return []
