"""The root of the error hierarchy, and the errors that the domain and the transports raise.

Other layers add their own. `threads.wording` has the sentences for people. Code branches on the type or on ``code``,
never on text: ``str(error)`` is for the operator and may contain paths and payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Way


def error_fields(error: BaseException) -> dict[str, object]:
    """Return the log fields of a failure. Every line with these fields is copied to the audit, with its report."""
    return {"code": getattr(error, "code", "internal"), "error": error}


def retry_fields(error: BaseException, attempt: int, wait_s: float, **more: str | int) -> dict[str, object]:
    """Return the log fields of a retry after *error*.

    *attempt* is the number of the coming attempt, 2 for the first retry. It begins in *wait_s* seconds.
    """
    return {**error_fields(error), "attempt": attempt, "wait_s": round(wait_s, 2), **more}


class BotError(Exception):
    """An error with a stable code.

    ``fields`` are facts for logs and reports (thread_id, provider, model, tool, attempt, retry_after in seconds).
    ``friendly`` is a sentence for people that replaces the one of the code. ``ways`` are ways to go on, in addition
    to those of the code. A wrapped error is chained with ``raise … from`` and keeps its code.
    """

    code: str = "internal"
    retryable: bool = False
    friendly: str = ""
    ways: tuple[Way, ...] = ()

    def __init__(self, message: str = "", **fields: str | float | None) -> None:
        super().__init__(message or self.code)
        self.fields = {name: value for name, value in fields.items() if value is not None}


class StoreUnavailable(BotError):
    """The store refused a write, for example because the disk is full. Nothing in memory is lost."""

    code = "store_unavailable"
    retryable = True


class Fenced(BotError):
    """Another worker owns the thread now. Stop, post nothing, write nothing, and do not retry."""

    code = "lifecycle_failure"


class NewerSchema(BotError):
    """A newer version of the program wrote the file. It is left untouched."""

    code = "schema_mismatch"


class MailboxFull(BotError):
    """As many messages wait in the thread as its mailbox may hold."""

    code = "mailbox_full"


class TurnTimeout(BotError):
    """The turn ran past its deadline."""

    code = "turn_timeout"


class PostFailed(BotError):
    """A post did not get through.

    ``maybe_posted``: the platform may have stored it all the same, for example after a broken connection. Look for
    the post's key before you try again. ``retry_after`` is what the platform says, in seconds. ``progressed``: this
    try posted parts that were not posted before.
    """

    maybe_posted = False
    progressed = False

    def __init__(
        self, message: str = "", *, maybe_posted: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.maybe_posted = maybe_posted
        self.retry_after = retry_after


class TransportRateLimited(PostFailed):
    code = "transport_rate_limited"
    retryable = True


class TransportUnavailable(PostFailed):
    code = "transport_unavailable"
    retryable = True


class TransportRejected(PostFailed):
    """The platform refuses this post permanently, for example because the channel is gone.

    ``closed``: why the place takes no post at all, a clause for people; blank if another post may be taken.
    ``only_thread``: that is so for its thread, not for the whole channel. ``gone``: what the call is about is not
    there any more.
    """

    code = "transport_rejected"
    closed: str = ""
    only_thread: bool = False
    gone: bool = False


class TransportFatal(BotError):
    """A transport cannot work until a person acts, for example after a rejected token. It stops and says so."""

    code = "config_invalid"


class FileUnavailable(BotError):
    """An attached file is not available. ``friendly`` says why."""

    code = "tool_failed"
