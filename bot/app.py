"""The composition root: the one place where settings become objects and objects meet. Only here are transports known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from bot.agent import Agent
from bot.errors import report
from bot.orchestrator import Orchestrator
from threads.context import ContextFile
from threads.delivery import Delivery
from threads.disk import Disk, Offload
from threads.journal import Journal
from threads.log import Log
from threads.model import Incoming, Limits, ThreadId
from threads.records import Owed
from threads.registry import Registry
from threads.slots import Slots
from threads.turn import Shared
from threads.workspace import thread_folder
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
    await offload(disk.mkdir, data)
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
    orchestrator.recover(now(), max_age_s=max_age_s, resume=resume)
    return Core(orchestrator, registry, journal)


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
