"""A chat platform as a transport: what the clients of all platforms have in common.

A client has a connection once the platform has said who the bot is. Posts and look-ups wait for it; earlier events
are stored and shown then. The link may go down and come back; the connection stays.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportRejected, TransportUnavailable, error_fields
from threads.model import (
    UNDECIDED,
    Earlier,
    Outgoing,
    QuestionClosed,
    Sink,
    ThreadId,
    TurnEvent,
    TurnSettled,
    message_key,
)
from threads.store.disk import Disk, Offload
from transports.base.transport import Capabilities, LinkState
from transports.shared.buttons import OpenQuestions, Presses
from transports.shared.delivery.closed_places import TOLD, ClosedPlaces
from transports.shared.link.supervisor import Reachability, Supervisor
from transports.shared.live.background_calls import retry_cleanup
from transports.shared.live.presence import Presence

log = logging.getLogger(__name__)

MOST_EARLY = 2_000
"""Events of turns that are stored until the platform has said who we are; beyond, the oldest are not shown."""

CONNECT_WITHIN_S = 60.0


class Api(Protocol):
    async def until_refused(self) -> NoReturn:
        """Wait until the platform does not accept the token any more, then raise `TransportFatal`."""

    async def ping(self) -> None:
        """Ask for a sign of life. Raises `PostFailed`."""


class Posting(Protocol):
    @property
    def questions(self) -> OpenQuestions[Any]: ...
    async def find(
        self, thread: ThreadId, key: str, *, live: Collection[str], alone: Callable[[], bool]
    ) -> str | None: ...
    async def clear(self, thread: ThreadId, key: str, draft: Sequence[Any]) -> None: ...
    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None: ...
    async def close_question(self, question: Any, decision: str) -> None:
        """Replace the buttons of a question by the decision. Without one, delete it. Raises `PostFailed`."""


A = TypeVar("A", bound=Api)


@dataclass(frozen=True, kw_only=True)
class Connection(ABC, Generic[A]):
    """What a client has once the platform has said who the bot is."""

    api: A
    posting: Posting
    presence: Presence[Any, Any]
    presses: Presses[Any]
    opened_at: float = field(default_factory=anyio.current_time)

    @abstractmethod
    async def post(self, outgoing: Outgoing, draft: Sequence[Any]) -> str:
        """Post, into the *draft* messages as far as they go, and return the id of the post."""

    @abstractmethod
    async def try_out(self, thread: ThreadId, message_id: str) -> None:
        """Post a few dots where the answer to the message goes, and remove them. Raises `PostFailed`."""

    @abstractmethod
    async def tell(self, person: str, text: str, key: str) -> None:
        """Tell a person something in a direct message. Raises `PostFailed`."""

    @abstractmethod
    async def sweep_lost(self, thread: ThreadId, message_id: str) -> None:
        """Delete the messages of a draft that the platform took without an answer.

        The answer counts as posted only after that: a death in between would leave the draft beside it for good.
        """

    @abstractmethod
    def follow_up(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Do what only this platform does after an event."""

    @abstractmethod
    async def name_of(self, user: str) -> str:
        """Return what to call a person by, "" if that is not known."""

    @abstractmethod
    async def retire(self, press: Any) -> None:
        """Take the buttons off a message after one was pressed. Raises `PostFailed`."""

    async def close(self, question: Any, event: QuestionClosed) -> None:
        """Take the buttons off a question, and say how it ended."""
        who = await self.name_of(event.by) if event.by else ""
        await self.posting.close_question(question, event.decision(who))


S = TypeVar("S")
C = TypeVar("C", bound=Connection[Any])


CountUnread = Callable[[str], None]
"""Counts a part of a message that people see and the bot cannot read, by its kind."""


