"""What a look at a platform found, and what such looks have in common; `slack.checks` and `discord.checks` look."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from pydantic import JsonValue
from yarl import URL

from threads.errors import PostFailed, TransportRateLimited
from transports.shared.link.proxy import proxy_for

State = Literal["ok", "warn", "fail"]

WITHIN_S = 8.0
"""Seconds that one call may take: a person watches."""

CLOCK_MAY_DIFFER_S = 30.0
REACH = (
    "Check this machine's way out: DNS, firewall, HTTPS_PROXY; and api_base_url, if the settings name one."
)
TEST = "A test of `threadfast doctor`; it is deleted at once."


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing, what that means for people, and what to do about it; no text has a secret.

    ``names`` are the words in it that are somebody's own, such as a server's: who passes it on leaves them out.
    """

    name: str
    state: State
    found: str
    meaning: str = ""
    fix: str = ""
    names: tuple[str, ...] = ()

    def document(self) -> dict[str, JsonValue]:
        """Return it for JSON: all that is shown."""
        return {name: value for name, value in asdict(self).items() if name != "names"}


def failed(name: str, error: PostFailed, meaning: str, fix: str = REACH) -> Finding:
    """Return the finding of a call that failed; one that was merely too early is a warning."""
    if isinstance(error, TransportRateLimited):
        wait = f"{error.retry_after or 0:.0f} s"
        return Finding(
            name,
            "warn",
            f"{error}: asked to wait {wait}",
            "This could not be looked at now.",
            f"Run this again after {wait}.",
        )
    return Finding(name, "fail", str(error), meaning, fix)


def plainly(error: Exception) -> str:
    """Say what broke, without the request that is in the error, and its token."""
    import aiohttp  # noqa: PLC0415 - who only needs a `Finding` need not wait for it

    match error:
        case aiohttp.ClientConnectorError():
            why = error.os_error.strerror or type(error.os_error).__name__
            return f"{error.host} cannot be reached ({why})"
        case aiohttp.WSServerHandshakeError(status=status):
            return f"the socket was refused with status {status}"
        case _:
            return f"the call failed ({type(error).__name__})"


def clock(name: str, told: str | None, now: datetime, max_age_s: float) -> Finding | None:
    """Compare this machine's clock with the platform's (its Date header); None when it did not tell the time."""
    try:
        at = parsedate_to_datetime(told or "")
    except ValueError:
        return None
    ahead_s = (now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds()
    if abs(ahead_s) < CLOCK_MAY_DIFFER_S:
        return Finding(name, "ok", "agrees with the platform's to half a minute")
    too_old = ahead_s > max_age_s
    return Finding(
        name,
        "fail" if too_old else "warn",
        f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the platform's",
        "Every message would be taken for too old to answer."
        if too_old
        else "What was missed while down is judged by the wrong age, and times in logs are off.",
        "Switch time synchronisation on: timedatectl set-ntp true.",
    )


def proxy(name: str, url: str) -> Finding | None:
    """Say through which proxy *url* is reached, without the password in its address; None when directly."""
    if not (given := proxy_for(url)):
        return None
    try:
        way = URL(given).with_user(None).with_query(None).human_repr().rstrip("/")
    except ValueError:
        return Finding(
            name,
            "fail",
            "the environment names a proxy whose address cannot be read",
            "Nothing gets out through it.",
            "Correct HTTPS_PROXY, or name the host in NO_PROXY.",
        )
    return Finding(name, "ok", f"reached through the proxy {way}")
