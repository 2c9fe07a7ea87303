"""What a thread's status says while a turn runs: the words in the thread, and the session of the agent view.

The words go when a message of ours comes, and two minutes after they were said (docs.slack.dev,
"assistant.threads.setStatus"); so they are said again meanwhile. A session stays as it is for an hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import anyio

from threads.model import ThreadId, Waiting
from transports.shared.live.activity import waiting_words
from transports.slack.api.web_api import WebApi
from transports.slack.live.latest_wins import Arguments, LatestCalls

SESSION, WORDS = "agents.sessions.setStatus", "assistant.threads.setStatus"

Session = Literal["processing", "suspended", "active"]
"""A session is processing, suspended while a person must decide, and active when no turn runs."""

THINKING = "is thinking…"

LOADING = (
    "Thinking it over…",
    "Reading the thread again…",
    "Weighing the options…",
    "Putting the pieces together…",
    "Looking at it from the other side…",
    "Sorting my notes…",
    "Checking that it adds up…",
    "Looking for the right words…",
    "Nearly there, perhaps…",
    "Still at it…",
)
"""Slack shows them in turn; it takes at most ten."""

LONGEST_WORDS = 100
LONGEST_TITLE = 80
"""Slack takes 200 characters, and shows about this many."""

AGAIN_S = 90.0


class StatusWords(LatestCalls[ThreadId]):
    """The words in the threads."""

    def __init__(self, web: WebApi, on_refused: Callable[[], None]) -> None:
        super().__init__(web, WORDS, on_refused=on_refused)
        self._said: dict[ThreadId, tuple[str, float]] = {}
        """The words of each thread, and when to say them again, the soonest first."""
        self._news = anyio.Event()

    def say(self, thread: ThreadId, words: str, *, soon: bool = False) -> None:
        """Show these words, none if blank, until others are said or they are gone."""
        self._said.pop(thread, None)
        arguments: Arguments = {"channel_id": thread.channel, "thread_ts": thread.root, "status": words}
        if words:
            arguments["loading_messages"] = [*LOADING] if words == THINKING else [words]
        if words and self.offered_in(thread.channel):
            self._said[thread] = words, anyio.current_time() + AGAIN_S
            self._news.set()
        self.request(thread, arguments, soon=soon)

    def gone(self, thread: ThreadId) -> None:
        """Note that Slack took the words away, because a message of ours came."""
        self._said.pop(thread, None)
        if self.cancel(thread):  # words on their way may come after the message
            self.say(thread, "")

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(super().run)
            tasks.start_soon(self._repeat)

    async def _repeat(self) -> None:
        while True:
            while not self._said:
                self._news = anyio.Event()
                await self._news.wait()
            thread, (words, due) = next(iter(self._said.items()))
            await anyio.sleep_until(due)
            if self._said.get(thread) == (words, due):
                self.say(thread, words)


def session_of(waiting: Waiting | None) -> Session:
    return "suspended" if waiting and math.isinf(waiting.seconds) else "processing"


def words_of_wait(waiting: Waiting) -> str:
    """Return the words for a turn that waits."""
    return _one_line(waiting_words(waiting))


def words_of_work(what: str) -> str:
    """Return the words for a turn that works and shows nothing else; *what* is its tool or stage, if any."""
    return _one_line(f"is working: {what}…") if what else THINKING


def _one_line(text: str) -> str:
    """Return *text* as one line in which nothing is live."""
    line = " ".join(text.replace("<", "(").replace(">", ")").split())
    return line if len(line) <= LONGEST_WORDS else f"{line[: LONGEST_WORDS - 1]}…"


def title_of(text: str) -> str:
    """Return a session's title for its first message: the beginning of it, whole words."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_TITLE:
        return line
    return f"{line[:LONGEST_TITLE].rpartition(' ')[0] or line[:LONGEST_TITLE]}…"


def session_arguments(thread: ThreadId, status: Session, title: str = "") -> Arguments:
    where: Arguments = {"channel_id": thread.channel, "thread_ts": thread.root, "status": status}
    return where | {"title": title} if title else where
