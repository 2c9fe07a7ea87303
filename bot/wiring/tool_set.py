"""Builds the tools of a bot from the settings, with the approvals that guard them.

This is wiring, as `bot.wiring.model_chain` is for models: only this module knows all tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import TaskStatus
from cachetools import LRUCache

from bot.agent.prompt.instructions import Texts
from bot.agent.prompt.memory import Memory
from bot.config.extensions import installed_for
from bot.config.scopes import enabled_anywhere
from bot.config.settings import Settings, Tools
from bot.config.tool_profiles import policy_of
from bot.guards.egress import Egress
from bot.guards.policy import FOREIGN
from bot.guards.redaction import Masker
from bot.host.agents import Agents, PlaceModels
from bot.host.extension import Host, OwnTurns, Running, Unfinished, extensions_of
from bot.host.storage import Resources, Storage
from bot.observe.audit import Audit
from bot.observe.logs import mask_in_logs
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.documents import PlainDocuments
from bot.ports.errors import ToolError
from bot.ports.tool import Tool, ToolContext
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.tools.ask_person import AskingPermits, AskPerson
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from bot.tools.gate import Toolbox
from bot.tools.memory import Recall, Remember
from bot.tools.questions import DurableQuestions, QuestionsFile
from bot.tools.recovery import Recovery, SignIn
from bot.tools.web.http_client import HttpClient
from bot.tools.web.tool import WebFetch
from bot.wiring.instrumentation import ObservedPermits, ObservedTool
from threads.actor.questions import Questions
from threads.actor.registry import Registry
from threads.errors import NewerSchema, StoreUnavailable
from threads.journal.records import PendingMessage
from threads.model import File, Incoming, Message, Outgoing, Sink, Spoken, ThreadId, Turn
from threads.store.json_file import States
from threads.store.thread_files import Documents
from transports.base.transport import Transport

if TYPE_CHECKING:
    from bot.schedules.store import Schedules

log = logging.getLogger(__name__)

MOST_TOOLBOXES = 64
"""Toolboxes that are remembered, each for settings of its own."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which tools a model has: those that the settings give, and of these ``names`` only unless it is None."""

    given: Tools
    names: Collection[str] | None

    def has(self, name: str, group: str) -> bool:
        if FOREIGN in name:
            is_given = self.given.mcp_servers is None or group in self.given.mcp_servers
        else:
            is_given = group in self.given.enabled
        return is_given and (self.names is None or name in self.names)


