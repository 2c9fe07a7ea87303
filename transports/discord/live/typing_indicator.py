"""The typing indicator in threads whose turns run: Discord shows it for 10 s or until the next post.

| thread is | event                                   | what is done                        | becomes |
|-----------|-----------------------------------------|-------------------------------------|---------|
| idle      | `begin`                                 | a task: the sign now and every 8 s  | typing  |
| typing    | `end`                                   |                                     | ending  |
| ending    | `begin`                                 | the sign, at once                   | typing  |
| ending    | the call is answered, or 8 s are over   | the task ends                       | idle    |
| typing    | refused                                 | the task ends                       | idle    |

A thread has at most one call at a time, however slow. When other signs wait for their turn, this one is left out.
A post ends the sign, and an edit does not: so `finish` comes before the first post of an answer.
"""

from __future__ import annotations

import logging
from functools import partial

import anyio

from threads.errors import PostFailed
from threads.model import ThreadId
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.live.pacing import Pace
from transports.discord.post.thread_opening import Destination, Destinations
from transports.shared.live.background_calls import Soon

log = logging.getLogger(__name__)

EVERY_S = 8.0

FINISH_WITHIN_S = 1.0
"""How long a post waits for a sign on its way, which would be shown after it."""


class Typing:
    def __init__(self, rest: Rest, destinations: Destinations, pace: Pace, soon: Soon) -> None:
        self._rest, self._destinations, self._pace, self._soon = rest, destinations, pace, soon
        self._wanted: set[ThreadId] = set()
        self._tasks: dict[ThreadId, anyio.Event] = {}
        self._calls: dict[ThreadId, anyio.Event] = {}
        self._reported = False

    def begin(self, thread: ThreadId) -> None:
        if thread in self._wanted:
            return
        self._wanted.add(thread)
        if thread in self._tasks:
            self._tasks[thread].set()
        elif self._soon(partial(self._keep_typing, thread)):
            self._tasks[thread] = anyio.Event()
        else:
            self._wanted.discard(thread)

    def end(self, thread: ThreadId) -> None:
        self._wanted.discard(thread)

    async def finish(self, thread: ThreadId) -> None:
        """End the sign, and return when no call of it is on its way, or after a while."""
        self.end(thread)
        if call := self._calls.get(thread):
            with anyio.move_on_after(FINISH_WITHIN_S):
                await call.wait()

    async def _keep_typing(self, thread: ThreadId) -> None:
        try:
            while thread in self._wanted:
                renewed = self._tasks[thread] = anyio.Event()
                if self._pace.has_capacity:
                    await self._type(thread)
                with anyio.move_on_after(EVERY_S):
                    await renewed.wait()
        except DiscordRefused as refused:
            self._report(refused)
        finally:
            self._wanted.discard(thread)
            del self._tasks[thread]

    async def _type(self, thread: ThreadId) -> None:
        """Show the sign once. Raises `DiscordRefused`."""
        try:
            destination = await self._destinations.open(thread)
            await self._pace.turn()
            if thread in self._wanted:
                await self._call(thread, destination)
        except DiscordRefused:
            raise
        except PostFailed as error:
            self._report(error)

    async def _call(self, thread: ThreadId, destination: Destination) -> None:
        call = self._calls[thread] = anyio.Event()
        try:
            await self._rest.typing(destination.channel)
        finally:
            del self._calls[thread]
            call.set()

    def _report(self, error: PostFailed) -> None:
        """Log the first failure; the others are only debug lines."""
        log.log(logging.DEBUG if self._reported else logging.INFO, "typing.failed: %s", error)
        self._reported = True
