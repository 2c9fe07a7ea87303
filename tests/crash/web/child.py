"""The bot process of the crash run on the page: the real transport and HTTP server, and a model that names messages.

python -m tests.crash.web.child --data D --port P --seed S
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from itertools import count

import anyio
import anyio.to_thread

from bot.config.settings import Settings
from bot.routing.commands import MEANINGS
from bot.wiring.app import utc_now
from tests.crash import child
from threads.model import Inbound, Outgoing, Sink
from threads.store.disk import Disk
from threads.store.json_file import JsonFiles
from transports.web import stream, talk
from transports.web.address import Address
from transports.web.client import Options, WebTransport
from transports.web.feed import Event
from transports.web.page_history import ThreadHistory
from transports.web.sessions import WebState
from transports.web.thread_list import NotesState


def web(args: argparse.Namespace, disk: Disk, __: object) -> WebTransport:
    if args.broken:
        BROKEN[args.broken]()
    states = JsonFiles(disk, args.data, anyio.to_thread.run_sync)
    return WebTransport(
        Options(
            address=Address("127.0.0.1", args.port),
            name="threadfast",
            folder=args.data / "web",
            most_file_bytes=1_000_000,
            commands=MEANINGS,
            is_admin=lambda _: False,
        ),
        ThreadHistory(Settings(data=args.data), {}),
        partial(states.open, "web", WebState()),
        lambda person: states.open(f"web-threads-{person}", NotesState()),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
    )


def keyless() -> None:
    """Show each post under a key of its own."""
    made, numbers = talk.post_event, count()

    def nameless(outgoing: Outgoing, at: str) -> Event:
        return {**made(outgoing, at), "key": f"{outgoing.key} {next(numbers)}"}

    talk.post_event = nameless


def hasty() -> None:
    """Take a message before it is durable."""
    serve = WebTransport.serve

    async def at_once(self: WebTransport, sink: Sink) -> None:
        async def later(event: Inbound) -> None:
            await anyio.sleep(0.1)
            await sink(event)

        async with anyio.create_task_group() as tasks:

            async def receive(event: Inbound) -> None:
                tasks.start_soon(later, event)

            await serve(self, receive)

    WebTransport.serve = at_once  # type: ignore[method-assign]


def gapped() -> None:
    """Take the numbers of an earlier process for one's own."""
    stream._ID = re.compile(r"[0-9a-f]+\.(\d{1,15})\.(\d{1,15})")


BROKEN: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in (keyless, hasty, gapped)}

if __name__ == "__main__":
    child.main(web)
