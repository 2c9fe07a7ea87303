"""The composition root: it makes objects from the settings and connects them. Only here are transports known."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from bot.agent.prompt.instructions import Instructions
from bot.budget.accounts import Accounts
from bot.config.load import check_used, secrets_of
from bot.config.scopes import CurrentSettings, Effective, day_limits, enabled_anywhere
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.host.extension import thread_commands
from bot.host.model_settings import used
from bot.host.storage import Resources, Storage
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog
from bot.llm.remedy import explain_to_operator
from bot.observe.audit import AuditRecord, ignore
from bot.observe.audit_sinks import audit_logs, record_decision, record_grant, record_stop
from bot.observe.live_parts import LiveParts
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.routing.access import AccessControl
from bot.routing.commands import ExtensionCommand, ExtensionCommands, command_of
from bot.routing.rate_limit import RateLimiter
from bot.schedules.scheduler import Scheduler
from bot.store.learned_servers import LearnedServers, ServersFile
from bot.store.model_choice import ModelChoices, ModelsFile
from bot.store.restored_answers import Restored, skip_answered
from bot.wiring.agents import Agents, SchemaOf
from bot.wiring.core import Core, Parts, link_troubles, open_core
from bot.wiring.escalation import Escalation
from bot.wiring.model_chain import ModelChain, terms_of
from bot.wiring.reload import Reload
from bot.wiring.store import leaving, make_storage
from bot.wiring.tool_set import ToolSet, open_tool_set
from threads import wording
from threads.background import background_tasks
from threads.errors import TransportFatal, TransportRejected
from threads.journal.records import PendingMessage
from threads.model import Outgoing, ThreadId, Turn, TurnLimits
from threads.store.attachments import AttachmentStore
from threads.store.data_folder import lock_data_folder
from threads.store.disk import Offload, PosixDisk
from threads.store.disk_threads import DiskThreads
from transports.base.transport import Transport
from transports.shared.delivery.outbox import Outbox

log = logging.getLogger(__name__)

TOOL_THREADS = 4
"""File operations of tools that run at once."""

DISK_THREADS = 8
"""The bot's own disk operations that run at once. A slow disk takes several in the time of one."""

LAST_WRITES_S = 8.0
"""Seconds that the end waits for the disk once the links are closed. Both fit into `supervision.LEAVE_S`."""

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

Watch = Callable[[LiveParts], AbstractAsyncContextManager[None]]
"""A context around the running bot, see `bot.observe`."""


