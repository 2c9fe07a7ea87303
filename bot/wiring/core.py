"""The core: journal, delivery, actors and routing, put together. It knows neither settings nor platforms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from bot.config.settings import Recovery
from bot.observe.turn_events import Observing
from bot.ports.errors import report
from bot.ports.wording import choices
from bot.routing.admission import Admission, Allowed
from bot.routing.commands import Controls, MemoryCommands, ModelCommands, Permissions, ScheduleCommands
from bot.routing.orchestrator import Orchestrator
from bot.routing.rate_limit import RateLimiter
from bot.store.restored_answers import Restored
from bot.wiring.instrumentation import observe_outcome, observe_run
from threads.absent_transport import AbsentOutlet
from threads.actor.recovery import plan
from threads.actor.registry import Registry
from threads.actor.slots import Slots
from threads.actor.turn import ActorParts
from threads.delivery import Delivery, Outlet
from threads.errors import StoreUnavailable
from threads.journal.journal import Journal
from threads.journal.records import PendingMessage, Settled
from threads.log import Log
from threads.model import Feedback, Limits, Run, ThreadId
from threads.store.attachments import AttachmentStore
from threads.store.checkpoints import Checkpoints
from threads.store.context import ContextFile
from threads.store.data_folder import conversation_exists, thread_folder
from threads.store.disk import Disk, Offload
from threads.store.thread_files import Reader, ThreadFiles
from transports.base.transport import Transport
from transports.shared.delivery.outbox import Outbox

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a core is made of. ``outboxes`` are those of the served transports, by name.

    ``journal_offload`` is a thread for the journal alone: no other work on the disk delays a promise.

    ``memory`` and ``schedules`` are None when they are off, ``reader`` when files are only kept. ``restored`` is the
    backup that the data folder came from. ``explain`` returns what the thread reads about a failure; ``escalate``
    tells the operators about it.
    """

    data: Path
    disk: Disk
    offload: Offload
    journal_offload: Offload
    now: Callable[[], datetime]
    mask: Callable[[str], str]
    observing: Observing
    outboxes: Mapping[str, Outbox]
    run: Run
    limits: Limits
    rates: RateLimiter
    recovery: Recovery
    restored: Restored | None
    allowed: Allowed
    is_admin: Callable[[str], bool]
    models: ModelCommands
    memory: MemoryCommands | None
    schedules: ScheduleCommands | None
    permissions: Permissions
    reader: Reader | None
    troubles: Callable[[], Sequence[str]]
    explain: Callable[[Exception, PendingMessage, str], str]
    escalate: Callable[[Exception, ThreadId, str], None]
    on_feedback: Callable[[Feedback], Awaitable[None]]
    on_stop: Callable[[PendingMessage, int, int], None]


@dataclass(frozen=True, slots=True)
class Core:
    """A running bot without its transports' links."""

    orchestrator: Orchestrator
    registry: Registry
    journal: Journal
    slots: Slots


async def open_core(tasks: TaskGroup, parts: Parts) -> Core:
    """Read what is pending, start what serves it in *tasks*, and return the bot, ready to receive.

    Raises OSError when the data folder cannot be used, `threads.errors.NewerSchema` when a newer version wrote it.
    """
    data, disk, offload, now = parts.data, parts.disk, parts.offload, parts.now
    threads = data / "threads"
    for path in (*reversed(data.parents), data, threads, *(threads / name for name in parts.outboxes)):
        await offload(disk.mkdir, path)
    journal = Journal(disk, data / "journal.jsonl", offload=parts.journal_offload, now=now)
    if damaged := await offload(journal.open):
        log.warning("journal.damaged: %d damaged lines put aside in journal.jsonl.broken", damaged)
    if parts.restored:  # a process that went on after the backup may have posted more than the journal knows
        journal.ledger.doubt(parts.restored.restored_at.isoformat(timespec="milliseconds"))
    folder = partial(thread_folder, data)
    history, checkpoints = Log(disk, offload=offload), Checkpoints(disk, offload)
    outlet = partial(_outlet, parts.outboxes)
    delivery = Delivery(journal, history, outlet=outlet, folder=folder, mask=parts.mask, choices=choices)
    attachments = AttachmentStore(disk, offload, parts.limits.attachment_bytes)
    actors = ActorParts(
        journal=journal,
        delivery=delivery,
        slots=Slots(parts.limits.running_turns, parts.limits.running_turns_per_user),
        limits=parts.limits,
        run=observe_run(parts.run, parts.observing),
        context=lambda thread: ContextFile(disk, folder(thread), offload, checkpoints.replace),
        files=ThreadFiles(attachments, parts.outboxes.__getitem__, folder, parts.reader),
        on_error=partial(_report_failure, parts),
        explain=parts.explain,
        now=now,
    )
    registry = Registry(tasks, actors)

    async def joined(thread: ThreadId) -> bool:
        try:
            return registry.serves(thread) or await offload(conversation_exists, disk, folder(thread))
        except OSError as error:
            raise StoreUnavailable(f"context: {error}") from error

    controls = Controls(
        registry,
        actors.questions,
        parts.models,
        parts.memory,
        parts.schedules,
        parts.permissions,
        parts.troubles,
        parts.on_stop,
        parts.is_admin,
    )
    orchestrator = Orchestrator(
        tasks,
        journal=journal,
        registry=registry,
        delivery=delivery,
        admission=Admission(parts.allowed, joined, now),
        rates=parts.rates,
        controls=controls,
        on_feedback=parts.on_feedback,
    )

    def settled(pending: PendingMessage, end: Settled) -> None:
        delivery.write_log(pending, end)
        observe_outcome(parts.observing, pending, end)

    last = anyio.CancelScope(shield=True)

    async def write_journal() -> None:
        try:
            await journal.run(orchestrator.route, settled)
        finally:
            last.cancel()

    async def write_logs() -> None:
        with last:  # they end after the journal, because they tell of its last records
            await history.run()

    tasks.start_soon(checkpoints.run)
    tasks.start_soon(write_journal)
    tasks.start_soon(write_logs)
    orchestrator.recover(
        plan(
            journal.ledger,
            now(),
            max_age_s=parts.recovery.max_age_s,
            resume=parts.recovery.resume,
            turn_s=parts.limits.turn_timeout_s,
            asked=lambda pending: parts.permissions.asks(pending.incoming.thread, pending.incoming.id),
            served=parts.outboxes.__contains__,
        )
    )
    delivery.repair()
    return Core(orchestrator, registry, journal, actors.slots)


def _outlet(outboxes: Mapping[str, Outbox], transport: str) -> Outlet:
    """Return the way to the people of a transport; one that is not served now has nobody to hear."""
    return outboxes.get(transport) or AbsentOutlet()


def _report_failure(parts: Parts, error: Exception, pending: PendingMessage, reference: str) -> None:
    received = pending.received
    ids = {"thread_id": received.thread_id, "message_id": received.message_id}
    described = report(error, reference, parts.now(), **ids)
    log.error(
        "turn.failed: %s",
        described.message,
        exc_info=error,
        extra={**ids, "correlation_id": reference, "report": described.model_dump()},
    )
    parts.escalate(error, pending.incoming.thread, reference)


def link_troubles(transports: Sequence[Transport]) -> list[str]:
    """Return one clause for each transport that is not connected or reports a trouble."""
    down = [f"{edge.name} is {edge.state}" for edge in transports if edge.state != "connected"]
    return [*down, *(f"{edge.name}: {edge.trouble}" for edge in transports if edge.trouble)]
