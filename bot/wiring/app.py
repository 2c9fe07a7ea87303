"""The composition root: it makes objects from the settings and connects them. Only here are transports known."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import JsonValue

from bot.agent.loop import Agent
from bot.agent.prompt.instructions import Instructions
from bot.agent.prompt.user_message import UserMessages, add_nothing, no_memory
from bot.budget.accounts import Accounts
from bot.config.load import secrets_of
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog, audio_price_fix, price_fix
from bot.llm.policies.structured_output import FittingModels
from bot.observe.audit import AuditRecord, ignore
from bot.observe.audit_sinks import audit_logs, record_decision, record_grant, record_stop
from bot.observe.live_parts import LiveParts
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.model import Request
from bot.routing.access import allowed, is_admin
from bot.routing.rate_limit import RateLimiter
from bot.store.model_choice import ModelChoices, ModelsFile
from bot.store.restored_answers import Restored, skip_answered
from bot.wiring.core import Core, Parts, link_troubles, open_core
from bot.wiring.escalation import Escalation
from bot.wiring.model_chain import ModelChain, candidates, offered
from bot.wiring.remedy import explain_to_operator
from bot.wiring.store import Resources, Storage, leaving, make_storage
from bot.wiring.tool_set import ToolSet, open_tool_set
from threads import wording
from threads.errors import TransportFatal, TransportRejected
from threads.journal.records import PendingMessage
from threads.model import Incoming, Limits, OnEvent, Outgoing, Run, Sink, ThreadId, Turn
from threads.ports import Store
from threads.store.attachments import AttachmentStore
from threads.store.data_folder import Spill, lock_data_folder
from threads.store.disk import Offload, PosixDisk
from threads.store.disk_threads import DiskThreads
from transports.base.transport import Transport
from transports.shared.delivery.outbox import Outbox

if TYPE_CHECKING:
    from bot.schedules.store import Schedules

log = logging.getLogger(__name__)

TOOL_THREADS = 4
"""File operations of tools that run at once."""

DISK_THREADS = 8
"""The bot's own disk operations that run at once. A slow disk takes several in the time of one."""

SchemaOf = Callable[[Incoming], "dict[str, JsonValue] | None"]
"""Returns the JSON Schema for the answer to a message, or None. With a schema the answer is JSON."""

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

Watch = Callable[[LiveParts], AbstractAsyncContextManager[None]]
"""A context around the running bot, see `bot.observe`."""


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    model: str,
    make_transports: Callable[[Storage], Sequence[Transport]],
    watch: Watch = lambda _: nullcontext(),
    observing: Observing | None = None,
    on_audit: Callable[[AuditRecord], None] = ignore,
    schema_of: SchemaOf | None = None,
    chosen_here: bool = True,
) -> None:
    """Run the bot until its transports end, or *watch* cancels the block.

    *observing* receives the bot's events, and *on_audit* the records of its audit. *make_transports* gets the bot's
    storage, before it is open. Without *chosen_here* the models that threads chose are ignored.
    *schema_of* returns the schema that an answer must follow.

    Raises `ConfigInvalid`, `FolderTaken`, `NewerSchema` or OSError.
    """
    offload, journal_offload = DiskThreads(DISK_THREADS), DiskThreads(1)
    secrets = await offload(secrets_of, settings, environ)
    resources = replace(_resources(offload, Masker(secrets), observing or Observing()), on_audit=on_audit)
    storage = make_storage(settings, environ, resources, journal_offload)
    store, resources = storage.store, replace(resources, now=storage.now)
    transports = make_transports(storage)
    outbox = partial(Outbox, ensure_ownership=store.ensure_ownership, max_age_s=settings.recovery.max_age_s)
    outboxes = {transport.name: outbox(transport) for transport in transports}
    takes_files = any(transport.capabilities.files for transport in transports)
    stopped: list[str] = []
    with closing(offload), closing(journal_offload), lock_data_folder(settings.data):
        await storage.open()
        chosen = ModelChoices(await storage.states.open("models", ModelsFile()), count=chosen_here)
        accounts = Accounts.of(storage.ledger, settings.budget)
        async with (
            aclosing(SharedHttp()) as http,
            open_tool_set(settings, environ, resources, storage, attach=takes_files) as tool_set,
            tool_set.audit.writing({"version": version("threadfast"), "model": model}),
            audit_logs(tool_set.audit, resources.mask),
            storage.ledger.writing(),
            leaving(store),
            anyio.create_task_group() as tasks,
        ):
            post = partial(_post, outboxes, resources.mask)
            models = ModelChain(
                model,
                settings,
                environ,
                tools=tool_set.toolbox.specs,
                http=http,
                catalog=await _load_catalog(settings, model, offload),
                accounts=accounts,
                chosen=chosen,
                random=random.random,
                now=storage.now,
                observing=resources.observing,
                sharers=lambda: store.workers,
                on_grant=partial(record_grant, tool_set.audit),
                decided=partial(record_decision, tool_set.audit),
            )
            bot = _Bot(
                settings,
                resources,
                store,
                transports,
                outboxes,
                accounts,
                models,
                tool_set,
                Instructions(resources.disk, settings.data, settings.name, tool_set.skills, offload),
                Escalation(tasks, settings.escalation, post, partial(_link, transports), storage.now),
                await storage.restored(),
            )
            veil = partial(StreamMasker, mask=resources.mask, find_boundary=boundary_finder(secrets))
            core = await open_core(tasks, bot.parts(bot.run(veil, schema_of)))
            if tool_set.schedules:
                bot.start_schedules(tasks, core, tool_set.schedules, post)
            tasks.start_soon(bot.escalation.watch, transports)
            async with watch(bot.live(core, model, (offload, journal_offload))):
                await bot.serve_transports(core, stopped)
            tasks.cancel_scope.cancel()
    if stopped:
        raise ConfigInvalid("\n".join(stopped))


