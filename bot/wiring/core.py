"""The core: journal, delivery, actors and routing, connected. It knows neither settings nor platforms."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from anyio.abc import TaskGroup

from bot.config.settings import Recovery
from bot.host.extension import Unfinished
from bot.observe.turn_events import Observing
from bot.ports.status import UP
from bot.routing.admission import Admission, Allowed
from bot.routing.commands import (
    AskedQuestions,
    Controls,
    ExtensionCommands,
    MemoryCommands,
    ModelCommands,
    Permissions,
)
from bot.routing.orchestrator import Orchestrator
from bot.routing.rate_limit import RateLimiter
from bot.store.restored_answers import Restored
from bot.wiring.instrumentation import observe_outcome, observe_run
from bot.wording import choices
from threads.absent_transport import AbsentOutlet
from threads.actor.questions import Questions
from threads.actor.recovery import Plan, plan
from threads.actor.registry import Registry
from threads.actor.slots import Slots
from threads.actor.turn import ActorParts
from threads.delivery import Delivery
from threads.errors import error_fields
from threads.journal.records import PendingMessage, Settled
from threads.model import Feedback, FollowUp, Incoming, Run, Spoken, ThreadId, Turn, TurnLimits, WallClock
from threads.ports import Journal, Store
from threads.store.attachments import AttachmentStore
from threads.store.thread_files import Documents, ThreadFiles
from threads.wording import first_cause
from transports.base.transport import Transport
from transports.shared.delivery.outbox import Outbox

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a core. ``outboxes`` are those of the served transports, by name.

    ``models`` returns the models for a message. ``memory`` is None when it is off. ``restored`` is the backup that
    the data folder came from. ``explain`` returns the text about a failure for the thread, and ``escalate`` reports
    it to the operators. ``attach`` gets all actors and open questions. ``unfinished`` returns how far an
    extension came in the turn of a message, ``is_forgotten`` whether a line of a thread is not to be read again.
    """

    store: Store
    attachments: AttachmentStore
    now: WallClock
    mask: Callable[[str], str]
    observing: Observing
    outboxes: Mapping[str, Outbox]
    run: Run
    limits: TurnLimits
    rates: RateLimiter
    recovery: Recovery
    restored: Restored | None
    allowed: Allowed
    is_admin: Callable[[str], bool]
    models: Callable[[Incoming], ModelCommands]
    memory: MemoryCommands | None
    permissions: Permissions
    asked: AskedQuestions
    reader: Documents
    troubles: Callable[[], Sequence[str]]
    explain: Callable[[Exception, PendingMessage, str], str]
    escalate: Callable[[Exception, ThreadId, str], None]
    on_feedback: Callable[[Feedback], Awaitable[None]]
    on_stop: Callable[[PendingMessage, int, int], None]
    extensions: ExtensionCommands = field(default_factory=dict)
    attach: Callable[[Registry, Questions], None] = lambda *_: None
    unfinished: Callable[[PendingMessage], Unfinished | None] = lambda _: None
    is_forgotten: Callable[[ThreadId, Spoken], bool] = lambda *_: False


@dataclass(frozen=True, slots=True)
class Core:
    """A running bot without its transports' links."""

    orchestrator: Orchestrator
    registry: Registry
    journal: Journal
    slots: Slots


