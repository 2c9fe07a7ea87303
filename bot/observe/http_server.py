"""Listens for the pages on a Unix socket in the data folder and on a loopback port."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteStream, Listener, SocketStream

from bot.observe.event_server import EventServer
from bot.observe.http_pages import NO_POSTS, Pages, PageServer
from bot.observe.live_parts import Posts
from bot.ports.status import socket_path
from threads.wording import first_cause

log = logging.getLogger(__name__)

REFUSED_S = 1.0


@asynccontextmanager
async def serve_pages(
    pages: Pages, data: Path, port: int | None, events: EventServer | None = None, posts: Posts = NO_POSTS
) -> AsyncIterator[None]:
    """Serve the pages during this block. If a listener cannot be opened, that is logged and the bot goes on.

    *events* and *posts* are served on the socket only, which is the owner's. The caller owns the data folder, so an
    existing socket belongs to a dead process and is replaced.
    """
    async with anyio.create_task_group() as tasks:
        with ExitStack() as stack:
            try:
                path = stack.enter_context(socket_path(data))
                socket = await anyio.create_unix_listener(path, mode=0o600)
                stack.callback(_remove, path)
                own = PageServer(pages, checks_host=False, events=events, posts=posts)
                tasks.start_soon(serve_on, socket, own.serve)
            except OSError as error:
                log.warning("health.no_socket: %s: %s; no command can reach this bot", data, error)
            try:
                if port is not None:
                    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
                    tasks.start_soon(serve_on, listener, PageServer(pages, checks_host=True).serve)
            except OSError as error:
                log.warning("health.no_port: 127.0.0.1:%d: %s; continuing without it", port, error)
            yield
            tasks.cancel_scope.cancel()


async def serve_on(listener: Listener[SocketStream], serve: Callable[[ByteStream], Awaitable[None]]) -> None:
    """Serve each connection of a listener until cancelled."""
    async with listener, anyio.create_task_group() as tasks:
        while True:
            try:
                await listener.serve(serve, tasks)
            except* (OSError, anyio.BrokenResourceError) as faults:  # for example, no descriptors left
                log.warning("health.not_accepting: %s", first_cause(faults))
                await anyio.sleep(REFUSED_S)


def _remove(path: str) -> None:
    with suppress(OSError):  # the next start replaces it
        Path(path).unlink()
