"""Titles of threads that a model makes, in the background: one call a thread, after its first answer.

That a model is asked is noted before it is. So neither a restart nor a failure asks again, and pays again: the first
words of the thread stay its title then. What a person named keeps its name.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from threads.errors import BotError
from threads.model import Incoming
from transports.web.thread_list import NOTHING, ThreadNotes, one_line

log = logging.getLogger(__name__)

TITLE_S = 30.0
"""Seconds that the making of one title may take."""

MOST_WAITING = 100
"""Threads that wait for a title. Beyond, the oldest have none until their next answer."""

Begin = Callable[[], Awaitable[None]]
"""Notes that a model is asked; it is waited for before that."""

Tell = Callable[[str], None]
MakeTitle = Callable[[Incoming, str, Begin, Tell], Awaitable[str]]
"""Returns a title for a message with its answer, or a blank, and tells the thread's people what they have to know."""


class Titles:
    """Gives threads the titles that *make* returns, one after the other, while `run` is under way."""

    def __init__(self, make: MakeTitle, notes: ThreadNotes, tell: Callable[[Incoming, str], None]) -> None:
        self._make, self._notes, self._tell = make, notes, tell
        self._waiting = deque[tuple[Incoming, str]](maxlen=MOST_WAITING)
        self._news = anyio.Event()

    def answered(self, incoming: Incoming, answer: str) -> None:
        """Note that a thread without a title has an answer."""
        self._waiting.append((incoming, answer))
        self._news.set()

    async def run(self) -> None:
        """Make titles until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._waiting:
                incoming, answer = self._waiting.popleft()
                ids = {"thread_id": str(incoming.thread), "message_id": incoming.id}
                try:
                    with anyio.fail_after(TITLE_S):
                        await self._give(incoming, answer)
                except (BotError, OSError) as error:
                    log.info("web.no_title: %s", error, extra=ids)
                except Exception:  # the boundary of this work: a title that fails costs no turn, and no page
                    log.exception("web.no_title", extra=ids)

    async def _give(self, incoming: Incoming, answer: str) -> None:
        person, root = incoming.thread.channel, incoming.thread.root

        async def begin() -> None:
            await self._notes.change(person, root, lambda note: note.model_copy(update={"asked": True}))

        note = (await self._notes.of(person)).get(root, NOTHING)
        if note.asked or note.named or note.deleted_at:
            return
        made = await self._make(incoming, answer, begin, partial(self._tell, incoming))
        lines = [*filter(None, map(one_line, made.splitlines()))]
        if title := lines[0].strip("\"'`*#“”«» ") if lines else "":
            await self._notes.change(
                person, root, lambda note: note if note.named else note.model_copy(update={"title": title})
            )
