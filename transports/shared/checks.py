"""What `slack.checks` and `discord.checks` share: findings, and checks that are the same for every platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
from pydantic import JsonValue
from yarl import URL

from threads.errors import PostFailed, TransportFatal, TransportRateLimited
from transports.shared.link.proxy import proxy_for

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

State = Literal["ok", "warn", "fail"]

WITHIN_S = 8.0
"""Seconds that one call may take: a person is waiting."""

CLOCK_MAY_DIFFER_S = 30.0
REACH = (
    "Check this machine's way out: DNS, firewall, HTTPS_PROXY; and api_base_url, if the settings name one."
)
TEST = "A test of `threadfast doctor`; it is deleted at once."


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, what that means for people, and how to fix it; without secrets.

    ``names`` are words in it that belong to somebody, such as a server's name: they are left out of public reports.
    """

    name: str
    state: State
    found: str
    meaning: str = ""
    fix: str = ""
    names: tuple[str, ...] = ()

    def document(self) -> dict[str, JsonValue]:
        """Return it for JSON, without `names`."""
        return {name: value for name, value in asdict(self).items() if name != "names"}


def failed_call(name: str, error: PostFailed, meaning: str, fix: str = REACH) -> Finding:
    """Return the finding of a failed call; a rate limit is only a warning."""
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


def describe_failure(error: Exception) -> str:
    """Describe a failure without the request, which holds the token."""
    import aiohttp  # noqa: PLC0415 - a `Finding` alone does not need it

    match error:
        case aiohttp.ClientConnectorError():
            why = error.os_error.strerror or type(error.os_error).__name__
            return f"{error.host} cannot be reached ({why})"
        case aiohttp.WSServerHandshakeError(status=status):
            return f"the socket was refused with status {status}"
        case _:
            return f"the call failed ({type(error).__name__})"


def clock(name: str, date: str | None, now: datetime, max_age_s: float) -> Finding | None:
    """Compare this machine's clock with the platform's Date header; None without one."""
    try:
        at = parsedate_to_datetime(date or "")
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
    """Name the proxy for *url*, without its password; None without a proxy."""
    try:
        if not (address := proxy_for(url)):
            return None
    except TransportFatal as fault:
        return Finding(
            name, "fail", "the environment names a proxy of another kind", "Nothing gets out.", str(fault)
        )
    try:
        way = URL(address).with_user(None).with_query(None).human_repr().rstrip("/")
    except ValueError:
        return Finding(
            name,
            "fail",
            "the environment names a proxy whose address cannot be read",
            "Nothing gets out through it.",
            "Correct HTTPS_PROXY, or name the host in NO_PROXY.",
        )
    return Finding(name, "ok", f"reached through the proxy {way}")


async def try_socket(
    name: str,
    session: aiohttp.ClientSession,
    url: str,
    talk: Callable[[aiohttp.ClientWebSocketResponse], Awaitable[T]],
    meaning: str,
) -> T | Finding:
    """Open a websocket, *talk* over it and close it. Every failure becomes a finding."""
    import aiohttp  # noqa: PLC0415 - as above

    try:
        with anyio.fail_after(WITHIN_S):
            closing = aiohttp.ClientWSTimeout(ws_close=1.0)
            async with session.ws_connect(url, proxy=proxy_for(url), timeout=closing) as socket:
                return await talk(socket)
    except TimeoutError:
        return Finding(name, "fail", f"no greeting within {WITHIN_S:.0f} s", meaning, REACH)
    except Exception as error:  # noqa: BLE001  the boundary of a check: every failure is a finding
        fix = f"Allow websockets (wss://) on the way out. {REACH}"
        return Finding(name, "fail", describe_failure(error), meaning, fix)


def posted(name: str, place: str, deletion: object) -> Finding:
    """Return the finding of a visible test post, given what its deletion returned."""
    if isinstance(deletion, PostFailed):
        found = f"posted; not deleted ({deletion})"
        return Finding(name, "warn", found, "The test stays there.", "Delete it by hand.")
    return Finding(name, "ok", f"posted in {place} and deleted", names=(place,))
