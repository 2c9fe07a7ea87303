"""What the homeserver refuses, in the domain's words."""

from __future__ import annotations

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from transports.shared.retry import ASK_AGAIN_S

CLOSED = "I may not write in that room, or am not in it any more"


def failure(what: str, status: int, code: str, message: str, retry_ms: object = None) -> PostFailed:
    """Return the error of an answer to the request *what*. After a server's fault it may have been done.

    Codes: https://spec.matrix.org/v1.16/client-server-api/#standard-error-response
    """
    told = f"{what}: {status} {code} {message}"[:300]
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        wait_s = retry_ms / 1000 if isinstance(retry_ms, int) else ASK_AGAIN_S
        return TransportRateLimited(told, retry_after=wait_s)
    if status >= 500 or not code:
        return TransportUnavailable(told, maybe_posted=True)
    refused = TransportRejected(told)
    refused.gone, refused.closed = status == 404, CLOSED if code == "M_FORBIDDEN" else ""
    return refused
