"""Every sentence that a person may read about something that did not go as planned, in one place.

A sentence says what happened and what to do next. It never holds a secret, a path, a stack trace, or what a provider
said: those are in the log, under the reference that ends each failure text.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import BotError, Code

UNKNOWN = "Something went wrong. Try sending your message again."
UNREACHABLE = "I'm having trouble reaching my AI provider. Try again in a moment."

FRIENDLY: Mapping[Code, str] = {
    "rate_limited": "My AI provider is limiting how fast I may ask, and waiting did not help. "
    "Try again in a few minutes.",
    "timeout": UNREACHABLE,
    "unavailable": UNREACHABLE,
    "connection": UNREACHABLE,
    "auth": "My AI provider does not accept my key. Whoever runs this bot needs to check it.",
    "payment": "My AI provider says the account is out of credit. Whoever runs this bot needs to top it up.",
    "model_not_found": "My AI provider does not know the model I am set to use. "
    "Whoever runs this bot needs to choose another one.",
    "bad_request": "My AI provider did not accept this request. Try rephrasing it, or start over with /new.",
    "content_policy": "My AI provider declined to answer this. Try putting it another way.",
    "context_overflow": "This conversation has grown too long for the model. Start over with /new.",
    "output_invalid": "The model returned nothing I can show. Try asking in another way.",
    "tool_timeout": "A command I was running timed out. Let me know if you'd like me to try again.",
    "turn_timeout": "This took longer than I may spend on one message, so I stopped. "
    "Try asking for a smaller part of it.",
    "step_limit": "I used up the steps I may take for one message without finishing. "
    "Tell me to go on, or narrow the task.",
    "loop_detected": "I kept trying the same thing without getting anywhere, so I stopped. "
    "Tell me what to do differently.",
    "mailbox_full": "I still have earlier messages to answer here, so I did not take this one. "
    "Please send it again later.",
    "store_unavailable": "I cannot save to my disk right now. Try again in a moment.",
    "context_corrupt": "I had trouble loading our conversation history. Starting fresh for this thread.",
    "schema_mismatch": "This conversation was saved by a newer version of me, so I leave it untouched. "
    "Whoever runs this bot needs to update it.",
    "internal": UNKNOWN,
}


def first_cause(error: BaseException) -> BaseException:
    """Return the exception that speaks for a group: its first leaf."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def code_of(error: BaseException) -> Code:
    """Return the stable code of any exception; what we have no name for is ``internal``."""
    cause = first_cause(error)
    return cause.code if isinstance(cause, BotError) else "internal"


def explain(error: BaseException, correlation_id: str) -> str:
    """Return what the thread may read: one friendly sentence and its reference, never ``str(error)``."""
    return f"{FRIENDLY.get(code_of(error), UNKNOWN)} (ref {correlation_id})"


MAYBE_REPEAT = "(this may be a repeat)"
RESUMED = "(I was interrupted by a restart and picked this up again.)"
NOT_SAVED = "(I could not save our conversation to my disk; I will try again with your next message.)"
HISTORY_DAMAGED = "(Part of our conversation history was damaged. I put it aside and go on with the rest.)"
HISTORY_LOST = f"({FRIENDLY['context_corrupt']})"
INTERRUPTED = "[interrupted here]"
NOT_ALLOWED = "I only answer the people on my list. Ask whoever runs this bot to add you."
STALE = (
    "I was not running when this came in and it is too old for me to start on now. "
    "Please send it again if you still need it."
)
DAMAGED = (
    "Part of what I had stored was damaged, and a message of yours with it. "
    "Please send it again if you still need an answer."
)
NOTHING_TO_STOP = "There is nothing to stop here."
SAVING_FAILS = "my disk refuses to save"


def dead_letter(attempts: int, correlation_id: str) -> str:
    return (
        f"I started on this message {attempts} times and was interrupted each time, so I put it aside. "
        f"Send it again if you want me to try once more. (ref {correlation_id})"
    )


def refused(count: int) -> str:
    """Say that *count* messages were not taken because the mailbox is full."""
    if count == 1:
        return FRIENDLY["mailbox_full"]
    return (
        f"I still have earlier messages to answer here, so I did not take your last {count} messages. "
        "Please send them again later."
    )


def stale(count: int) -> str:
    """Say that *count* messages waited too long while the bot was down."""
    if count == 1:
        return STALE
    return (
        f"I was not running when {count} messages came in here and they are too old for me to start on now. "
        "Please send again what you still need."
    )


def stopped(running: int, waiting: int) -> str:
    """Say what a stop ended: turns that were *running* and messages that were *waiting*."""
    if not running and not waiting:
        return NOTHING_TO_STOP
    if not waiting:
        return "Stopped."
    dropped = "1 waiting message" if waiting == 1 else f"{waiting} waiting messages"
    return f"Stopped, and dropped {dropped}." if running else f"Dropped {dropped}."


def undelivered(count: int) -> str:
    replies = "an earlier reply" if count == 1 else f"{count} earlier replies"
    return f"(I could not post {replies} here.)"
