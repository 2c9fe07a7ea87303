"""What a thread's status says while a turn runs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from threads.model import ThreadId, Waiting
from transports.shared.live.activity import waiting_words
from transports.slack.live.latest_wins import Arguments

SESSION, WORDS = "agents.sessions.setStatus", "assistant.threads.setStatus"

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


@dataclass(frozen=True, slots=True)
class Status:
    """A session is processing, suspended while a person must decide, and active when no turn runs."""

    session: Literal["processing", "suspended", "active"] = "active"
    words: str = ""


IDLE = Status()


def status(activity: str, waiting: Waiting | None) -> Status:
    """Return what to show for a running turn; *activity* describes its tools, such as "reading notes.md"."""
    if waiting is None:
        return Status("processing", _short(f"is {activity}…") if activity else THINKING)
    words = _short(waiting_words(waiting))
    return Status("suspended" if math.isinf(waiting.seconds) else "processing", words)


def title_of(text: str) -> str:
    """Return a session's title for its first message: the beginning of it, whole words."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_TITLE:
        return line
    return f"{line[:LONGEST_TITLE].rpartition(' ')[0] or line[:LONGEST_TITLE]}…"


def session_arguments(thread: ThreadId, status: Status, title: str = "") -> Arguments:
    where: Arguments = {"channel_id": thread.channel, "thread_ts": thread.root, "status": status.session}
    return where | {"title": title} if title else where


def words_arguments(thread: ThreadId, status: Status) -> Arguments:
    arguments: Arguments = {"channel_id": thread.channel, "thread_ts": thread.root, "status": status.words}
    if status.words:
        arguments["loading_messages"] = [*LOADING] if status.words == THINKING else [status.words]
    return arguments


def _short(words: str) -> str:
    """Return *words* as one line in which nothing is live."""
    line = " ".join(words.replace("<", "(").replace(">", ")").split())
    return line if len(line) <= LONGEST_WORDS else f"{line[: LONGEST_WORDS - 1]}…"
