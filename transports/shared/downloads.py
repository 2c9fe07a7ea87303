"""Files in: the content of what people attach, read in chunks from the platform's file hosts.

Every failure becomes a `FileUnavailable`, whose ``friendly`` is for the thread and for the model.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import aiohttp
from yarl import URL

from threads.errors import FileUnavailable, PostFailed, TransportUnavailable
from transports.shared.link.proxy import proxy_for
from transports.shared.retry import retry

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
REDIRECTS = 5
IDLE_S = 30.0
"""A download that stays silent for so long is given up."""

PAUSE_S = 1.0
LONGEST_WAIT_S = 20.0
"""A Retry-After is obeyed once, up to here: the turn waits for its files."""

GONE = "it is not there any more."
CUT = "it broke off while I was reading it. Sending it again may help."


@dataclass(frozen=True, slots=True)
class FileHost:
    """A platform's file hosts. Only addresses that it ``trusts`` get the ``headers``.

    ``no_access`` is the sentence for a 401 or 403.
    """

    name: str
    trusts: Callable[[URL], bool]
    no_access: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def refusal(self, status: int) -> str:
        """Return the sentence for what a status means."""
        match status:
            case 401 | 403:
                return self.no_access
            case 404 | 410:
                return GONE
            case 429:
                return f"{self.name} asks me to wait before I read more files. Try again in a minute."
            case _:
                return self.trouble

    @property
    def trouble(self) -> str:
        return f"{self.name} did not hand the file over. Sending it again may help."

    @property
    def elsewhere(self) -> str:
        return f"it is kept outside of {self.name}, and I only read files that {self.name} keeps."


class FileRefused(FileUnavailable):
    """The host answered with this status, and will not answer otherwise."""

    def __init__(self, status: int, friendly: str) -> None:
        super().__init__(f"download: status {status}")
        self.status, self.friendly = status, friendly


@asynccontextmanager
async def opened(
    session: aiohttp.ClientSession, address: str, host: FileHost
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Open the file at *address*. Raises `FileUnavailable`, and `FileRefused` for what a status says."""
    if not address:
        raise unavailable("no address", GONE)
    response = await _open(session, url_of(address), host)
    try:
        yield response
    finally:
        response.close()


async def read(response: aiohttp.ClientResponse, size: int) -> AsyncIterator[bytes]:
    """Give the content in chunks of 64 KB at most; it ends only when all of it was read.

    Raises `FileUnavailable`, also midway: what was read until then is incomplete.
    """
    count, why = 0, ""
    while not why:
        try:
            chunk = await response.content.read(CHUNK)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = type(error).__name__
        else:
            if not chunk:
                break
            count += len(chunk)
            yield chunk
    if why or count < size:  # where no length was given, an end and a cut look the same
        raise unavailable(f"{why} after {count} of {size} bytes", CUT)


def url_of(text: str) -> URL:
    """Return *text* as an address; an empty one if it is not valid."""
    try:
        return URL(text)
    except ValueError:
        return URL()


def unavailable(why: str, friendly: str) -> FileUnavailable:
    error = FileUnavailable(f"download: {why}")
    error.friendly = friendly
    return error


async def _open(session: aiohttp.ClientSession, url: URL, host: FileHost) -> aiohttp.ClientResponse:
    """Follow redirects to the file and return the opened answer. A failure that may pass costs one more try."""
    for _ in range(REDIRECTS + 1):
        if not host.trusts(url):
            raise unavailable(f"{url.host} is none of {host.name}'s hosts", host.elsewhere)
        try:
            response = await retry(partial(_get, session, url, host), (PAUSE_S,), partial(_log_retry, host))
        except TransportUnavailable as error:
            raise unavailable(str(error), error.friendly) from None
        if response.status == 200:
            return response
        response.close()
        url = url.join(url_of(response.headers.get("Location", "")))
    raise unavailable("too many redirects", host.trouble)


async def _get(session: aiohttp.ClientSession, url: URL, host: FileHost) -> aiohttp.ClientResponse:
    """Return the file or a redirect. Raises `FileRefused`, and `TransportUnavailable` for what may pass."""
    try:
        response = await session.get(
            url,
            headers={**host.headers, "Accept-Encoding": "identity"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=IDLE_S),
            proxy=proxy_for(str(url)),
        )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:  # aiohttp's errors hold the headers
        raise _may_pass(type(error).__name__, host.trouble) from None
    status, seconds = response.status, response.headers.get("Retry-After", "")
    if status == 200 or 300 <= status < 400:
        return response
    response.close()
    wait_s = float(seconds) if status == 429 and seconds.isdecimal() else None
    if (status == 429 or status >= 500) and (wait_s or 0) <= LONGEST_WAIT_S:
        raise _may_pass(f"status {status}", host.refusal(status), wait_s)
    raise FileRefused(status, host.refusal(status))


def _may_pass(why: str, friendly: str, retry_after: float | None = None) -> TransportUnavailable:
    error = TransportUnavailable(why, retry_after=retry_after)
    error.friendly = friendly
    return error


def _log_retry(host: FileHost, error: PostFailed, fields: Mapping[str, object]) -> None:
    log.info("file.download_retry: %s: %s", host.name, error, extra=fields)
