"""The composition root: where settings become objects and objects meet. Only here are transports known."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from bot.agent.loop import Agent
from bot.agent.prompt.instructions import Instructions
from bot.agent.prompt.user_message import no_memory
from bot.budget.accounts import Accounts
from bot.budget.ledger import Ledger
from bot.config.load import secrets_of
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog, price_fix
from bot.observe.audit import Audit
from bot.observe.audit_sinks import audit_logs, record_decision, record_grant, record_stop
from bot.observe.live_parts import LiveParts
from bot.observe.turn_events import Observing
from bot.ports.errors import ConfigInvalid, report
from bot.ports.model import Models
from bot.ports.status import CircuitStatus
from bot.routing.access import allowed, is_admin
from bot.routing.admission import Admission, Allowed
from bot.routing.commands import Controls, MemoryCommands, ModelCommands, Permissions, ScheduleCommands
from bot.routing.orchestrator import Orchestrator
from bot.routing.rate_limit import RateLimiter
from bot.store.migrations import prepare
from bot.store.model_choice import ModelChoices
from bot.store.restored_answers import Restored, restored, skip_answered
from bot.tools.files.resolve_beneath import mark_output
from bot.wiring.escalation import Escalation
from bot.wiring.instrumentation import WatchedJournal, observe_run
from bot.wiring.model_chain import ModelChain, candidates, offered
from bot.wiring.remedy import explain_to_operator
from bot.wiring.tool_set import Resources, ToolSet, open_tool_set
from threads import wording
from threads.absent_transport import AbsentOutlet
from threads.actor.recovery import plan
from threads.actor.registry import Registry
from threads.actor.slots import Slots
from threads.actor.turn import ActorParts
from threads.delivery import Delivery, Outlet
from threads.errors import StoreUnavailable, TransportFatal, TransportRejected
from threads.journal.journal import Journal
from threads.journal.records import PendingMessage
from threads.log import Log
from threads.model import Feedback, Limits, OnEvent, Outgoing, Sink, ThreadId, Turn
from threads.store.attachments import AttachmentStore
from threads.store.context import ContextFile
from threads.store.data_folder import Spill, conversation_exists, lock_data_folder, thread_folder
from threads.store.disk import Disk, Offload, PosixDisk, replace_file
from threads.store.thread_files import Reader, ThreadFiles
from transports.base.transport import Transport
from transports.shared.delivery.outbox import Outbox

if TYPE_CHECKING:
    from bot.schedules.store import Schedules

log = logging.getLogger(__name__)

TOOL_THREADS = 4
"""How many of the file operations of tools run at once."""

Given = TypeVarTuple("Given")
T = TypeVar("T")


class Answering(Protocol):
    """Answers turns; see `bot.agent.loop.Agent`."""

    async def run(self, turn: Turn) -> str: ...


MakeAgent = Callable[[Callable[[ThreadId], Path], Callable[[ThreadId], Spill]], Answering]
"""Makes the agent from what gives a thread its workspace folder, and what keeps a long text there."""


@dataclass(frozen=True, slots=True)
class Instructed:
    """An agent that is told for each turn what its instructions are now."""

    agent: Agent
    prompt: Callable[[], Awaitable[str]]

    async def run(self, turn: Turn) -> str:
        return await replace(self.agent, system=await self.prompt()).run(turn)


Watch = Callable[[LiveParts], AbstractAsyncContextManager[None]]
"""Looks after the running bot for as long as it is entered; see `bot.observe`."""


@dataclass(frozen=True, slots=True)
class Core:
    """A running bot without its transports' links."""

    orchestrator: Orchestrator
    registry: Registry
    journal: Journal
    slots: Slots