@dataclass(slots=True)
class ToolSet:
    """The tools, and the parts of them that the rest of the bot uses.

    ``schedules`` are open also where people can set none: extensions keep their promises by them.
    ``enabled`` has each name in `tools.enabled`, of everybody or of a scope. ``groups`` has that name for each tool,
    or that of where it comes from, such as an MCP server. ``running`` has what the extensions bring, and ``facts``
    what status says of them.
    """

    documents: Documents
    audit: Audit
    writer: Writer
    mask: Callable[[str], str]
    observing: Observing
    on_erase: Sequence[Callable[[ThreadId], Awaitable[object]]]
    tools: list[Tool] = field(default_factory=list)
    enabled: frozenset[str] = frozenset()
    groups: dict[str, str] = field(default_factory=dict)
    off: dict[str, str] = field(default_factory=dict)
    memory: Memory | None = None
    schedules: Schedules = field(init=False)
    running: list[Running] = field(default_factory=list)
    agents: Agents | None = None
    facts: dict[str, str] = field(default_factory=dict)
    approvals: Approvals = field(init=False)
    questions: DurableQuestions = field(init=False)
    registry: Registry = field(init=False)
    _toolboxes: LRUCache[str, Toolbox] = field(default_factory=partial(LRUCache, MOST_TOOLBOXES), init=False)
    _in_use: WeakKeyDictionary[Toolbox, _Choice] = field(default_factory=WeakKeyDictionary, init=False)

    def add(self, group: str, *tools: Tool) -> None:
        self.tools += tools
        self.groups.update((tool.name, group) for tool in tools)

    def offer(self, group: str, tools: Sequence[Tool]) -> None:
        """Offer these tools of a group and no others of it, also where models have toolboxes already."""
        gone = {tool.name for tool in self.tools if self.groups[tool.name] == group}
        self.tools = [tool for tool in self.tools if tool.name not in gone]
        self.groups = {name: of for name, of in self.groups.items() if name not in gone}
        self.add(group, *tools)
        for toolbox, choice in self._in_use.items():
            toolbox.replace(gone, self._chosen(choice, tools))

    def toolbox(self, given: Tools, names: Collection[str] | None = None) -> Toolbox:
        """Return the tools that these settings give the model, under their rules, of *names* only if given.

        The same settings have the same toolbox.
        """
        key = given.model_dump_json() + ("" if names is None else repr(sorted(names)))
        if key not in self._toolboxes:
            choice = _Choice(given, names)
            self._toolboxes[key] = self._make_toolbox(choice)
            self._in_use[self._toolboxes[key]] = choice
        return self._toolboxes[key]

    def _make_toolbox(self, choice: _Choice) -> Toolbox:
        given = choice.given
        asking = AskingPermits(self.approvals.under(policy_of(given)), self.questions)
        recovery = Recovery(asking, self.questions, choice=given.recovery, sign_in=self._sign_in)
        return Toolbox(
            self._chosen(choice, self.tools),
            timeout_s={name: ms / 1000 for name, ms in given.per_tool.items()},
            default_timeout_s=given.default_timeout_ms / 1000,
            permits=ObservedPermits(recovery, self.observing),
            mask=self.mask,
            off=self.off,
            recovery=recovery,
        )

    async def prepare(self, turn: Turn) -> str:
        """Let the extensions prepare a turn; return the answer of the first that has one, or a blank."""
        for one in self.running:
            if one.prepare and (answer := await one.prepare(turn)):
                return answer
        return ""

    async def extend(self, incoming: Incoming, message: Message) -> Message:
        """Return a person's message for the model with what the extensions add to it."""
        for one in self.running:
            message = await one.extend(incoming, message) if one.extend else message
        return message

    @property
    def own_turns(self) -> Mapping[str, OwnTurns]:
        """Return the turns that extensions answer themselves, by the command."""
        return {name: own for one in self.running for name, own in one.turns.items()}

    @property
    def instructions(self) -> Texts:
        """Return what extensions have for the system prompt, by the group of their tools."""
        return {group: text for one in self.running for group, text in one.instructions.items()}

    def unfinished(self, pending: PendingMessage) -> Unfinished | None:
        """Return how far an extension came in the turn of a message, or None."""
        return next(filter(None, (own.unfinished(pending) for own in self.own_turns.values())), None)

    async def read_files(self, turn: Turn, files: Sequence[File], models: PlaceModels) -> list[File]:
        """Return files with the text of those that extensions read."""
        for to_text in filter(None, (one.to_text for one in self.running)):
            files = [await to_text(turn, file, models) for file in files]
        return [*files]

    def is_forgotten(self, thread: ThreadId, line: Spoken) -> bool:
        """Return whether a line of a thread is not to be read again, as an extension says."""
        return any(one.is_forgotten(thread, line) for one in self.running if one.is_forgotten)

    def receiving(self, sink: Sink) -> Sink:
        """Return the sink of all events, with those of the extensions around it."""
        for one in self.running:
            sink = one.receiving(sink) if one.receiving else sink
        return sink

    def _sign_in(self, tool: str, context: ToolContext) -> SignIn | None:
        group = self.groups.get(tool, "")
        found = (one.sign_in(group, context) for one in self.running if one.sign_in)
        return next(filter(None, found), None)

    def attach(self, registry: Registry, questions: Questions) -> None:
        """Let extensions erase threads, and what people do elsewhere answer a question that is open."""
        self.registry, self.questions.open = registry, questions

    async def erase(
        self, thread: ThreadId, parts: Collection[str], work: Callable[[], Awaitable[None]]
    ) -> bool:
        """Do *work*, which erases *parts* of a thread, while it is idle, and drop the rest. False: it is not."""

        async def erase_all() -> None:
            await self.registry.log_written(thread)  # or a line that is late would bring something back
            await work()
            own = [turns.forget for one in self.running for turns in one.turns.values()]
            for drop in (*self.on_erase, *(own if "conversation" in parts else ())):
                await drop(thread)

        return await self.registry.between_turns(thread, erase_all)

    def _chosen(self, choice: _Choice, tools: Sequence[Tool]) -> list[Tool]:
        return [
            ObservedTool(tool, self.observing)
            for tool in tools
            if choice.has(tool.name, self.groups[tool.name])
        ]

    async def spill(self, workspace: Path, name: str, text: str, *, outside: bool) -> str:
        """Save a long text in the workspace, and return its path there. Raises `StoreUnavailable`."""
        try:
            return await self.writer.save_output(workspace, name, text.encode(), outside=outside)
        except ToolError as error:
            raise StoreUnavailable(f"tool output: {error}") from error

    @property
    def troubles(self) -> list[str]:
        """Return a sentence for each tool that cannot work here."""
        theirs = (one.troubles() for one in self.running)
        return [*filter(None, [*self.off.values(), *theirs])]