def unwatched(_: LiveParts) -> AbstractAsyncContextManager[None]:
    """Observe nothing."""
    return nullcontext()


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    model: str,
    make_transports: Callable[[Storage], Sequence[Transport]],
    watch: Watch = unwatched,
    observing: Observing | None = None,
    on_audit: Callable[[AuditRecord], None] = ignore,
    schema_of: SchemaOf | None = None,
    chosen_here: bool = True,
    reload: Reload | None = None,
    on_agents: Callable[[Agents], None] = lambda _: None,
) -> None:
    """Run the bot until its transports end, or *watch* cancels the block.

    *observing* receives the bot's events, and *on_audit* the records of its audit. *make_transports* gets the bot's
    storage, before it is open. Without *chosen_here* the models that threads chose are ignored.
    *schema_of* returns the schema that an answer must follow. *reload* brings changes of the settings meanwhile.
    *on_agents* is called with what answers turns, before a transport is served.

    Raises `ConfigInvalid`, `FolderTaken`, `NewerSchema` or OSError.
    """
    settings = settings.model_copy(update={"model": model})
    current = reload.current if reload else CurrentSettings(settings)
    current.replace(settings)
    access = AccessControl(current)
    offload, journal_offload = DiskThreads(DISK_THREADS), DiskThreads(1)
    secrets = await offload(secrets_of, settings, environ)
    resources = replace(_resources(offload, Masker(secrets), observing or Observing()), on_audit=on_audit)
    storage = make_storage(settings, environ, resources, journal_offload)
    store, resources = storage.store, replace(resources, now=storage.now)
    transports = make_transports(storage)
    outbox = partial(Outbox, ensure_ownership=store.ensure_ownership, max_age_s=settings.recovery.max_age_s)
    outboxes = {transport.name: outbox(transport) for transport in transports}
    post = partial(_post, outboxes, resources.mask)
    with closing(offload), closing(journal_offload), lock_data_folder(settings.data):
        await storage.open()
        chosen = ModelChoices(await storage.states.open("models", ModelsFile()), count=chosen_here)
        learned = LearnedServers(await storage.states.open("servers", ServersFile()), now=storage.now)
        async with (
            aclosing(SharedHttp(settings.ca_file)) as http,
            open_tool_set(
                settings, environ, resources, storage, transports, access.is_admin, post
            ) as tool_set,
            leaving(store),
            tool_set.audit.writing({"version": version("threadfast"), "model": model}),
            audit_logs(tool_set.audit, resources.mask),
            storage.ledger.writing(),
            background_tasks() as tasks,
        ):
            await _load_prices(settings, offload)
            models = _models(settings, environ, storage, resources, tool_set, http, chosen, learned)
            instructions = Instructions(
                resources.disk, settings.data, settings.name, tool_set.instructions, offload
            )
            mask_events = partial(StreamMasker, mask=resources.mask, find_boundary=boundary_finder(secrets))
            agents = Agents(
                current, models, tool_set, instructions, store, storage.ledger, mask_events, schema_of
            )
            agents.check(settings)
            tool_set.agents = agents
            on_agents(agents)
            link = partial(_link, transports)
            escalation = Escalation(tasks, settings.escalation, post, link, storage.now, storage.claim_report)
            backup = await storage.restored()
            bot = _Bot(
                current, access, resources, storage, transports, outboxes, agents, reload, escalation, backup
            )
            core = await bot.open(tasks, environ)
            with _last_writes(offload, journal_offload):
                async with watch(bot.live(core, (offload, journal_offload))):
                    await bot.serve_transports(core)
    if bot.stopped:
        raise ConfigInvalid("\n".join(bot.stopped))


@contextmanager
def _last_writes(*disk_threads: DiskThreads) -> Iterator[None]:
    """Bound the wait for the disk from the end of the block on."""
    try:
        yield
    finally:
        for threads in disk_threads:
            threads.end_within(LAST_WRITES_S)


def _models(
    settings: Settings,
    environ: Mapping[str, str],
    storage: Storage,
    resources: Resources,
    tool_set: ToolSet,
    http: SharedHttp,
    chosen: ModelChoices,
    learned: LearnedServers,
) -> ModelChain:
    """Return the models of the settings for everybody; those of other places share all but the settings."""
    return ModelChain(
        terms_of(Effective(settings), storage.ledger, tool_set.toolbox(settings.tools).specs),
        environ,
        http=http,
        chosen=chosen,
        random=random.random,
        now=storage.now,
        observing=resources.observing,
        mask=resources.mask,
        learned=learned,
        sharers=lambda: storage.store.workers,
        read_files=tool_set.read_files,
        on_grant=partial(record_grant, tool_set.audit),
        decided=partial(record_decision, tool_set.audit),
    )