async def open_core(
    tasks: TaskGroup,
    data: Path,
    *,
    agent: MakeAgent,
    brain: ModelCommands,
    transports: Sequence[Transport],
    limits: Limits,
    disk: Disk,
    offload: Offload,
    now: Callable[[], datetime],
    allowed: Allowed = lambda _: True,
    on_feedback: Callable[[Feedback], Awaitable[None]] | None = None,
    mask: Callable[[str], str] = str,
    reader: Reader | None = None,
    spill: Callable[[Path], Spill] | None = None,
    notes: MemoryCommands | None = None,
    timetable: ScheduleCommands | None = None,
    troubles: Callable[[], Sequence[str]] | None = None,
    rates: RateLimiter | None = None,
    permissions: Permissions | None = None,
    asks: Callable[[ThreadId, str], bool] = lambda *_: False,
    max_age_s: float = 600,
    resume: bool = True,
    observing: Observing | None = None,
    on_stop: Callable[[PendingMessage, int, int], None] = lambda *_: None,
    explain: Callable[[Exception, PendingMessage, str], str] = lambda error, _, reference: wording.explain(
        error, reference
    ),
    escalate: Callable[[Exception, ThreadId, str], None] = lambda *_: None,
    is_admin: Callable[[str], bool] = lambda _: False,
    came: Restored | None = None,
) -> Core:
    """Read what is pending, start what serves it in *tasks*, and return the bot, ready to receive.

    What the process that went on after the backup which the folder *came* from has posted, its journal does not know.
    Raises OSError when the data folder cannot be used, `threads.errors.NewerSchema` when a newer version wrote it.
    """
    threads = [data / "threads", *(data / "threads" / transport.name for transport in transports)]
    for parent in (*reversed(data.parents), data, *threads):
        await offload(disk.mkdir, parent)
    observing, told = observing or Observing(), troubles or partial(_troubles, transports, list)
    path = data / "journal.jsonl"
    journal = WatchedJournal(disk, path, offload=offload, now=now, observing=observing)
    if damaged := await offload(journal.open):
        log.warning("journal.damaged: %d damaged lines put aside in journal.jsonl.broken", damaged)
    if came:
        journal.ledger.doubt(came.restored_at.isoformat(timespec="milliseconds"))
    folder = partial(thread_folder, data)
    outboxes = {transport.name: Outbox(transport) for transport in transports}
    history = Log(disk, offload=offload)
    delivery = Delivery(
        journal, history, outlet=partial(_outlet, outboxes), folder=folder, now=now, mask=mask
    )

    def workspace(thread: ThreadId) -> Path:
        return folder(thread) / "workspace"

    keep = spill or partial(partial, _spill, disk, offload)
    answers = agent(workspace, lambda thread: keep(workspace(thread)))
    shared = ActorParts(
        journal=journal,
        delivery=delivery,
        slots=Slots(limits.running_turns, limits.running_turns_per_user),
        limits=limits,
        run=observe_run(answers.run, journal, observing),
        context=lambda thread: ContextFile(disk, folder(thread), offload),
        files=ThreadFiles(
            AttachmentStore(disk, offload, limits.attachment_bytes), outboxes.__getitem__, folder, reader
        ),
        on_error=partial(_record, now, escalate),
        explain=explain,
        now=now,
    )
    registry = Registry(tasks, shared)

    async def joined(thread: ThreadId) -> bool:
        try:
            return registry.serves(thread) or await offload(conversation_exists, disk, folder(thread))
        except OSError as error:
            raise StoreUnavailable(f"context: {error}") from error

    orchestrator = Orchestrator(
        tasks,
        journal=journal,
        registry=registry,
        delivery=delivery,
        admission=Admission(allowed, joined, now),
        rates=rates or RateLimiter(None),
        controls=Controls(
            registry,
            shared.questions,
            brain,
            lambda: ", ".join(told()),
            notes,
            timetable,
            permissions,
            on_stop,
            is_admin,
        ),
        on_feedback=on_feedback or Audit(disk, data / "audit", offload=offload, now=now).record_feedback,
    )
    tasks.start_soon(journal.run, orchestrator.route)
    tasks.start_soon(history.run)
    tasks.start_soon(delivery.repair)
    left = plan(
        journal.ledger,
        now(),
        max_age_s=max_age_s,
        resume=resume,
        turn_s=limits.turn_timeout_s,
        asked=lambda pending: asks(pending.incoming.thread, pending.incoming.id),
        served=outboxes.__contains__,
    )
    orchestrator.recover(left)
    return Core(orchestrator, registry, journal, shared.slots)


