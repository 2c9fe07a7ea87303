"""Builds the tools of a bot from the settings, with the approvals that guard them.

This is wiring, as `bot.wiring.model_chain` is for models: only this module knows all tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from bot.agent.prompt.memory import Memory
from bot.agent.prompt.skills import Skills
from bot.config.settings import Settings
from bot.config.tool_profiles import policy_of
from bot.documents.reader import Documents
from bot.guards.egress import Egress
from bot.observe.audit import Audit
from bot.observe.logs import mask_in_logs
from bot.ports.errors import ToolError
from bot.ports.tool import Tool, ToolContext
from bot.routing.access import is_admin
from bot.routing.commands import parse
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.tools.files.attach import Attach
from bot.tools.files.edit import EditFile
from bot.tools.files.quota import Quota
from bot.tools.files.read import ListFiles, ReadFile
from bot.tools.files.search import SearchFiles
from bot.tools.files.write import WriteFile, Writer
from bot.tools.gate import Toolbox
from bot.tools.memory import Recall, Remember
from bot.tools.skills import LoadSkill
from bot.tools.web.http_client import HttpClient
from bot.tools.web.tool import WebFetch
from bot.wiring.instrumentation import ObservedPermits, ObservedTool
from bot.wiring.store import Resources, Storage
from threads.errors import StoreUnavailable
from threads.store.json_file import States

if TYPE_CHECKING:
    from bot.schedules.store import Schedules
    from bot.tools.mcp.commands import McpCommands

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ToolSet:
    """The tools, and the parts of them that the rest of the bot uses."""

    documents: Documents
    audit: Audit
    writer: Writer
    tools: list[Tool] = field(default_factory=list)
    off: dict[str, str] = field(default_factory=dict)
    memory: Memory | None = None
    schedules: Schedules | None = None
    skills: Skills | None = None
    mcp: McpCommands | None = None
    sandbox: str = "off"
    status: list[Callable[[], str]] = field(default_factory=list)
    approvals: Approvals = field(init=False)
    toolbox: Toolbox = field(init=False)

    async def spill(self, workspace: Path, name: str, text: str, *, outside: bool) -> str:
        """Save a long text in the workspace, and return its path there. Raises `StoreUnavailable`."""
        try:
            return await self.writer.save_output(workspace, name, text.encode(), outside=outside)
        except ToolError as error:
            raise StoreUnavailable(f"tool output: {error}") from error

    @property
    def troubles(self) -> list[str]:
        """Return a sentence for each tool that cannot work here."""
        return [*filter(None, [*self.off.values(), *(status() for status in self.status)])]


@asynccontextmanager
async def open_tool_set(
    settings: Settings, environ: Mapping[str, str], resources: Resources, storage: Storage, *, attach: bool
) -> AsyncIterator[ToolSet]:
    """Yield the tools that the settings enable. *attach*: a transport takes files.

    Raises `threads.errors.NewerSchema` and OSError for files in the data folder.
    """
    enabled, work = set(settings.tools.enabled), resources.work
    quota = Quota(settings.limits.workspace_mb * 1_000_000, settings.limits.workspace_files)
    writer = Writer(resources.disk, work, quota)
    audit = Audit(storage.append_audit, resources.now, resources.on_audit)
    tool_set = ToolSet(Documents(work), audit, writer)
    async with _servers(tool_set, settings, environ, resources, storage), anyio.create_task_group() as tasks:
        if "files" in enabled:
            tool_set.tools += [ReadFile(work), ListFiles(work), SearchFiles(work)]
            tool_set.tools += [
                WriteFile(writer),
                EditFile(writer),
                *([Attach(work, resources.mask)] if attach else []),
            ]
        if "shell" in enabled:
            await _shell(tool_set, settings, resources)
        if "memory" in enabled:
            admin = partial(is_admin, settings.access)
            tool_set.memory = Memory(storage.memory, now=resources.now, is_admin=admin)
            tool_set.tools += [Remember(tool_set.memory, resources.mask), Recall(tool_set.memory)]
        if "skills" in enabled:
            await _skills(tool_set, settings, resources)
        if "schedule" in enabled:
            await _schedule(tool_set, settings, resources, storage.states)
        await _web(tool_set, settings, resources, tasks)
        tool_set.approvals = await _approvals(tool_set, settings, resources, storage.states)
        tool_set.toolbox = Toolbox(
            [ObservedTool(tool, resources.observing) for tool in tool_set.tools],
            timeout_s={name: ms / 1000 for name, ms in settings.tools.per_tool.items()},
            default_timeout_s=settings.tools.default_timeout_ms / 1000,
            permits=ObservedPermits(tool_set.approvals, resources.observing),
            mask=resources.mask,
            off=tool_set.off,
        )
        yield tool_set
        tasks.cancel_scope.cancel()


async def _approvals(
    tool_set: ToolSet, settings: Settings, resources: Resources, states: States
) -> Approvals:
    given = settings.tools
    return Approvals(
        policy_of(given),
        await states.open("approvals", ApprovalsFile()),
        offload=resources.offload,
        now=resources.now,
        is_admin=partial(is_admin, settings.access),
        note=tool_set.audit.note,
        mask=resources.mask,
        expires_s=given.approval_expires_s,
    )


async def _shell(tool_set: ToolSet, settings: Settings, resources: Resources) -> None:
    from bot.tools.sandbox import open_sandbox  # noqa: PLC0415 - only where commands are wanted
    from bot.tools.shell import Shell  # noqa: PLC0415

    folder = settings.data / "threads"
    await resources.offload(resources.disk.mkdir, folder)
    sandbox = await open_sandbox(
        settings.tools.sandbox, folder, offload=resources.work, quota=tool_set.writer.quota
    )
    tool_set.tools.append(Shell(sandbox, resources.work))
    tool_set.sandbox = sandbox.layer
    if sandbox.layer == "off":
        tool_set.off["shell"] = f"The shell is off: {sandbox.why}."
        log.warning("tool.unavailable: %s", tool_set.off["shell"])


async def _skills(tool_set: ToolSet, settings: Settings, resources: Resources) -> None:
    tool_set.skills = skills = Skills(settings.data / "skills", settings.skills)
    await resources.offload(skills.scan)
    # Even without skills: one may be added later.
    tool_set.tools.append(LoadSkill(skills, resources.work, partial(_loaded, tool_set.audit)))
    tool_set.status.append(lambda: "; ".join(skills.problems))


async def _loaded(audit: Audit, context: ToolContext, name: str, digest: str) -> None:
    try:
        details = {"skill": name, "sha256": digest}
        await audit.note("skill", context.thread, context.message_id, context.asker.id, details)
    except StoreUnavailable as error:
        log.error("audit.lost: %s", error)  # noqa: TRY400 - the disk says why


async def _schedule(tool_set: ToolSet, settings: Settings, resources: Resources, states: States) -> None:
    from bot.schedules.store import ScheduleLimits, Schedules, SchedulesFile  # noqa: PLC0415 - off by default
    from bot.tools.schedule import CancelSchedule, ListSchedules, SetSchedule  # noqa: PLC0415

    given = settings.schedule
    bounds = ScheduleLimits(given.max_per_thread, given.max_per_user)
    state = await states.open("schedules", SchedulesFile())
    tool_set.schedules = Schedules(state, resources.now, bounds)
    await resources.offload(tool_set.schedules.read_zones)
    tool_set.tools += [
        SetSchedule(
            tool_set.schedules,
            resources.offload,
            lambda text: parse(text) is not None,
            given.min_interval_minutes,
        ),
        ListSchedules(tool_set.schedules),
        CancelSchedule(tool_set.schedules),
    ]


async def _web(tool_set: ToolSet, settings: Settings, resources: Resources, tasks: TaskGroup) -> None:
    enabled, degradation = set(settings.tools.enabled), settings.degradation
    egress = Egress(settings.tools.private_hosts)
    fetch = WebFetch(HttpClient(egress, resources.work, agent=settings.name), tool_set.documents)
    if "web_fetch" in enabled:
        tool_set.tools.append(fetch)
    if "browser" not in enabled:
        return
    from bot.tools.browser.launch import launch_chromium, unavailable  # noqa: PLC0415 - an extra
    from bot.tools.browser.session import SharedBrowser  # noqa: PLC0415
    from bot.tools.browser.tool import Browser  # noqa: PLC0415

    missing = await resources.offload(unavailable)
    pages = SharedBrowser(egress, partial(launch_chromium, resources.work))
    tasks.start_soon(pages.run)
    tool_set.tools.append(
        Browser(
            pages,
            egress,
            tool_set.writer,
            fetch if "web_fetch" in enabled else None,
            missing,
            disable_browser=degradation.disable_browser_on_error,
            disable_screenshots=degradation.disable_screenshots_on_error,
        )
    )
    if missing:
        log.warning("tool.unavailable: %s", missing)
        tool_set.status.append(lambda: missing)


@asynccontextmanager
async def _servers(
    tool_set: ToolSet, settings: Settings, environ: Mapping[str, str], resources: Resources, storage: Storage
) -> AsyncIterator[None]:
    if not settings.mcp_servers:
        yield
        return
    from bot.tools.mcp.commands import McpCommands  # noqa: PLC0415 - only where there are any
    from bot.tools.mcp.references import References  # noqa: PLC0415
    from bot.tools.mcp.servers import open_servers  # noqa: PLC0415

    def learn(secrets: Collection[str]) -> None:
        resources.mask.learn(secrets)
        mask_in_logs(secrets)

    save = partial(tool_set.writer.save_output, outside=True)
    async with open_servers(
        settings.mcp_servers,
        environ,
        settings.data,
        disk=resources.disk,
        offload=resources.offload,
        mask=resources.mask,
        save=save,
        states=storage.states,
        learn=learn,
        private_hosts=settings.tools.private_hosts,
    ) as servers:
        references = References(servers, tool_set.documents, save, storage.store.workspace)
        tool_set.mcp = McpCommands(settings.mcp_servers, servers, references)
        tool_set.tools += servers.tools
        tool_set.status.append(servers.trouble)
        servers.on_tools = lambda tools: tool_set.toolbox.add(
            [ObservedTool(tool, resources.observing) for tool in tools]
        )
        yield
