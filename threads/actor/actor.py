"""One thread's conversation, served one message at a time.

The actor is the failure boundary of a turn: whatever a turn raises ends that turn, is explained in the thread, and
leaves the next message to be served. Only what the actor itself cannot survive (a journal that cannot be written, a
bug) leaves `serve`; then the registry starts it again, and the message at hand is served first.
"""

from __future__ import annotations

import logging
from functools import partial

import anyio
import anyio.lowlevel

from threads import wording
from threads.delivery import Ending, retry_until_stored
from threads.errors import Fenced, StoreUnavailable, TurnTimeout
from threads.journal.records import Intent, PendingMessage
from threads.model import Message, StopRequest, ThreadId, TurnEvent, TurnStarted
from threads.scheduled_messages import headings

from .conversation import Conversation
from .mailbox import Mailbox
from .turn import ActorParts, ActorTurn, correlation_id

log = logging.getLogger(__name__)

STOP_WITHIN_S = 2.0
"""A stop is confirmed after this long, even if the turn it ended is still cleaning up."""


class Actor:
    def __init__(self, thread: ThreadId, shared: ActorParts) -> None:
        self.mailbox = Mailbox(shared.limits.mailbox)
        self.current: PendingMessage | None = None
        self._thread, self._shared = thread, shared
        self._conversation = Conversation(shared.store.context(thread))
        self._conversing = anyio.Lock(fast_acquire=True)
        self._ending: Ending | None = None
        self.life = anyio.CancelScope()
        self._scope: anyio.CancelScope | None = None
        self._stopped_by = ""
        self._turn_over = anyio.Event()

    @property
    def settling(self) -> bool:
        """Whether the turn of the message at hand has ended, and the message has not."""
        return self.current is not None and self._scope is None

    @property
    def conversation(self) -> list[Message] | None:
        """What the model sees of the thread; None when it was not read yet."""
        return self._conversation.messages if self._conversation.loaded else None

    async def serve(self) -> None:
        """Serve messages until the thread falls silent; after a crash, the one at hand first."""
        while True:
            if self.current is None:
                if not self._conversation.saved:
                    await self._catch_up()
                if await self.mailbox.wait(self._shared.limits.idle_timeout_s):
                    self.current = self.mailbox.take()
                elif self._conversation.saved:
                    return
            if self.current is not None:
                await self._serve_one(self.current)
                self.current = None

    def lose(self) -> None:
        """Forget what is at hand and what waits, because another worker serves the thread."""
        self.mailbox, self.current = Mailbox(self._shared.limits.mailbox), None
        self.life.cancel()

    async def stop(self, request: StopRequest) -> tuple[int, int]:
        """End the turn and drop what waits of before the *request*; return how many of each. Takes at most 2 s."""
        running = self.current is not None and self.current.received.seq < request.seq
        if running and self._scope is not None:
            self._stopped_by = request.id
            self._scope.cancel()
            with anyio.move_on_after(STOP_WITHIN_S):
                await self._turn_over.wait()
        dropped = self.mailbox.withdraw(lambda pending: pending.received.seq < request.seq)
        await retry_until_stored(lambda: self._shared.delivery.cover(dropped, "stopped", request.id))
        return int(running), len(dropped)

    async def forget(self) -> None:
        """Put the conversation aside and start an empty one. Only between turns."""
        async with self._conversing:
            await self._conversation.forget()

    def crashed(self, times: int) -> None:
        """After that many crashes over the message at hand, end it as a dead letter."""
        if self.current is not None and times >= self._shared.limits.attempts:
            self._ending = self._dead_letter(self.current, times)

    async def _serve_one(self, pending: PendingMessage) -> None:
        if pending.intent is not None:
            await self._complete(pending, pending.intent)
            await self._shared.delivery.resume(pending)
        else:
            # Kept until it is settled: a disk that refuses must not make the turn run, and be paid, again.
            self._ending = self._ending or await self._attempt(pending)
            answered = self._ending.outcome == "answered"
            save = partial(self._last_checkpoint, pending) if answered else None
            await self._shared.delivery.settle(pending, self._ending, save=save)
        self._ending = None

    async def _attempt(self, pending: PendingMessage) -> Ending:
        """Run the turn and return how it ended. Raises `StoreUnavailable` when its start is not on the disk."""
        attempt = pending.attempts + 1
        if attempt > self._shared.limits.attempts:
            return self._dead_letter(pending, pending.attempts)
        turn = ActorTurn(pending, self._conversation, self.mailbox, self._shared)
        turn.attempt, turn.correlation_id = attempt, correlation_id(pending.incoming.key, attempt)
        turn.notes += headings(pending.incoming)
        self._turn_over = anyio.Event()
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                async with self._conversing:
                    return await self._take_turn(pending, turn)
            except Exception as error:  # the boundary of a turn
                if turn.started is None or isinstance(error, Fenced):
                    raise
                await turn.begun()
                return self._failed(pending, error, turn)
            finally:
                self._scope = None
                self._turn_over.set()
        return Ending("stopped", "", by=self._stopped_by)

    async def _take_turn(self, pending: PendingMessage, turn: ActorTurn) -> Ending:
        shared, attempt = self._shared, turn.attempt
        shared.delivery.show(pending, TurnStarted(pending.incoming.text, pending.incoming.author.id))
        try:
            await turn.begin()
            if not self._conversation.loaded and (damaged := await self._conversation.load()):
                turn.notes.append(self._damaged(damaged))
            # The conversation shows more than the journal: its records are lost, and its post may be out.
            written = [m.role for m in turn.messages if m.source == turn.incoming.id]
            pending.received.unsure |= bool(written) and (attempt == 1 or "assistant" in written)
            if attempt > 1:
                turn.notes.insert(0, wording.RESUMED)
            if attempt > 1 or written:
                await turn.checkpoint()  # what a killed process left may not be durable yet
            if attempt > 1 or pending.recovered or pending.received.unsure:
                await turn.recognise()
            turn.clock.deadline = anyio.current_time() + shared.limits.turn_timeout_s
            with turn.clock:
                text = await shared.run(turn)
                await anyio.lowlevel.checkpoint_if_cancelled()  # a stop that came last counts
                await shared.store.keep_workspace(pending.incoming.thread)
            if turn.clock.cancelled_caught:
                raise TurnTimeout  # noqa: TRY301 - one boundary for all that a turn can end with
        except BaseException:
            turn.keep_shown()
            raise
        finally:
            turn.release()
        return Ending("answered", "\n\n".join([*turn.notes, text]))

    async def _last_checkpoint(self, pending: PendingMessage) -> str:
        """Make the answer durable in the conversation; return what to say if the disk refuses."""
        if self._conversation.saved or await self._conversation.checkpoint(partial(self._tell, pending)):
            return ""
        return wording.NOT_SAVED

    async def _tell(self, pending: PendingMessage, event: TurnEvent) -> None:
        self._shared.delivery.show(pending, event)

    async def _complete(self, pending: PendingMessage, intent: Intent) -> None:
        """Put an answer into the conversation that a crash has kept out of it: only the journal held it by then."""
        done = pending.recovered and pending.started and intent.outcome == "answered"
        if not done or pending.incoming.control:
            return
        turn = ActorTurn(pending, self._conversation, self.mailbox, self._shared)
        turn.attempt, turn.correlation_id = pending.attempts, pending.reference
        turn.known_answer = intent.text
        try:
            if not self._conversation.loaded and (damaged := await self._conversation.load()):
                self._damaged(damaged)
            await self._shared.run(turn)
            if not await self._conversation.checkpoint(partial(self._tell, pending)):
                pending.say_above(wording.NOT_SAVED)
        except (StoreUnavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a turn: the answer itself is not at stake
            self._shared.on_error(error, pending, pending.reference)

    def _failed(self, pending: PendingMessage, error: Exception, turn: ActorTurn) -> Ending:
        reference = turn.correlation_id
        self._shared.on_error(error, pending, reference)
        text = "\n\n".join([*turn.notes, self._shared.explain(error, pending, reference)])
        return Ending("failed", text, "error", wording.code_of(error), ways=wording.ways_of(error))

    def _damaged(self, lines: int) -> str:
        """Return what to say about damaged lines that were put aside."""
        fields = {"thread_id": str(self._thread), "code": "context_corrupt"}
        log.warning("context.damaged: %d lines put aside", lines, extra=fields)
        return wording.HISTORY_DAMAGED if self._conversation.messages else wording.HISTORY_LOST

    async def _catch_up(self) -> None:
        """Save what the last turn could not, or left behind when it was cut."""
        try:
            await self._conversation.save()
        except StoreUnavailable as error:
            log.warning("context.not_saved: kept in memory: %s", error, extra={"code": error.code})

    def _dead_letter(self, pending: PendingMessage, attempts: int) -> Ending:
        reference = correlation_id(pending.incoming.key, attempts)
        return Ending("dead_letter", wording.dead_letter(attempts, reference), "error", "internal")