def _outlet(outboxes: Mapping[str, Outbox], transport: str) -> Outlet:
    """Return the way to the people of a transport: what was settled by another process may be of one without."""
    return outboxes.get(transport) or AbsentOutlet()


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    model: str,
    transports: Sequence[Transport],
    watch: Watch = lambda _: nullcontext(),
    observing: Observing | None = None,
) -> None:
    """Run the bot until its transports end, or *watch* cancels what it surrounds; *observing* is told of its work.

    Raises `ConfigInvalid`, `FolderTaken`, `NewerSchema` or OSError.
    """
    data, offload = settings.data, anyio.to_thread.run_sync  # data is absolute
    resources, veil = await _resources(settings, environ, observing or Observing())
    outboxes = {transport.name: Outbox(transport) for transport in transports}
    post = partial(_post, outboxes, resources.mask)
    catalog, chosen = catalog_of(settings), ModelChoices(resources.disk, data / "models.json", offload)
    if any(not name.startswith("offline/") for name in offered(settings, model)):
        await offload(catalog.load)
    ledger = Ledger(resources.disk, data / "usage", offload=offload, now=utc_now)
    takes_files = any(transport.capabilities.files for transport in transports)
    ended: list[str] = []
    with lock_data_folder(data):
        await offload(prepare, data, utc_now)
        await offload(ledger.open)
        await offload(chosen.open)
        accounts = Accounts.of(ledger, settings.budget)
        async with (
            aclosing(SharedHttp()) as http,
            open_tool_set(settings, environ, resources, attach=takes_files) as tool_set,
            tool_set.audit.writing({"version": version("threadfast"), "model": model}),
            audit_logs(tool_set.audit, resources.mask),
            ledger.writing(),
            anyio.create_task_group() as tasks,
        ):
            escalation = Escalation(tasks, settings.escalation, post, partial(_link, transports), utc_now)
            models = ModelChain(
                model,
                settings,
                environ,
                tools=tool_set.toolbox.specs,
                http=http,
                catalog=catalog,
                accounts=accounts,
                chosen=chosen,
                random=random.random,
                now=utc_now,
                observing=resources.observing,
                on_grant=partial(record_grant, tool_set.audit),
                decided=partial(record_decision, tool_set.audit),
            )
            instructions = Instructions(resources.disk, data, settings.name, tool_set.skills, offload)
            troubles = partial(
                _troubles, transports, lambda: [*tool_set.troubles, *filter(None, [instructions.problem])]
            )
            came = await offload(restored, data)
            core = await open_core(
                tasks,
                data,
                agent=_agent(settings, models, tool_set, instructions, veil),
                brain=models,
                transports=transports,
                limits=limits_of(settings),
                disk=resources.disk,
                offload=offload,
                now=utc_now,
                allowed=partial(allowed, settings.access),
                on_feedback=tool_set.audit.record_feedback,
                mask=resources.mask,
                reader=tool_set.documents,
                spill=lambda workspace: partial(tool_set.spill, workspace),
                notes=tool_set.memory,
                timetable=tool_set.schedules,
                troubles=troubles,
                rates=RateLimiter(
                    settings.limits.messages_per_minute_per_user, exempt=partial(is_admin, settings.access)
                ),
                permissions=tool_set.approvals,
                asks=tool_set.approvals.asks,
                max_age_s=settings.recovery.max_age_s,
                resume=settings.recovery.resume,
                observing=resources.observing,
                on_stop=partial(record_stop, tool_set.audit),
                explain=partial(_explained, settings),
                escalate=escalation.failed,
                is_admin=partial(is_admin, settings.access),
                came=came,
            )
            if tool_set.schedules:
                _fire(tasks, tool_set.schedules, core, accounts, settings, post, frozenset(outboxes))
            live = LiveParts(
                data,
                model,
                transports,
                core.registry,
                core.slots,
                core.journal,
                models.circuits,
                accounts.spend,
                tool_set.sandbox,
                lambda: [*troubles(), *_shut(models.circuits())],
            )
            receive = skip_answered(core.orchestrator.receive, came, core.journal.knows, outboxes)
            tasks.start_soon(escalation.watch, transports)
            async with watch(live), anyio.create_task_group() as edges:
                for transport in transports:
                    edges.start_soon(_serve_edge, transport, receive, ended, escalation.stopped)
            tasks.cancel_scope.cancel()
    if ended:
        raise ConfigInvalid("\n".join(ended))


async def _resources(
    settings: Settings, environ: Mapping[str, str], observing: Observing
) -> tuple[Resources, Callable[[OnEvent], OnEvent]]:
    """Return what everything is made of, and what veils secrets in answers."""
    offload = anyio.to_thread.run_sync
    secrets = await offload(secrets_of, settings, environ)
    # Tools have few threads of their own: whatever they do, a promise is on the disk without waiting for them.
    threads = anyio.CapacityLimiter(TOOL_THREADS)

    def work(function: Callable[[*Given], T], /, *given: *Given) -> Awaitable[T]:
        return anyio.to_thread.run_sync(function, *given, limiter=threads)

    resources = Resources(PosixDisk(), offload, utc_now, Masker(secrets), work, observing)
    return resources, partial(StreamMasker, mask=resources.mask, find_boundary=boundary_finder(secrets))


def _agent(
    settings: Settings,
    models: Models,
    tool_set: ToolSet,
    instructions: Instructions,
    veil: Callable[[OnEvent], OnEvent],
) -> MakeAgent:
    """Return what makes the agent of these settings, once it is known where its threads' files are."""
    make = partial(
        Agent,
        models,
        tool_set.toolbox,
        "",
        max_steps=settings.limits.max_steps,
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        compaction=settings.compaction,
        footer=settings.budget.footer,
        read_memory=tool_set.memory.read if tool_set.memory else no_memory,
        veil=veil,
    )
    return lambda *places: Instructed(make(*places), instructions.prompt)


async def _serve_edge(
    transport: Transport, sink: Sink, ended: list[str], on_stopped: Callable[[str, str], None]
) -> None:
    """Serve one transport; a fault that only a person can mend stops it, and no other."""
    try:
        await transport.serve(sink)
    except* TransportFatal as faults:
        fault = f"{transport.name}: {wording.first_cause(faults)}"
        log.error("transport.stopped: %s", fault)  # noqa: TRY400 - it says what to do; where it was raised does not
        ended.append(fault)
        on_stopped(transport.name, str(wording.first_cause(faults)))