@dataclass(frozen=True, slots=True)
class _Bot:
    """The parts of one bot, and how they meet. ``restored`` is the backup that its data came from.

    ``stopped`` has the faults of transports that only a person can fix.
    """

    current: CurrentSettings
    access: AccessControl
    resources: Resources
    storage: Storage
    transports: Sequence[Transport]
    outboxes: Mapping[str, Outbox]
    agents: Agents
    reload: Reload | None
    escalation: Escalation
    restored: Restored | None
    stopped: list[str] = field(default_factory=list, init=False)

    async def open(self, tasks: TaskGroup, environ: Mapping[str, str]) -> Core:
        """Start in *tasks* all but the transports, and return the core. Raises as `open_core` does."""
        core = await open_core(tasks, self.parts())
        self._start_schedules(tasks, core)
        tasks.start_soon(self.escalation.watch, self.transports)
        if self.reload:
            offload = self.resources.offload
            check = partial(_can_reload, self.agents, environ, offload)
            self.reload.start(tasks, offload, check, self.escalation.report)
        return core

    def troubles(self) -> list[str]:
        """Return a clause for each thing that does not work now."""
        return [
            *link_troubles(self.transports),
            *self.agents.tool_set.troubles,
            *filter(None, [self.agents.instructions.problem, self.reload.trouble if self.reload else ""]),
            *filter(None, [self.storage.trouble()]),
        ]

    def accounts(self) -> Accounts:
        """Return the accounts under all limits: those for everybody, and those of each scope."""
        settings = self.current.settings
        return Accounts.of(self.agents.ledger, settings.budget, day_limits(settings))

    def parts(self) -> Parts:
        """Return the parts of the core."""
        settings, resources, tool_set = self.current.settings, self.resources, self.agents.tool_set
        limits = limits_of(settings)
        return Parts(
            store=self.storage.store,
            attachments=AttachmentStore(resources.disk, resources.offload, limits.attachment_bytes),
            now=resources.now,
            mask=resources.mask,
            observing=resources.observing,
            outboxes=self.outboxes,
            run=self.run,
            limits=limits,
            rates=RateLimiter(settings.limits.messages_per_minute_per_user, exempt=self.access.is_admin),
            recovery=settings.recovery,
            restored=self.restored,
            allowed=self.access.allowed,
            is_admin=self.access.is_admin,
            models=self.agents.models,
            memory=tool_set.memory,
            permissions=tool_set.approvals,
            asked=tool_set.questions,
            reader=tool_set.documents,
            troubles=self.troubles,
            explain=self._explain,
            escalate=self.escalation.failed,
            on_feedback=tool_set.audit.record_feedback,
            on_stop=partial(record_stop, tool_set.audit),
            extensions=extension_commands(settings, tool_set),
            attach=tool_set.attach,
            unfinished=tool_set.unfinished,
            is_forgotten=tool_set.is_forgotten,
        )

    async def run(self, turn: Turn) -> str:
        """Answer a turn, or let the extension whose command it is."""
        command = None if turn.known_answer else command_of(turn.incoming)  # also after an edit
        own = self.agents.tool_set.own_turns.get(command.typed) if command and not command.name else None
        return await (own.run(turn, self.agents) if own else self.agents.run(turn))

    def _explain(self, error: Exception, pending: PendingMessage, reference: str) -> str:
        """Return the text about a failure for the thread. For an admin it says how to fix it."""
        if self.access.is_admin(pending.incoming.author.id):
            return explain_to_operator(error, reference, self.current.settings)
        return wording.explain(error, reference)

    def live(self, core: Core, disk_threads: Sequence[DiskThreads]) -> LiveParts:
        """Return the parts whose state is observed."""

        def troubles() -> list[str]:
            circuits = [one for one in self.agents.chain.circuits() if one.state != "closed"]
            return [*self.troubles(), *(f"{circuit.title}: {circuit.why}" for circuit in circuits)]

        return LiveParts(
            self.current.settings.data,
            self.current.settings.model,
            self.transports,
            disk_threads,
            core.registry,
            core.slots,
            core.journal,
            self.agents.chain.circuits,
            lambda: self.accounts().spend(),
            self.agents.tool_set.facts,
            troubles,
            self.resources.mask,
            self.agents.chain.prepare,
            self.storage.trouble,
            self.agents.chain.servers,
            {path: take for one in self.agents.tool_set.running for path, take in one.posts.items()},
        )

    def _start_schedules(self, tasks: TaskGroup, core: Core) -> None:
        """Start the tasks that send scheduled messages when they are due, or only what extensions have promised.

        Each transport has its own: a process that serves only some of them, such as a chat in the terminal beside the
        workers, must not keep the others from sending theirs.
        """
        for transport in self.outboxes:
            scheduler = Scheduler(
                self.agents.tool_set.schedules,
                core.orchestrator.receive,
                core.journal.knows,
                self.access.allowed,
                lambda: self.accounts().may_schedule(),
                partial(_post, self.outboxes, self.resources.mask),
                [transport],
                self.current.settings.recovery.max_age_s,
                only_returns="schedule" not in self.agents.tool_set.enabled,
            )
            tasks.start_soon(self.storage.store.hold, f"schedules {transport}", scheduler.run, lambda: None)

    async def serve_transports(self, core: Core) -> None:
        """Serve all transports until they end, or ``stopped`` has their faults."""
        receive = self.agents.tool_set.receiving(core.orchestrator.receive)
        sink = skip_answered(receive, self.restored, core.journal.knows, self.outboxes)

        async def serve(transport: Transport) -> None:
            try:
                await transport.serve(sink)
            except* TransportFatal as faults:  # it stops this transport, and no other
                fault = str(wording.first_cause(faults))
                log.error("transport.stopped: %s: %s", transport.name, fault)  # noqa: TRY400 - it says what to do
                self.stopped.append(f"{transport.name}: {fault}")
                self.escalation.stopped(transport.name, fault)

        async with anyio.create_task_group() as tasks:
            for transport in self.transports:
                tasks.start_soon(serve, transport)