async def open_core(tasks: TaskGroup, parts: Parts) -> Core:
    """Read the pending messages, start the writers and actors in *tasks*, and return the core, ready to receive.

    Raises OSError if the data folder is not usable, and `threads.errors.NewerSchema` if a newer version wrote it.
    """
    store = parts.store
    await store.open(parts.outboxes)
    ledger = store.journal.ledger
    if parts.restored:  # a process that ran on after the backup may have posted more than the journal has
        ledger.doubt(parts.restored.restored_at.isoformat(timespec="milliseconds"))
    delivery = Delivery(
        store,
        outlet=lambda transport: parts.outboxes.get(transport) or AbsentOutlet(),
        mask=parts.mask,
        choices=choices,
        now=parts.now,
        max_age_s=parts.recovery.max_age_s,
    )
    actors = ActorParts(
        store=store,
        delivery=delivery,
        slots=Slots(parts.limits.running_turns, parts.limits.running_turns_per_user),
        limits=parts.limits,
        run=observe_run(partial(_run_if_seen, parts), parts.observing),
        files=ThreadFiles(
            parts.attachments, parts.outboxes.__getitem__, store.workspace, parts.reader, parts.is_forgotten
        ),
        on_error=partial(_report_failure, parts),
        explain=parts.explain,
        now=parts.now,
    )
    registry = Registry(tasks, actors)

    async def joined(thread: ThreadId, before: str) -> bool:
        # What this process serves it knows; whether another one does, only the store knows.
        return (not before and registry.serves(thread)) or await store.begun(thread, before)

    controls = Controls(
        registry,
        actors.questions,
        parts.models,
        parts.memory,
        parts.permissions,
        parts.asked,
        parts.troubles,
        parts.on_stop,
        parts.is_admin,
        parts.extensions,
    )
    parts.attach(registry, actors.questions)
    orchestrator = Orchestrator(
        tasks,
        journal=store.journal,
        registry=registry,
        delivery=delivery,
        admission=Admission(parts.allowed, joined, store.first_today, parts.now),
        rates=parts.rates,
        controls=controls,
        on_feedback=parts.on_feedback,
    )

    planned = partial(
        plan,
        max_age_s=parts.recovery.max_age_s,
        resume=parts.recovery.resume,
        turn_s=partial(_turn_s, parts),
        continues=partial(_continues, parts),
        served=parts.outboxes.__contains__,
    )
    store.start(tasks, _Taker(parts, orchestrator, registry, delivery, planned))
    orchestrator.recover(planned(ledger.pending.values(), parts.now()))
    delivery.repair()
    return Core(orchestrator, registry, store.journal, actors.slots)


@dataclass(frozen=True, slots=True)
class _Taker:
    """The core as the store sees it: a `threads.journal.ports.Taker`."""

    parts: Parts
    orchestrator: Orchestrator
    registry: Registry
    delivery: Delivery
    plan: Callable[[Iterable[PendingMessage], datetime], Plan]

    def route(self, pending: PendingMessage) -> None:
        self.orchestrator.route(pending)

    def settled(self, pending: PendingMessage, end: Settled) -> None:
        self.delivery.write_log(pending, end)
        observe_outcome(self.parts.observing, pending, end)

    def take_up(self, pending: Sequence[PendingMessage]) -> None:
        self.orchestrator.recover(self.plan(pending, self.parts.now()))

    def release(self, thread: ThreadId) -> None:
        self.orchestrator.release(thread)

    def serves(self, thread: ThreadId) -> bool:
        return self.registry.serves(thread)

    async def changed(self, event: FollowUp) -> None:
        await self.orchestrator.change(event)


def _turn_s(parts: Parts, pending: PendingMessage) -> float:
    """Return the seconds that the turn of a message from before the start may take."""
    own = parts.unfinished(pending)
    return max(own.time_s if own else 0.0, parts.limits.turn_timeout_s)


def _continues(parts: Parts, pending: PendingMessage) -> bool:
    """Return whether the turn of a message waited for a person, or came further than its attempt before."""
    thread = pending.incoming.thread
    if _is_asked(parts, thread, pending.incoming.id):
        return True
    own = parts.unfinished(pending)
    return own is not None and (own.continues or _is_asked(parts, thread, own.asks_as))


def _is_asked(parts: Parts, thread: ThreadId, message_id: str) -> bool:
    """Return whether a question about this message is open."""
    return parts.permissions.asks(thread, message_id) or parts.asked.asks(thread, message_id)


async def _run_if_seen(parts: Parts, turn: Turn) -> str:
    """Run a turn, unless nobody could see its answer. Raises `threads.errors.PostFailed` then, unpaid."""
    thread = turn.incoming.thread
    if outbox := parts.outboxes.get(thread.transport):
        await outbox.ensure_open(thread, turn.incoming.id)
    return await parts.run(turn)


def _report_failure(parts: Parts, error: Exception, pending: PendingMessage, reference: str) -> None:
    received, cause = pending.received, first_cause(error)
    ids = {"thread_id": received.thread_id, "message_id": received.message_id, "correlation_id": reference}
    fields = {**ids, **error_fields(cause)}
    log.error("turn.failed: %s: %s", type(cause).__name__, cause, exc_info=error, extra=fields)
    parts.escalate(error, pending.incoming.thread, reference)


def link_troubles(transports: Sequence[Transport]) -> list[str]:
    """Return a clause for each transport that is not connected or reports a trouble."""
    down = [f"{edge.name} is {edge.state}" for edge in transports if edge.state not in UP]
    return [*down, *(f"{edge.name}: {edge.trouble}" for edge in transports if edge.trouble)]
