"""The sentences of the domain that people read when something fails.

A sentence says what happened and what to do next. It never contains a secret, a path, a stack trace or a provider's
text. Those are in the log, under the reference that ends each failure text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil

from .errors import BotError
from .model import QuestionKind, Way

UNKNOWN = "Something went wrong. Try sending your message again."

FRIENDLY: Mapping[str, str] = {
    "turn_timeout": "This took longer than I may spend on one message, so I stopped. "
    "Try asking for a smaller part of it.",
    "mailbox_full": "I still have earlier messages to answer here, so I did not take this one. "
    "Please send it again later.",
    "store_unavailable": "I cannot save to my disk right now. Try again in a moment.",
    "context_corrupt": "I had trouble loading our conversation history. Starting fresh for this thread.",
    "schema_mismatch": "This conversation was saved by a newer version of me, so I leave it untouched. "
    "Whoever runs this bot needs to update it.",
    "internal": UNKNOWN,
}


def first_cause(error: BaseException) -> BaseException:
    """Return the first leaf of an exception group, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def code_of(error: BaseException) -> str:
    """Return the stable code of an exception. It is ``internal`` for anything but a `BotError`."""
    cause = first_cause(error)
    return cause.code if isinstance(cause, BotError) else "internal"


def explain(error: BaseException, correlation_id: str) -> str:
    """Return the text for the thread: a friendly sentence and its reference, never ``str(error)``."""
    return f"{friendly(error)} (ref {correlation_id})"


def friendly(error: BaseException) -> str:
    """Return the sentence for people. It says how long to wait if the provider said so."""
    cause = first_cause(error)
    known = cause if isinstance(cause, BotError) else BotError()
    text = known.friendly or FRIENDLY.get(known.code, UNKNOWN)
    wait = known.fields.get("retry_after")
    if isinstance(wait, float | int) and wait >= PATIENCE_S:
        text += f" Expect to wait about {duration(wait)}."
    return text


def duration(seconds: float) -> str:
    """Return a duration in words, rounded up: "40 seconds", "3 minutes", "2 hours", "5 days"."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds > 1.5 * length:
            return f"{ceil(seconds / length)} {unit}s"
    count = max(1, ceil(seconds))
    return f"{count} second{'s' if count > 1 else ''}"


def ways_of(error: BaseException) -> tuple[Way, ...]:
    """Return the ways to go on that the error itself names."""
    cause = first_cause(error)
    return cause.ways if isinstance(cause, BotError) else ()


PATIENCE_S = 60
"""Seconds: a shorter wait is not mentioned."""


NOT_HERE_ANY_MORE = (
    "I cannot go back to that message: our conversation does not have it any more, or never had it. "
    "All is as it was. Say it again as a new message."
)
MAYBE_REPEAT = "(this may be a repeat)"
RESUMED = "(I was interrupted by a restart and picked this up again.)"
NOT_SAVED = "(I could not save our conversation to my disk; I will try again with your next message.)"
HISTORY_DAMAGED = "(Part of our conversation history was damaged. I put it aside and go on with the rest.)"
HISTORY_LOST = f"({FRIENDLY['context_corrupt']})"
INTERRUPTED = "[interrupted here]"
APPROVED = "Thank you, I go on."
DENIED = "All right, I leave it."
NO_QUESTION = "There is no question of mine open here, or it was answered already."
OTHER_KIND: Mapping[QuestionKind, str] = {
    "decision": "That question asks for an answer, not for a permission. Say /answer, or press a button.",
    "answer": "That question asks for a permission, and an answer in words gives none. Say /approve or /deny.",
}
"""Why a question does not take an answer that is meant for the other kind, by that kind."""

QUESTION_UNREAD = "My question is still on its way. Please say that again when you can read it."
NOT_YOURS = "This is not yours to decide. Ask whoever runs this bot."
SAVING_FAILS = "my disk refuses to save"


NO_FILE = "I could not get it from where it is kept."
FILE_LATE = "it took too long to arrive."
DISK_FULL = "my disk is full."
DISK_REFUSES = "my disk refuses to save it."
EARLIER_UNREAD = "(I could not read what was said in this thread before.)"


def unread(name: str, why: str) -> str:
    """Say that an attached file was not read. *why* is a sentence."""
    return f"I could not read {name}: {why}"


def partly_read(name: str, missing: str) -> str:
    """Say that not all of an attached file was read. *missing* is a sentence."""
    return f"I read {name}, but {missing}"


def file_too_large(limit: int) -> str:
    """Say that a file has more than *limit* bytes."""
    return f"it is larger than {limit // 1_000_000} MB."


def too_many_files(most: int) -> str:
    return f"I read at most {most} files of one message."


def more_files(count: int) -> str:
    return f"{count} more files" if count > 1 else "1 more file"


def which_question(open_questions: Sequence[tuple[str, str]]) -> str:
    """Ask which open question is meant. Each is a pair of its id and a few words."""
    named = "\n".join(f"- `{question_id}` {brief}".rstrip() for question_id, brief in open_questions)
    return (
        f"{len(open_questions)} questions of mine are open here. Which one do you mean?\n\n{named}\n\n"
        "Answer one with `/approve ID` or `/deny ID`, or say no to all of them with `/deny all`."
    )


def dead_letter(attempts: int, correlation_id: str) -> str:
    return (
        f"I started on this message {attempts} times and was interrupted each time, so I put it aside. "
        f"Send it again if you want me to try once more. (ref {correlation_id})"
    )


def too_old(ready: datetime, correlation_id: str) -> str:
    """Say in place of an answer, which was *ready* at this time (UTC), that it is not posted any more."""
    reference = f" (ref {correlation_id})" if correlation_id else ""
    return (
        f"I had an answer to this on {ready:%d %b at %H:%M} UTC, but I could not post it here in time. It may be out "
        f"of date, so I leave it out. Send your message again if you still need an answer.{reference}"
    )


def undelivered(count: int) -> str:
    replies = "an earlier reply" if count == 1 else f"{count} earlier replies"
    return f"(I could not post {replies} here.)"
