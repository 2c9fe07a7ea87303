"""The page as a transport. Its posts are shown by key, so that one which is repeated after a crash is still one."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from starlette.routing import BaseRoute

from threads.model import Attachment, Earlier, Outgoing, Sink, ThreadId, TurnEvent, WallClock, message_key
from threads.store.disk import Offload
from threads.store.json_file import State
from transports.base.notices import Notices
from transports.base.transport import Capabilities, LinkState
from transports.web.address import Address
from transports.web.files import Files
from transports.web.guard import Guard
from transports.web.routes import ListModels, Rights, Routes, no_models
from transports.web.server import listen, serve
from transports.web.sessions import Person, Sessions, WebState
from transports.web.sign_in import SignIn
from transports.web.talk import PastThreads, Talk
from transports.web.thread_list import OpenNotes
from transports.web.titles import MakeTitle, Titles

log = logging.getLogger(__name__)

SWEEP_S = 3600.0
APART = (
    "files of the page are only at the worker that has them; give all a shared folder: transports.web.files"
)
REPAIRED_S = 3.0
"""Seconds after the start when the logs have what a killed process did not write into them."""


@dataclass(frozen=True, slots=True)
class Options:
    """``tls`` are the files of a certificate and its key. ``views`` are further pages, for admins.

    ``may_read`` is asked at each request: a person who may not use the bot any more has no session either.

    ``on_open`` is called with the address of the page, and a new one-time link to it, once it can be reached.
    ``list_models`` returns what a thread may choose. ``demo``: rules answer, and the page says so.
    """

    address: Address
    name: str
    folder: Path
    most_file_bytes: int
    commands: Mapping[str, str]
    is_admin: Callable[[str], bool]
    may_read: Callable[[str], bool] = lambda _: True
    tls: tuple[str, str] | None = None
    views: Sequence[BaseRoute] = ()
    owner: Person | None = None
    on_open: Callable[[str], None] = lambda _: None
    list_models: ListModels = no_models
    demo: bool = False
    forget_titles: Callable[[str], None] = lambda _: None
    sign_in: SignIn | None = None


class WebTransport:
    """Serves the page, and what is talked about on it."""

    name = "web"
    capabilities = Capabilities(find=True, lands_late=False, asks=True, files=True)
    trouble = ""
    silent_s: float | None = None
    sessions: Sessions

    def __init__(
        self,
        options: Options,
        history: PastThreads,
        open_state: Callable[[], Awaitable[State[WebState]]],
        open_notes: OpenNotes,
        *,
        offload: Offload,
        now: WallClock,
        notices: Notices | None = None,
        files_are_apart: bool = False,
        title: MakeTitle | None = None,
    ) -> None:
        """*files_are_apart*: other workers have folders of their own, so that not every file is at every one.

        *title* makes the titles of threads, if a model does.
        """
        self._options, self._open_state, self._now = options, open_state, now
        self.address = options.address
        files = Files(options.folder, offload, options.most_file_bytes)
        self._talk = Talk(
            self.name, files, history, options.commands, now, options.most_file_bytes, open_notes, notices
        )
        self.notes = self._talk.notes
        self._titles = Titles(title, self.notes, self._talk.tell) if title else None
        self._talk.files_are_apart, self._talk.forget_titles = files_are_apart, options.forget_titles
        self._connected = anyio.Event()
        self._stopped = False

    @property
    def state(self) -> LinkState:
        if self._stopped:
            return "stopped"
        return "connected" if self._connected.is_set() else "starting"

    async def serve(self, sink: Sink) -> None:
        """Serve until cancelled. Raises `TransportFatal` if the address cannot be used."""
        options = self._options
        self._talk.sink = sink
        listening = listen(self.address)
        self.address = replace(self.address, port=listening.getsockname()[1])
        way = options.sign_in.way if options.sign_in else ""
        self.sessions = sessions = Sessions(await self._open_state(), self._now, way)
        await sessions.open(self.address.url, options.owner.id if options.owner else "")
        rights = Rights(options.may_read, options.is_admin)
        routes = Routes(sessions, self._talk, self.address, options.views, rights, options, self._now)

        def end() -> None:
            self._talk.end()
            routes.colours.end()

        guard = Guard(routes.app(), self.address, options.most_file_bytes)
        if options.sign_in and options.sign_in.header:
            guard.refuses = options.sign_in.header.refusal
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sweep)
                tasks.start_soon(self._look_again)
                tasks.start_soon(self._talk.relay.run)
                if self._titles:
                    self._talk.answered = self._titles.answered
                    tasks.start_soon(self._titles.run)
                log.info("web.listening: %s", self.address.url)
                if self._talk.files_are_apart:
                    log.warning("web.files_apart: %s", APART)
                self._connected.set()
                if options.owner:
                    options.on_open(f"{self.address.url}/enter#{sessions.link(options.owner)}")
                await serve(guard, listening, options.tls, end)
        finally:
            self._stopped = True
            if options.sign_in and options.sign_in.openid:
                await options.sign_in.openid.http.aclose()

    async def reconnected(self) -> None:
        """Return once the page can be reached."""
        await self._connected.wait()

    async def erased(self, thread: ThreadId) -> None:
        """Drop what the page keeps of a thread that was erased. Raises `StoreUnavailable` and OSError."""
        if thread.transport == self.name:
            await self._talk.erased(thread)

    async def post(self, outgoing: Outgoing) -> str:
        return self._talk.post(outgoing)

    async def find(self, thread: ThreadId, key: str) -> str | None:
        """Return the post with this key if this process has shown it. One that is shown again takes its place."""
        return self._talk.find(thread, key)

    def link(self, thread: ThreadId) -> str:
        return f"{self.address.url}/#{thread.root}" if thread.root else ""

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        try:
            self._talk.show(thread, message_id, event)
        except Exception:  # the boundary of a transport: a sign that fails costs no turn
            log.exception(
                "live.failed: not shown", extra={"thread_id": str(thread), "message_id": message_id}
            )

    async def ensure_open(self, thread: ThreadId, message_id: str) -> None:
        """Return: nothing that is posted here is refused."""

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:  # noqa: ARG002
        """Return nothing: a thread of the page begins with the bot."""
        return Earlier()

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a file that a person sent. Raises `threads.errors.FileUnavailable`."""
        return self._talk.files.open_sent(attachment)

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Store the file for downloads, and show it. Raises `threads.errors.PostFailed`."""
        message_id = key.removeprefix(message_key(thread, "")).partition("+")[0]
        await self._talk.attach(thread, message_id, key, file, name)

    async def _look_again(self) -> None:
        await anyio.sleep(REPAIRED_S)
        self._talk.look_again()

    async def _sweep(self) -> None:
        while True:
            await self._talk.files.sweep()
            await anyio.sleep(SWEEP_S)
