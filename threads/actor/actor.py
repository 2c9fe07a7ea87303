"""The actor of one thread. It serves one message at a time.

The actor is the failure boundary of a turn: an exception ends the turn, is explained in the thread, and the next
message is served. Only failures of the actor itself leave `serve`, such as a journal that cannot be written. Then the
registry starts it again, and it serves the same message first.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cached_property, partial

import anyio
import anyio.lowlevel

from threads import wording
from threads.delivery import Ending, retry_until_stored
from threads.errors import Fenced, StoreUnavailable, TurnTimeout, error_fields
from threads.journal.records import Intent, PendingMessage
from threads.model import Message, StopRequest, ThreadId, TurnEvent, TurnStarted, places_of

from .conversation import Conversation
from .mailbox import Mailbox
from .turn import ActorParts, ActorTurn, correlation_id

log = logging.getLogger(__name__)

STOP_WITHIN_S = 2.0
"""Seconds after which a stop is confirmed, even if the turn is still cleaning up."""


class Actor:
    def __init__(self, thread: ThreadId, shared: ActorParts) -> None:
        self.mailbox = Mailbox(shared.limits.mailbox)
        self.current: PendingMessage | None = None
        self._thread, self._shared = thread, shared
        self._conversation = Conversation(shared.store.context(thread))
        self.life, self._conversing = anyio.CancelScope(), anyio.Lock(fast_acquire=True)
        self._ending: Ending | None = None
        self._turn: ActorTurn | None = None

    @property
    def settling(self) -> bool:
        """Whether the turn of the current message has ended and the message has no outcome yet."""
        return self.current is not None and self._turn is None

    @property
    def conversation(self) -> list[Message] | None:
        """The conversation as the model sees it, or None if it is not loaded."""
        return self._conversation.messages if self._conversation.loaded else None

    async def serve(self) -> None:
        """Serve messages until the thread is idle. After a crash, begin with the current one."""
        while True:
            if self.current is None:
                if not self._conversation.saved:
                    await self._save_conversation()
                self.current = await self.mailbox.take(self._shared.limits.idle_timeout_s)
                if self.current is None and self._conversation.saved:
                    return
            if self.current is not None:
                await self._serve_one(self.current)
                self.current = None

    def release(self) -> None:
        """Drop the current and the waiting messages, because another worker serves the thread now."""
        self.mailbox, self.current = Mailbox(self._shared.limits.mailbox), None
        self.life.cancel()

    async def stop(self, request: StopRequest) -> tuple[int, int]:
        """End the turn and drop messages that waited before *request*. Return how many of each. Takes at most 2 s."""
        running = self.current is not None and self.current.received.seq < request.seq
        if running and self._turn is not None:
            with anyio.move_on_after(STOP_WITHIN_S):
                await self._turn.stop(request.id)
        elif running and self.current is not None and self.current.intent is None:
            # Its outcome waits for the disk. One that is being written now still counts.
            self._ending = Ending("stopped", "", by=request.id)
        dropped = self.mailbox.withdraw(lambda pending: pending.received.seq < request.seq)
        await retry_until_stored(lambda: self._shared.delivery.cover(dropped, "stopped", request.id))
        return int(running), len(dropped)

    @cached_property
    def _withdrawing(self) -> anyio.Lock:
        """Held while a message is withdrawn: a duplicate of the event must not be acknowledged before the first."""
        return anyio.Lock()

    async def withdraw(self, key: str) -> None:
        """Settle the message with this key as withdrawn, if it waits or its turn runs, which then ends.

        A turn that other messages have joined goes on: it answers those too. Raises `StoreUnavailable`, also while
        the outcome of its turn waits for the disk, and `Fenced`.
        """
        await self.mailbox.settled(key)
        async with self._withdrawing:
            turn = self._give_back(key)
            with (
                self.mailbox.withdrawing(lambda pending: pending.incoming.key == key) as gone,
                anyio.CancelScope(shield=True),  # a write that has begun cannot be undone
            ):
                if turn:
                    with anyio.move_on_after(STOP_WITHIN_S):
                        await turn.done.wait()
                await self._shared.delivery.cover(gone, "withdrawn", "")
                if turn and turn.done.is_set() and turn.place < len(turn.messages):
                    before = self._conversation.before if turn.incoming.replaces else None
                    turn.replace_messages(before or turn.messages[: turn.place])
                    await self._save_conversation()
        if not gone and self.life.cancel_called:
            raise Fenced(thread_id=str(self._thread))

    def _give_back(self, key: str) -> ActorTurn | None:
        """Return the current message to the mailbox and end its turn, if it has this key and may be withdrawn."""
        waiting, turn = self.current, self._turn
        if waiting is None or waiting.incoming.key != key or waiting.intent is not None:
            return None
        if turn is None:
            raise StoreUnavailable("its outcome is being written")
        if turn.joined:
            return None
        self.current, turn.stopped_by = None, waiting.received.message_id
        self.mailbox.put_back([waiting])
        turn.scope.cancel()
        return turn

    async def between_turns(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do *work* on what is stored of the thread while no turn runs. Its conversation is read anew after it.

        Returns False if a turn has begun, maybe while other work was done.
        """
        async with self._conversing:
            if self.current is not None:
                return False
            await work()
            self._conversation.unload()
            return True

    def crashed(self, times: int) -> None:
        """Make the current message a dead letter if it has crashed the actor that many times."""
        if self.current is not None and times >= self._shared.limits.attempts:
            self._ending = self._dead_letter(self.current, times)

    async def _serve_one(self, pending: PendingMessage) -> None:
        if pending.intent is not None:
            await self._complete(pending, pending.intent)
            await self._shared.delivery.resume(pending)
        else:
            # Kept until the message is settled: a disk that refuses must not make the turn run and cost again.
            self._ending = self._ending or await self._attempt(pending)
            if self.current is not None:  # else it has gone back to the mailbox
                await self._shared.delivery.settle(pending, self._ending, save=self._last_checkpoint)
        self._ending = None

    async def _attempt(self, pending: PendingMessage) -> Ending:
        """Run the turn and return its ending. Raises `StoreUnavailable` if its start is not durable."""
        if pending.attempts >= self._shared.limits.attempts:
            return self._dead_letter(pending, pending.attempts)
        self._turn = turn = ActorTurn(pending, self._conversation, self.mailbox, self._shared)
        try:
            try:
                with turn.scope:
                    async with self._conversing:
                        return await self._take_turn(pending, turn)
            finally:
                self._turn = None
                turn.done.set()
            if turn.stopped_by:
                pending.shown = turn.shown
                return Ending("stopped", "", by=turn.stopped_by)
            raise TurnTimeout  # noqa: TRY301 - one boundary for every end of a turn
        except Exception as error:  # the boundary of a turn
            if turn.started is None or isinstance(error, Fenced):
                raise
            await turn.begun()
            return self._ending or self._failed(pending, error, turn)  # a stop may have come meanwhile

    async def _take_turn(self, pending: PendingMessage, turn: ActorTurn) -> Ending:
        shared, attempt, first = self._shared, turn.attempt, not pending.begun
        shared.delivery.show(pending, TurnStarted(pending.incoming.text, pending.incoming.author.id))
        try:
            await turn.begin()
            if not self._conversation.loaded and (damaged := await self._conversation.load()):
                turn.notes.append(self._damaged(damaged))
            # Another process wrote more than the journal has: records are lost, and it may have posted the answer.
            written = [turn.messages[n].role for n in places_of(turn.messages, turn.incoming.id)]
            pending.received.unsure |= first and bool(written) and (attempt == 1 or "assistant" in written)
            if attempt > 1:
                turn.notes.insert(0, wording.RESUMED)
            if attempt > 1 or written:
                await turn.checkpoint()  # what a killed process wrote may not be durable yet
            if attempt > 1 or pending.recovered or written:
                await turn.recognise()
            if not await self._conversation.go_back(pending):
                return Ending("refused", wording.NOT_HERE_ANY_MORE, "notice")
            turn.scope.deadline = anyio.current_time() + shared.limits.turn_s(turn.incoming)
            text = await shared.run(turn)
            await anyio.lowlevel.checkpoint_if_cancelled()  # a stop at the last moment counts
            await shared.store.keep_workspace(pending.incoming.thread)
        except BaseException:
            turn.add_interrupted_text()
            raise
        finally:
            turn.release()
        return Ending("answered", "\n\n".join([*turn.notes, text]))

    async def _last_checkpoint(self, pending: PendingMessage) -> str:
        """Make the conversation with the answer durable. Returns a note for the thread if the disk refuses."""
        if self._conversation.saved or await self._conversation.checkpoint(partial(self._tell, pending)):
            return ""
        return wording.NOT_SAVED

    async def _tell(self, pending: PendingMessage, event: TurnEvent) -> None:
        self._shared.delivery.show(pending, event)

    async def _complete(self, pending: PendingMessage, intent: Intent) -> None:
        """Add an answer to the conversation that a crash left in the journal only."""
        done = pending.recovered and pending.started and intent.outcome == "answered"
        if not done or pending.incoming.control:
            return
        turn = ActorTurn(pending, self._conversation, self.mailbox, self._shared)
        turn.attempt, turn.correlation_id = pending.attempts, pending.reference
        turn.known_answer = intent.text
        try:
            if not self._conversation.loaded and (damaged := await self._conversation.load()):
                self._damaged(damaged)
            await self._conversation.go_back(pending)
            await self._shared.run(turn)
            if not await self._conversation.checkpoint(partial(self._tell, pending)):
                pending.say_above(wording.NOT_SAVED)
        except (StoreUnavailable, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a turn: the answer itself is safe
            self._shared.on_error(error, pending, pending.reference)

    def _failed(self, pending: PendingMessage, error: Exception, turn: ActorTurn) -> Ending:
        reference = turn.correlation_id
        self._shared.on_error(error, pending, reference)
        text = "\n\n".join([*turn.notes, self._shared.explain(error, pending, reference)])
        return Ending("failed", text, "error", wording.code_of(error), ways=wording.ways_of(error))

    def _damaged(self, lines: int) -> str:
        """Return a note for the thread about damaged lines that were set aside."""
        fields = {"thread_id": str(self._thread), "code": "context_corrupt"}
        log.warning("context.damaged: %d lines put aside", lines, extra=fields)
        return wording.HISTORY_DAMAGED if self._conversation.messages else wording.HISTORY_LOST

    async def _save_conversation(self) -> None:
        """Save what the last turn could not save, or what an interrupted turn left."""
        try:
            async with self._conversing:  # else it could bring back what `between_turns` takes away
                await self._conversation.save()
        except StoreUnavailable as error:
            log.warning("context.not_saved: kept in memory: %s", error, extra=error_fields(error))

    def _dead_letter(self, pending: PendingMessage, attempts: int) -> Ending:
        reference = correlation_id(pending.incoming.key, attempts)
        return Ending("dead_letter", wording.dead_letter(attempts, reference), "error", "internal")