@asynccontextmanager
async def open_tool_set(
    settings: Settings,
    environ: Mapping[str, str],
    resources: Resources,
    storage: Storage,
    transports: Sequence[Transport],
    is_admin: Callable[[str], bool],
    post: Callable[[Outgoing], Awaitable[str]],
) -> AsyncIterator[ToolSet]:
    """Yield the tools that the settings enable for anybody.

    *post* posts notices.

    Raises `threads.errors.NewerSchema` and OSError for files in the data folder.
    """
    enabled, work, mask = enabled_anywhere(settings), resources.work, resources.mask
    quota = Quota(settings.limits.workspace_mb * 1_000_000, settings.limits.workspace_files)
    writer = Writer(resources.disk, work, quota)
    audit = Audit(storage.append_audit, resources.now, resources.on_audit, storage.worker)
    read_by = [PlainDocuments, *filter(None, (one.documents for one in extensions_of(settings)))]
    tool_set = ToolSet(
        read_by[-1](work), audit, writer, mask, resources.observing, storage.on_erase, enabled=enabled
    )
    egress = Egress(settings.tools.private_hosts)
    fetch = WebFetch(HttpClient(egress, work, agent=settings.name), tool_set.documents)
    tool_set.schedules = await _open_schedules(settings, resources, storage.states)
    host = Host(
        settings,
        environ,
        enabled,
        disk=resources.disk,
        offload=resources.offload,
        work=work,
        now=resources.now,
        mask=mask,
        learn=partial(_learn, mask),
        states=storage.states,
        workspace=storage.store.workspace,
        documents=tool_set.documents,
        writer=writer,
        egress=egress,
        web_fetch=fetch if "web_fetch" in enabled else None,
        post=post,
        transports=transports,
        offer=tool_set.offer,
        is_admin=is_admin,
        schedules=tool_set.schedules,
        ledger=storage.ledger,
        keep_workspace=storage.store.keep_workspace,
        note=audit.note,
        agents=lambda: tool_set.agents,
        erase=tool_set.erase,
    )
    async with _open_extensions(tool_set, host):
        if "memory" in enabled:
            tool_set.memory = Memory(storage.memory, now=resources.now, is_admin=is_admin)
            tool_set.add("memory", Remember(tool_set.memory, mask), Recall(tool_set.memory))
        if host.web_fetch:
            tool_set.add("web_fetch", host.web_fetch)
        await _open_questions(tool_set, host)
        yield tool_set


async def _open_questions(tool_set: ToolSet, host: Host) -> None:
    """Open what people are asked: whether a tool may run, and what a tool wants to know."""
    given = host.settings.tools
    tool_set.approvals = Approvals(
        policy_of(given),
        await host.states.open("approvals", ApprovalsFile()),
        offload=host.offload,
        now=host.now,
        is_admin=host.is_admin,
        note=host.note,
        mask=host.mask,
        expires_s=given.approval_expires_s,
        reviews=[one.review for one in tool_set.running if one.review],
    )
    tool_set.questions = DurableQuestions(
        await host.states.open("questions", QuestionsFile()),
        now=host.now,
        is_admin=host.is_admin,
        note=host.note,
        mask=host.mask,
        expires_s=given.approval_expires_s,
    )
    if "ask_person" in host.enabled:
        tool_set.add("ask_person", AskPerson(tool_set.questions))


@asynccontextmanager
async def _open_extensions(tool_set: ToolSet, host: Host) -> AsyncIterator[None]:
    """Keep open what the settings ask for, each extension in a task of its own: none takes another one down."""
    for name, why in installed_for(host.settings).failed.items():
        log.error("extension.not_loaded: %s: %s", name, why)
        tool_set.off[name] = f"The extension {name} is off: it cannot be loaded."
    closing = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for extension in extensions_of(host.settings):
            if extension.open:
                opening = extension.open(host)
                await tasks.start(_serve_extension, tool_set, extension.name, opening, host, closing)
        yield
        closing.set()


async def _serve_extension(
    tool_set: ToolSet,
    name: str,
    opening: AbstractAsyncContextManager[Running | None],
    host: Host,
    closing: anyio.Event,
    *,
    task_status: TaskStatus[None],
) -> None:
    is_open = False
    try:
        async with opening as running:
            if running:
                tool_set.running.append(running)
                tool_set.off |= running.off
                tool_set.facts |= running.facts
                for group, tools in running.tools.items():
                    tool_set.add(group, *tools)
            is_open = True
            task_status.started()
            await closing.wait()
    except (ConfigInvalid, NewerSchema):
        raise  # a person has to act
    except Exception as error:  # a fault of one extension leaves the others
        is_ours = isinstance(error, OSError) and host.settings.data in Path(str(error.filename)).parents
        if is_ours and not is_open:
            raise  # one of our files that cannot be read: to go on would be to forget what it says
        log.exception("extension.failed: %s", name)
        how = "it has failed" if is_open else "it could not be opened"
        tool_set.off[name] = f"The extension {name} is off: {how}."
        if not is_open:
            task_status.started()


def _learn(mask: Masker, secrets: Collection[str]) -> None:
    mask.learn(secrets)
    mask_in_logs(secrets)


async def _open_schedules(settings: Settings, resources: Resources, states: States) -> Schedules:
    from bot.schedules.store import ScheduleLimits, Schedules, SchedulesFile  # noqa: PLC0415 - slow to import

    given = settings.schedule
    bounds = ScheduleLimits(given.max_per_thread, given.max_per_user)
    schedules = Schedules(await states.open("schedules", SchedulesFile()), resources.now, bounds)
    await resources.offload(schedules.read_zones)
    return schedules