@dataclass(frozen=True, slots=True)
class _Bot:
    """The parts of one bot, and how they meet. ``restore`` is the backup that its data came from."""

    settings: Settings
    resources: Resources
    store: Store
    transports: Sequence[Transport]
    outboxes: Mapping[str, Outbox]
    accounts: Accounts
    models: ModelChain
    tool_set: ToolSet
    instructions: Instructions
    escalation: Escalation
    restore: Restored | None

    def troubles(self) -> list[str]:
        """Return a clause for each thing that does not work now."""
        return [
            *link_troubles(self.transports),
            *self.tool_set.troubles,
            *filter(None, [self.instructions.problem]),
        ]

    def run(self, veil: Callable[[OnEvent], OnEvent], schema_of: SchemaOf | None) -> Run:
        """Return the function that answers turns: an agent that reads its instructions again for each turn."""
        settings, tool_set = self.settings, self.tool_set

        def spill(thread: ThreadId) -> Spill:
            async def save(name: str, text: str, *, outside: bool) -> str:
                return await tool_set.spill(await self.store.workspace(thread), name, text, outside=outside)

            return save

        agent = Agent(
            FittingModels(self.models) if schema_of else self.models,
            tool_set.toolbox,
            "",
            self.store.workspace,
            spill,
            max_steps=settings.limits.max_steps,
            empty=Request("", (), max_tokens=settings.max_tokens, temperature=settings.temperature),
            compaction=settings.compaction,
            footer=settings.budget.footer,
            user_messages=UserMessages(
                tool_set.memory.read if tool_set.memory else no_memory,
                self.models.to_text,
                self.models.is_chosen,
                tool_set.mcp.extend if tool_set.mcp else add_nothing,
            ),
            veil=veil,
        )

        async def run(turn: Turn) -> str:
            if tool_set.mcp and (problem := await tool_set.mcp.prepare(turn)):
                return problem
            empty = agent.empty
            if schema_of:
                empty = replace(empty, output_schema=schema_of(turn.incoming))
            return await replace(agent, system=await self.instructions.prompt(), empty=empty).run(turn)

        return run

    def parts(self, run: Run) -> Parts:
        """Return the parts of the core."""
        settings, resources, tool_set = self.settings, self.resources, self.tool_set
        admin, limits = partial(is_admin, settings.access), limits_of(settings)
        return Parts(
            store=self.store,
            attachments=AttachmentStore(resources.disk, resources.offload, limits.attachment_bytes),
            now=resources.now,
            mask=resources.mask,
            observing=resources.observing,
            outboxes=self.outboxes,
            run=run,
            limits=limits,
            rates=RateLimiter(settings.limits.messages_per_minute_per_user, exempt=admin),
            recovery=settings.recovery,
            restored=self.restore,
            allowed=partial(allowed, settings.access),
            is_admin=admin,
            models=self.models,
            memory=tool_set.memory,
            schedules=tool_set.schedules,
            permissions=tool_set.approvals,
            reader=tool_set.documents,
            troubles=self.troubles,
            explain=partial(_explain, settings),
            escalate=self.escalation.failed,
            on_feedback=tool_set.audit.record_feedback,
            on_stop=partial(record_stop, tool_set.audit),
            mcp=tool_set.mcp,
            on_questions=tool_set.mcp.close_questions_of if tool_set.mcp else lambda _: None,
        )

    def live(self, core: Core, model: str, disk_threads: Sequence[DiskThreads]) -> LiveParts:
        """Return the parts whose state is observed."""

        def troubles() -> list[str]:
            circuits = [one for one in self.models.circuits() if one.state != "closed"]
            return [*self.troubles(), *(f"{circuit.model}: {circuit.why}" for circuit in circuits)]

        return LiveParts(
            self.settings.data,
            model,
            self.transports,
            disk_threads,
            core.registry,
            core.slots,
            core.journal,
            self.models.circuits,
            self.accounts.spend,
            self.tool_set.sandbox,
            troubles,
            self.resources.mask,
        )

    def start_schedules(
        self, tasks: TaskGroup, core: Core, schedules: Schedules, post: Callable[[Outgoing], Awaitable[str]]
    ) -> None:
        """Start the task that sends scheduled messages when they are due."""
        from bot.schedules.scheduler import Scheduler  # noqa: PLC0415 - off by default

        scheduler = Scheduler(
            schedules,
            core.orchestrator.receive,
            core.journal.knows,
            partial(allowed, self.settings.access),
            self.accounts.may_schedule,
            post,
            frozenset(self.outboxes),
            self.settings.recovery.max_age_s,
        )
        tasks.start_soon(self.store.hold, "schedules", scheduler.run, lambda: None)

    async def serve_transports(self, core: Core, stopped: list[str]) -> None:
        """Serve all transports until they end. Faults that only a person can fix are added to *stopped*."""
        receive: Sink = core.orchestrator.receive
        if self.tool_set.mcp:
            receive = self.tool_set.mcp.concealing(receive)
        sink = skip_answered(receive, self.restore, core.journal.knows, self.outboxes)

        async def serve(transport: Transport) -> None:
            try:
                await transport.serve(sink)
            except* TransportFatal as faults:  # it stops this transport, and no other
                fault = str(wording.first_cause(faults))
                log.error("transport.stopped: %s: %s", transport.name, fault)  # noqa: TRY400 - it says what to do
                stopped.append(f"{transport.name}: {fault}")
                self.escalation.stopped(transport.name, fault)

        async with anyio.create_task_group() as tasks:
            for transport in self.transports:
                tasks.start_soon(serve, transport)


