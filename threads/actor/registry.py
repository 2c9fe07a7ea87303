"""The actors of all threads: started on demand, supervised one for one, removed when idle.

An actor that cannot write waits and tries again as long as the disk refuses. An actor that crashes is started again
with its mailbox. A message that crashes it repeatedly becomes a dead letter, and the thread goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from threads.delivery import retry_pauses, retry_until_stored
from threads.errors import Fenced, NewerSchema, StoreUnavailable, retry_fields
from threads.journal.records import PendingMessage
from threads.model import Deleted, Message, StopRequest, ThreadId, Waiting, message_key
from threads.wording import SAVING_FAILS

from .actor import Actor
from .turn import ActorParts

LOG_WITHIN_S = 10.0
"""Seconds that outcomes may take to reach their thread's history before it is erased."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failures:
    """How often an actor crashed over one message. ``pauses`` yields the next attempt's number and its pause."""

    message: PendingMessage | None = None
    crashes: int = 0
    pauses: Iterator[tuple[int, float]] = field(default_factory=lambda: enumerate(retry_pauses(), 2))


class Registry:
    def __init__(self, tasks: TaskGroup, shared: ActorParts) -> None:
        self._tasks, self._shared = tasks, shared
        self.actors: dict[ThreadId, Actor] = {}

    def __len__(self) -> int:
        return len(self.actors)

    def tell(self, pending: PendingMessage) -> None:
        """Put the message into its thread's mailbox, and start the actor if needed. Raises `MailboxFull`."""
        thread = pending.incoming.thread
        if (actor := self.actors.get(thread)) is None:
            actor = self.actors[thread] = Actor(thread, self._shared)
            self._tasks.start_soon(self._supervise, thread, actor, name=f"actor {thread}")
        actor.mailbox.put(pending)
        self._shared.delivery.show(pending, pending.taken())

    async def withdraw(self, deleted: Deleted) -> None:
        """Settle a message as withdrawn, unless its answer is on its way. Ends its turn.

        Raises `StoreUnavailable`, or `Fenced` if another process took the thread over meanwhile.
        """
        key = message_key(deleted.thread, deleted.id)
        await self._shared.store.journal.knows(key)
        if actor := self.actors.get(deleted.thread):
            await actor.withdraw(key)
        await anyio.lowlevel.checkpoint()  # at a stop the actor ends, and its message waits

    async def stop(self, by: PendingMessage) -> tuple[int, int]:
        """Stop the thread, or the whole channel, of *by* in every process.

        Returns how many turns ran and how many messages waited.
        """
        request = StopRequest(by.received.message_id, by.incoming.thread, by.received.seq)
        elsewhere = partial(retry_until_stored, partial(self._shared.store.journal.stop_elsewhere, request))
        try:
            return await _add_up(partial(self.stop_here, request), elsewhere)
        except Fenced:  # another process took a thread over meanwhile, and has to stop it
            return await elsewhere()

    async def status_everywhere(self, place: ThreadId) -> tuple[int, int]:
        """Return how many turns run and messages wait in the thread or channel, in all processes.

        Raises `StoreUnavailable`.
        """
        running, waiting = await self._shared.store.journal.pending_elsewhere(place)
        here, queued = self.status(place)
        return running + here, waiting + queued

    async def stop_here(self, request: StopRequest) -> tuple[int, int]:
        """Stop the threads of this process. Raises `Fenced` if another process took one over meanwhile."""
        return await _add_up(*(partial(actor.stop, request) for actor in self._at(request.thread)))

    def release(self, thread: ThreadId) -> None:
        """Cancel the thread's actor, because another worker serves the thread now. Messages get no outcome here."""
        if actor := self.actors.get(thread):
            actor.release()

    def serves(self, thread: ThreadId) -> bool:
        """Return whether the thread has an actor in memory."""
        return thread in self.actors

    def recovering(self, thread: ThreadId) -> bool:
        """Return whether messages that an earlier process left in the thread are being served, or wait."""
        if (actor := self.actors.get(thread)) is None:
            return False
        return actor.current.recovered if actor.current else len(actor.mailbox) > 0

    async def forget(self, thread: ThreadId) -> bool:
        """Archive the thread's conversation. Returns False if a turn is running or messages wait."""
        return await self.between_turns(thread, self._shared.store.context(thread).archive)

    async def between_turns(self, thread: ThreadId, work: Callable[[], Awaitable[None]]) -> bool:
        """Do *work* on what is stored of a thread. Returns False if a turn is running or messages wait."""
        if any(self.status(thread)):
            return False
        if actor := self.actors.get(thread):
            return await actor.between_turns(work)
        actor = self.actors[thread] = Actor(thread, self._shared)  # a message that comes now waits in it
        try:
            return await actor.between_turns(work)
        finally:
            self._tasks.start_soon(self._supervise, thread, actor, name=f"actor {thread}")

    async def log_written(self, thread: ThreadId) -> None:
        """Return once the thread's history has all outcomes. Raises TimeoutError if the disk refuses it."""
        written = anyio.Event()
        self._shared.store.history.put(thread, [], written.set)
        with anyio.fail_after(LOG_WITHIN_S):
            await written.wait()

    async def conversation(self, thread: ThreadId) -> Sequence[Message]:
        """Return the conversation as the model sees it. Empty if a newer version wrote it.

        Raises `StoreUnavailable`.
        """
        actor = self.actors.get(thread)
        if actor and actor.conversation is not None:
            return actor.conversation
        try:
            return (await self._shared.store.context(thread).load()).messages
        except NewerSchema:
            return ()

    def status(self, thread: ThreadId) -> tuple[bool, int]:
        """Return whether a turn runs in the thread or channel, and how many messages wait."""
        actors = self._at(thread)
        return any(actor.current is not None for actor in actors), sum(len(actor.mailbox) for actor in actors)

    @property
    def waiting(self) -> int:
        """How many messages wait in all mailboxes."""
        return sum(len(actor.mailbox) for actor in self.actors.values())

    @property
    def settling(self) -> int:
        """How many actors have ended a turn and are posting its outcome."""
        return sum(actor.settling for actor in self.actors.values())

    def _at(self, place: ThreadId) -> list[Actor]:
        return [actor for thread, actor in self.actors.items() if thread.within(place)]

    async def _supervise(self, thread: ThreadId, actor: Actor) -> None:
        failures = _Failures()
        try:
            with actor.life:
                while not actor.life.cancel_called and (actor.current is not None or len(actor.mailbox)):
                    try:
                        await actor.serve()
                    except Exception as error:  # noqa: BLE001 - the boundary of an actor: other threads never notice
                        failures = await self._restart(thread, actor, error, failures)
        finally:
            del self.actors[thread]
        if actor.life.cancel_called:
            self._lost(thread, actor)

    async def _restart(
        self, thread: ThreadId, actor: Actor, failed: Exception, failures: _Failures
    ) -> _Failures:
        """Pause before the actor goes on. After too many crashes over one message, make that a dead letter."""
        if isinstance(failed, Fenced):
            if not actor.life.cancel_called:  # otherwise its mailbox has new messages
                actor.release()
            return failures
        if actor.current is not failures.message:
            failures = _Failures(actor.current)
        failures.crashes += not isinstance(failed, StoreUnavailable)
        actor.crashed(failures.crashes)
        await self._pause(thread, actor, failed, *next(failures.pauses))
        return failures

    def _lost(self, thread: ThreadId, actor: Actor) -> None:
        log.warning("actor.fenced: another worker took the thread", extra={"thread_id": str(thread)})
        for pending in actor.mailbox.drain():  # the thread came back meanwhile
            self.tell(pending)

    async def _pause(
        self, thread: ThreadId, actor: Actor, failed: Exception, attempt: int, seconds: float
    ) -> None:
        pending, ids = actor.current, {"thread_id": str(thread)}
        if pending is not None:
            ids |= {"message_id": pending.received.message_id, "correlation_id": pending.reference}
        fields = {**ids, **retry_fields(failed, attempt, seconds)}
        if isinstance(failed, StoreUnavailable):
            log.warning("actor.waits: for the disk: %s", failed, extra=fields)
        else:
            log.error("actor.crashed: see the traceback", exc_info=failed, extra=fields)
        if pending is not None:
            self._shared.delivery.show(pending, Waiting(SAVING_FAILS, seconds))
        await anyio.sleep(seconds)


async def _add_up(*stops: Callable[[], Awaitable[tuple[int, int]]]) -> tuple[int, int]:
    """Run all stops at once, and return the sums of their results. Raises `Fenced` at the end if one did."""
    stopped: list[tuple[int, int]] = []
    fenced: list[Fenced] = []

    async def one(stop: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        try:
            stopped.append(await stop())
        except Fenced as error:
            fenced.append(error)

    async with anyio.create_task_group() as tasks:
        for stop in stops:
            tasks.start_soon(one, stop)
    if fenced:
        raise fenced[0]
    return sum(running for running, _ in stopped), sum(waiting for _, waiting in stopped)