async def _load_prices(settings: Settings, offload: Offload) -> None:
    """Read the list of prices, unless every model is offline."""
    if any(not name.startswith("offline/") for name in [*used(settings), *settings.models]):
        await offload(Catalog.of(settings).load)


async def _can_reload(
    agents: Agents, environ: Mapping[str, str], offload: Offload, settings: Settings
) -> list[str]:
    """Return what of these settings counts at the next start only; see `bot.wiring.reload.Check`."""
    if faults := await offload(partial(check_used, settings, environ, transports=False)):
        raise ConfigInvalid("\n".join(faults))
    await _load_prices(settings, offload)
    agents.check(settings)
    missing = enabled_anywhere(settings) - agents.tool_set.enabled
    return [f"tools.enabled ({name})" for name in sorted(missing)]


def _resources(offload: Offload, mask: Masker, observing: Observing) -> Resources:
    # Tools have a few threads of their own, so that no promise waits for them.
    threads = anyio.CapacityLimiter(TOOL_THREADS)

    def work(function: Callable[[*Arguments], T], /, *args: *Arguments) -> Awaitable[T]:
        return anyio.to_thread.run_sync(function, *args, limiter=threads)

    return Resources(PosixDisk(), offload, work, utc_now, mask, observing)


def extension_commands(settings: Settings, tool_set: ToolSet) -> ExtensionCommands:
    """Return the commands of the extensions; those of one that is not open say so."""
    obey = {name: obey for one in tool_set.running for name, obey in one.obey.items()}
    turns = tool_set.own_turns
    return {
        name: ExtensionCommand(one.usage, one.meaning, one.off, one.is_turn, obey.get(name), turns.get(name))
        for one in thread_commands(settings)
        for name in [one.name]
    }


def _link(transports: Sequence[Transport], thread: ThreadId) -> str:
    """Return the web address of a thread, blank if it has none."""
    return next((edge.link(thread) for edge in transports if edge.name == thread.transport), "")


async def _post(outboxes: Mapping[str, Outbox], mask: Callable[[str], str], outgoing: Outgoing) -> str:
    """Post to any channel of the transports. Raises `PostFailed`, also if the transport is not served."""
    outbox = outboxes.get(outgoing.thread.transport)
    if outbox is None:
        raise TransportRejected(f"{outgoing.thread.transport} is not served by this process")
    if outgoing.again and outbox.finds and (found := await outbox.find(outgoing.thread, outgoing.key)):
        return found
    return await outbox.post(replace(outgoing, text=mask(outgoing.text)))


def limits_of(settings: Settings) -> TurnLimits:
    given = settings.limits
    return TurnLimits(
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