async def _load_catalog(settings: Settings, model: str, offload: Offload) -> Catalog:
    """Return the catalog of models, with its prices unless every model is offline."""
    catalog = catalog_of(settings)
    if settings.transcription or any(not name.startswith("offline/") for name in offered(settings, model)):
        await offload(catalog.load)
    return catalog


def _resources(offload: Offload, mask: Masker, observing: Observing) -> Resources:
    # Tools have a few threads of their own, so that no promise waits for them.
    threads = anyio.CapacityLimiter(TOOL_THREADS)

    def work(function: Callable[[*Arguments], T], /, *args: *Arguments) -> Awaitable[T]:
        return anyio.to_thread.run_sync(function, *args, limiter=threads)

    return Resources(PosixDisk(), offload, work, utc_now, mask, observing)


def _link(transports: Sequence[Transport], thread: ThreadId) -> str:
    """Return the web address of a thread, blank if it has none."""
    return next((edge.link(thread) for edge in transports if edge.name == thread.transport), "")


def catalog_of(settings: Settings) -> Catalog:
    free = {name for name, provider in settings.providers.items() if provider.free}
    return Catalog(settings.models, settings.prices, free)


def unpriced(settings: Settings) -> list[str]:
    """Return a warning for each model in the settings whose price is unknown."""
    catalog, hard = catalog_of(settings), settings.budget.mode == "hard"
    then = "a hard budget refuses it" if hard else "what it costs is not counted"
    names = [name for name in candidates(settings, settings.model) if catalog.rate(name) is None]
    warnings = [f"prices: the price of {name} is not known: {then}. {price_fix(name)}" for name in names]
    if (given := settings.transcription) and not catalog.audio_rate(given.model, given.usd_per_minute):
        fix = audio_price_fix(given.model)
        warnings.append(f"transcription.usd_per_minute: the price is not known: {then}. {fix}")
    return warnings


async def _post(outboxes: Mapping[str, Outbox], mask: Callable[[str], str], outgoing: Outgoing) -> str:
    """Post to any channel of the transports. Raises `PostFailed`, also if the transport is not served."""
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


def _explain(settings: Settings, error: Exception, pending: PendingMessage, reference: str) -> str:
    """Return the text about a failure for the thread. For an admin it says how to fix it."""
    if is_admin(settings.access, pending.incoming.author.id):
        return explain_to_operator(error, reference, settings)
    return wording.explain(error, reference)
