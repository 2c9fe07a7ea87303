"""What the homeserver refuses, in the domain's words. https://spec.matrix.org/v1.16/client-server-api/#standard-error-response"""

from __future__ import annotations

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from transports.shared.retry import ASK_AGAIN_S

TOKEN_CODES = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED")


class MatrixRefused(TransportRejected):
    """A refusal with its ``errcode``."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message)
        self.errcode, self.status = code, status
        self.gone = status == 404
        if code == "M_FORBIDDEN":
            self.closed = "I may not write in that room, or am not in it any more"


def failure(what: str, status: int, code: str, message: str, retry_ms: object = None) -> PostFailed:
    """Return the error of an answer to the request *what*. A server's fault may have been done all the same."""
    told = f"{what}: {status} {code} {message}".strip()[:300]
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        wait_s = retry_ms / 1000 if isinstance(retry_ms, int | float) and retry_ms > 0 else ASK_AGAIN_S
        return TransportRateLimited(told, retry_after=max(wait_s, 0.1))
    if status >= 500 or not (status and code):
        return TransportUnavailable(told, maybe_posted=True)
    return MatrixRefused(told, code, status)