def _link(transports: Sequence[Transport], thread: ThreadId) -> str:
    """Return the web address of a thread, blank where there is none."""
    return next((edge.link(thread) for edge in transports if edge.name == thread.transport), "")


def _shut(circuits: Sequence[CircuitStatus]) -> list[str]:
    """Return a clause on each model whose circuit is not closed."""
    return [f"{circuit.model}: {circuit.why}" for circuit in circuits if circuit.state != "closed"]


def _troubles(transports: Sequence[Transport], trouble: Callable[[], Sequence[str]]) -> list[str]:
    """Return a clause on each transport that is not connected, and on each other *trouble*."""
    down = [f"{edge.name} is {edge.state}" for edge in transports if edge.state != "connected"]
    return [*down, *(f"{edge.name}: {edge.trouble}" for edge in transports if edge.trouble), *trouble()]


def _fire(
    tasks: TaskGroup,
    schedules: Schedules,
    core: Core,
    accounts: Accounts,
    settings: Settings,
    post: Callable[[Outgoing], Awaitable[str]],
    served: AbstractSet[str],
) -> None:
    """Have what is scheduled handed over when it is due."""
    from bot.schedules.firing import Firing  # noqa: PLC0415 - off by default

    firing = Firing(
        schedules,
        core.orchestrator.receive,
        core.journal.knows,
        partial(allowed, settings.access),
        accounts.may_schedule,
        post,
        served,
        settings.recovery.max_age_s,
    )
    tasks.start_soon(firing.run)


def catalog_of(settings: Settings) -> Catalog:
    free = {name for name, provider in settings.providers.items() if provider.free}
    return Catalog(settings.models, settings.prices, free)


def unpriced(settings: Settings) -> list[str]:
    """Return a warning for each model that the settings use and whose price nobody knows."""
    catalog, hard = catalog_of(settings), settings.budget.mode == "hard"
    then = "a hard budget refuses it" if hard else "what it costs is not counted"
    names = [name for name in candidates(settings, settings.model) if catalog.rate(name) is None]
    return [f"prices: the price of {name} is not known: {then}. {price_fix(name)}" for name in names]


async def _post(outboxes: Mapping[str, Outbox], mask: Callable[[str], str], outgoing: Outgoing) -> str:
    """Post to any channel of the transports. Raises `PostFailed`, also for one that is not served."""
    outbox = outboxes.get(outgoing.thread.transport)
    if outbox is None:
        raise TransportRejected(f"{outgoing.thread.transport} is not served by this process")
    return await outbox.post(replace(outgoing, text=mask(outgoing.text)))


def limits_of(settings: Settings) -> Limits:
    given = settings.limits
    return Limits(
        mailbox=given.mailbox,
        running_turns=given.max_running_turns,
        running_turns_per_user=given.max_running_turns_per_user,
        turn_timeout_s=given.turn_timeout_s,
        idle_timeout_s=given.idle_timeout_s,
        attachment_bytes=given.attachment_mb * 1_000_000,
        busy=settings.busy,
    )


def utc_now() -> datetime:
    return datetime.now(UTC)


async def _spill(
    disk: Disk, offload: Offload, workspace: Path, name: str, text: str, *, outside: bool
) -> str:
    """Keep a long text in the workspace where no command can be in the way: for bots without a workbench."""

    def write() -> None:
        disk.mkdir(workspace.parent)
        mark_output(workspace, outside=outside)
        for folder in (workspace, workspace / "tool-output"):
            disk.mkdir(folder)
        replace_file(disk, workspace / "tool-output" / name, text.encode())

    try:
        await offload(write)
    except OSError as error:
        raise StoreUnavailable(f"tool-output: {error}") from error
    return f"tool-output/{name}"


def _explained(settings: Settings, error: Exception, pending: PendingMessage, reference: str) -> str:
    """Return what the thread reads about a failure: more for an admin, who can do something about it."""
    if is_admin(settings.access, pending.incoming.author.id):
        return explain_to_operator(error, reference, settings)
    return wording.explain(error, reference)


def _record(
    now: Callable[[], datetime],
    escalate: Callable[[Exception, ThreadId, str], None],
    error: Exception,
    pending: PendingMessage,
    reference: str,
) -> None:
    received = pending.received
    ids = {"thread_id": received.thread_id, "message_id": received.message_id}
    described = report(error, reference, now(), **ids)
    log.error(
        "turn.failed: %s",
        described.message,
        exc_info=error,
        extra={**ids, "correlation_id": reference, "report": described.model_dump()},
    )
    escalate(error, pending.incoming.thread, reference)