class Client(ABC, Generic[S, A, C]):
    """One bot on a platform. What it has to remember over a restart is in the folder *data*.

    ``name`` is what the settings call it: a platform may be served several times.
    """

    kind: str
    capabilities = Capabilities(find=True, lands_late=True, asks=True, earlier=True, files=True, closes=True)

    def __init__(
        self,
        options: S,
        data: Path,
        *,
        disk: Disk,
        offload: Offload,
        now: Callable[[], datetime],
        name: str = "",
    ) -> None:
        self.name, self._options, self._now = name or self.kind, options, now
        self._data, self._disk, self._offload = data, disk, offload
        self._supervisor = Supervisor(self.name)
        self._connection: C | None = None
        self._connected, self._closed = anyio.Event(), ClosedPlaces()
        self._reachability = Reachability()
        self._early: deque[tuple[ThreadId, str, TurnEvent]] = deque(maxlen=MOST_EARLY)
        self.count_unread: CountUnread = lambda _: None

    @abstractmethod
    def link(self, thread: ThreadId) -> str:
        """Return the web address of the thread, or a blank."""

    @property
    def state(self) -> LinkState:
        return self._supervisor.state

    @property
    def silent_s(self) -> float | None:
        return self._supervisor.silent_s

    @property
    def trouble(self) -> str:
        return ""

    async def serve(self, sink: Sink) -> None:
        """Receive until cancelled. Raises `TransportFatal` when only a person can fix what is wrong."""
        async with self._open_api() as api, anyio.create_task_group() as tasks:
            tasks.start_soon(api.until_refused)
            await self._supervisor.run(partial(self._link, api, sink, tasks))

    async def reconnected(self) -> None:
        """Return when the link is up, and the API answers again if it could not be reached at all."""
        await self._supervisor.reconnected()
        await self._reachability.regained((await self._connect()).api.ping)

    async def post(self, outgoing: Outgoing) -> str:
        connection = await self._connect()
        thread, message_id = outgoing.thread, outgoing.reply_to
        answers = outgoing.key == message_key(thread, message_id)
        draft = connection.presence.draft_of(thread, message_id) if answers else None
        live = await draft.hand_over() if draft else ()
        try:
            with self._reachability.watch():
                posted = await connection.post(outgoing, live)
        except TransportRejected as refused:
            if self._closed.note(thread, refused, outgoing.to):
                await self._tell_closed(connection, outgoing, refused)
            raise
        self._closed.opened(thread)
        if answers:
            connection.presence.posted(thread, message_id)
        if draft and draft.lost:
            await connection.sweep_lost(thread, message_id)
        return posted

    async def ensure_open(self, thread: ThreadId, message_id: str) -> None:
        """Return if an answer to the message can be posted, as far as is known. Raises `PostFailed`."""
        if not self._closed.holds(thread):
            return
        try:
            await (await self._connect()).try_out(thread, message_id)
        except PostFailed as error:
            if isinstance(error, TransportRejected) and error.closed:
                raise
            log.info("post.not_tried_out: whether a place takes posts again is not known: %s", error)
        else:
            self._closed.opened(thread)

    async def _tell_closed(self, connection: C, outgoing: Outgoing, refused: TransportRejected) -> None:
        """Tell a person, where they can see it, why they get no answer."""
        link = self.link(outgoing.thread)
        try:
            await connection.tell(outgoing.to, TOLD.format(link=link, why=refused.closed), outgoing.key)
        except PostFailed as error:
            fields = {"thread_id": str(outgoing.thread), **error_fields(error)}
            log.warning("post.closed_untold: nobody was told of a closed place: %s", error, extra=fields)

    async def find(self, thread: ThreadId, key: str) -> str | None:
        connection = await self._connect()
        message_id = key.rpartition(":")[2]
        answers = "?" not in message_id and key == message_key(thread, message_id)
        draft = connection.presence.draft_of(thread, message_id) if answers else None
        # The answer comes next: no message of the draft may begin while unfinished ones are looked for and swept.
        live = await draft.hand_over() if draft else ()
        alone = partial(connection.presence.is_alone, thread, message_id)
        found = await connection.posting.find(
            thread, key, live=connection.presence.live_in(thread), alone=alone
        )
        if found and answers:
            connection.presence.posted(thread, message_id)
        if found and draft:
            await connection.posting.clear(thread, key, live)
            if draft.lost:
                await connection.sweep_lost(thread, message_id)
        return found

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show the event; before the platform has said who we are, later."""
        if (connection := self._connection) is None:
            self._early.append((thread, message_id, event))
            return
        posting, soon = connection.posting, connection.presence.soon
        connection.presence.show(thread, message_id, event)
        if isinstance(event, QuestionClosed) and (question := posting.questions.pop(event.key, None)):
            soon(partial(retry_cleanup, partial(connection.close, question, event), thread))
        if isinstance(event, TurnSettled):
            decision = "" if event.outcome == "withdrawn" else UNDECIDED
            for question in posting.questions.pop_all_of(message_key(thread, message_id)):
                soon(partial(retry_cleanup, partial(posting.close_question, question, decision), thread))
        connection.follow_up(thread, message_id, event)
        if press := connection.presses.pop_over(message_id, event):
            soon(partial(retry_cleanup, partial(connection.retire, press), thread))

    @abstractmethod
    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """See `Transport.earlier`."""

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        await (await self._connect()).posting.attach(thread, key, file, name)

    @abstractmethod
    def _open_api(self) -> AbstractAsyncContextManager[A]:
        """Open the API, which outlives reconnects of the link."""

    @abstractmethod
    async def _log_in(self, api: A, sink: Sink, tasks: TaskGroup) -> C:
        """Ask who the bot is, and build what works with that."""

    @abstractmethod
    async def _run_link(self, connection: C, connected: Callable[[], None]) -> None:
        """Receive until the link is down."""

    async def _connect(self) -> C:
        """Wait until the platform has said who we are: a post may be due before. Raises `TransportUnavailable`."""
        if self._connection is None:
            with anyio.move_on_after(CONNECT_WITHIN_S):
                await self._connected.wait()
        if self._connection is None:
            raise TransportUnavailable(f"{self.kind.title()} has not yet said who we are")
        return self._connection

    async def _link(self, api: A, sink: Sink, tasks: TaskGroup, connected: Callable[[], None]) -> None:
        """Be connected until the link is down; the supervisor runs this again and again."""
        if self._connection is None:
            self._connection = await self._log_in(api, sink, tasks)
            self._connected.set()
            while self._early:
                self.show(*self._early.popleft())
        await self._run_link(self._connection, connected)
