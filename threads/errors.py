"""The root of the one error hierarchy, with the leaves that the domain and the edges raise themselves.

Other layers add leaves of their own; `threads.wording` holds the sentences for people. Code branches on
the type or on ``code``, never on text: ``str(error)`` is for the operator and may name paths and payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Way


def retry_fields(code: str, attempt: int, wait_s: float, **more: str) -> dict[str, str | float]:
    """Return the fields by which a log line tells of a retry; the audit takes every line that has them.

    *attempt* is the number of the try to come, 2 for the first retry, which is made in *wait_s* seconds because the
    one before failed with *code*.
    """
    return {"code": code, "attempt": attempt, "wait_s": round(wait_s, 2), **more}


class BotError(Exception):
    """Something that went wrong in a way we have a name for.

    ``fields`` are structured facts for logs and reports (thread_id, provider, model, tool, attempt, retry_after in
    seconds); ``friendly`` is the sentence for people where that of the code would not fit, ``ways`` are how they may
    go on, besides what the code stands for. A wrapped error is chained with ``raise … from`` and keeps its code.
    """

    code: str = "internal"
    retryable: bool = False
    friendly: str = ""
    ways: tuple[Way, ...] = ()

    def __init__(self, message: str = "", **fields: str | float | None) -> None:
        super().__init__(message or self.code)
        self.fields = {name: value for name, value in fields.items() if value is not None}


class StoreUnavailable(BotError):
    """The disk refused a write (full, read-only, failing); what was in memory is kept."""

    code = "store_unavailable"
    retryable = True


class Fenced(BotError):
    """The thread belongs to another worker now: stop, say nothing, write nothing. Retrying does not help."""

    code = "lifecycle_failure"


class NewerSchema(BotError):
    """A file was written by a newer version of the program; it is left untouched."""

    code = "schema_mismatch"


class MailboxFull(BotError):
    """The thread already has as many messages waiting as it may hold."""

    code = "mailbox_full"


class TurnTimeout(BotError):
    """The turn ran past its deadline."""

    code = "turn_timeout"


class PostFailed(BotError):
    """A post did not get through.

    ``maybe_posted`` is true when the platform may have stored it all the same (a cut connection, a 5xx after
    the fact): look for the post's key before trying again. ``retry_after`` is the platform's word, in seconds.
    ``progressed``: parts of it that were not out before are out now.
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
    """The platform refuses this post for good (no permission, channel gone)."""

    code = "transport_rejected"


class TransportFatal(BotError):
    """A transport cannot work until a person acts (a rejected token, a missing right): it stops and says so."""

    code = "config_invalid"


class FileUnavailable(BotError):
    """A file that came with a message cannot be had; ``friendly`` says why."""

    code = "tool_failed"
