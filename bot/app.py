"""The composition root: where settings become objects and objects meet. Only here are transports known."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from bot.agent import Agent
from bot.errors import report
from bot.guards.access import allowed
from bot.llm.build import build_model
from bot.llm.http import SharedHttp
from bot.orchestrator import Orchestrator
from bot.prompt.system import system_prompt
from bot.settings_model import Settings
from bot.tools.base import Tool, Toolbox
from bot.tools.files import ListFiles, ReadFile
from threads.context import ContextFile
from threads.delivery import Delivery
from threads.disk import Disk, Offload, PosixDisk
from threads.journal import Journal
from threads.log import Log
from threads.model import Incoming, Limits, ThreadId
from threads.records import Owed
from threads.registry import Registry
from threads.slots import Slots
from threads.turn import Shared
from threads.workspace import sole_owner, thread_folder
from transports.base import Transport
from transports.outbox import Outbox

log = logging.getLogger(__name__)

MakeAgent = Callable[[Callable[[ThreadId], Path]], Agent]


@dataclass(frozen=True, slots=True)
class Core:
    """A running bot without its transports' links."""

    orchestrator: Orchestrator
    registry: Registry
    journal: Journal


async def open_core(
    tasks: TaskGroup,
    data: Path,
    *,
    agent: MakeAgent,
    transports: Sequence[Transport],
    limits: Limits,
    disk: Disk,
    offload: Offload,
    now: Callable[[], datetime],
    allowed: Callable[[Incoming], bool] = lambda _: True,
    max_age_s: float = 600,
    resume: bool = True,
) -> Core:
    """Read what is owed, start what serves it in *tasks*, and return the bot, ready to receive.

    Raises OSError when the data folder cannot be used, `threads.errors.NewerSchema` when a newer version wrote it.
    """
    threads = [data / "threads", *(data / "threads" / transport.name for transport in transports)]
    for parent in (*reversed(data.parents), data, *threads):
        await offload(disk.mkdir, parent)
    journal = Journal(disk, data / "journal.jsonl", offload=offload, now=now)
    if damaged := await offload(journal.open):
        log.warning("journal: %d damaged lines put aside in journal.jsonl.broken", damaged)
    folder = partial(thread_folder, data)
    outboxes = {transport.name: Outbox(transport) for transport in transports}
    history = Log(disk, offload=offload)
    delivery = Delivery(journal, history, outlet=outboxes.__getitem__, folder=folder, now=now)
    brain = agent(lambda thread: folder(thread) / "workspace")
    shared = Shared(
        journal=journal,
        delivery=delivery,
        slots=Slots(limits.running_turns, limits.running_turns_per_user),
        limits=limits,
        run=brain.run,
        context=lambda thread: ContextFile(disk, folder(thread), offload),
        on_error=partial(_record, now),
    )
    registry = Registry(tasks, shared)
    orchestrator = Orchestrator(
        tasks, journal=journal, registry=registry, delivery=delivery, allowed=allowed, model=brain.model.name
    )
    tasks.start_soon(journal.run, orchestrator.route)
    tasks.start_soon(history.run)
    tasks.start_soon(delivery.mend_history)
    orchestrator.recover(now(), max_age_s=max_age_s, resume=resume)
    return Core(orchestrator, registry, journal)


async def serve(
    settings: Settings, environ: Mapping[str, str], *, model: str, transports: Sequence[Transport]
) -> None:
    """Run the bot until its transports end. Raises `ConfigInvalid`, `FolderTaken`, `NewerSchema` or OSError."""
    data = settings.data  # absolute
    http = SharedHttp()
    llm = build_model(model, settings, environ, http=http, random=random.random, now=utc_now)
    offload = anyio.to_thread.run_sync
    timeouts_s = {name: ms / 1000 for name, ms in settings.tools.per_tool.items()}
    tools: list[Tool] = [ReadFile(offload), ListFiles(offload)] if "files" in settings.tools.enabled else []
    toolbox = Toolbox(tools, timeout_s=timeouts_s, default_timeout_s=settings.tools.default_timeout_ms / 1000)
    with sole_owner(data):
        system = system_prompt(settings.name, _text(data / "IDENTITY.md"), _text(data / "MEMORY.md"))
        async with anyio.create_task_group() as tasks:
            core = await open_core(
                tasks,
                data,
                agent=partial(
                    Agent,
                    llm,
                    toolbox,
                    system,
                    max_steps=settings.limits.max_steps,
                    max_tokens=settings.max_tokens,
                ),
                transports=transports,
                limits=limits_of(settings),
                disk=PosixDisk(),
                offload=offload,
                now=utc_now,
                allowed=partial(allowed, settings.access),
                max_age_s=settings.recovery.max_age_s,
                resume=settings.recovery.resume,
            )
            async with anyio.create_task_group() as edges:
                for transport in transports:
                    edges.start_soon(transport.serve, core.orchestrator.receive)
            tasks.cancel_scope.cancel()
    await http.aclose()


def limits_of(settings: Settings) -> Limits:
    given = settings.limits
    return Limits(
        mailbox=given.mailbox,
        running_turns=given.max_running_turns,
        running_turns_per_user=given.max_running_turns_per_user,
        turn_timeout_s=given.turn_timeout_s,
        idle_timeout_s=given.idle_timeout_s,
        busy=settings.busy,
    )


def utc_now() -> datetime:
    return datetime.now(UTC)


def _text(path: Path) -> str:
    """Return a file of the admin's; a missing one is silently empty."""
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _record(now: Callable[[], datetime], error: Exception, owed: Owed, reference: str) -> None:
    received = owed.received
    ids = {"thread_id": received.thread_id, "message_id": received.message_id}
    described = report(error, reference, now(), **ids)
    log.error(
        "turn failed: %s",
        described.message,
        exc_info=error,
        extra={**ids, "correlation_id": reference, "report": described.model_dump()},
    )
