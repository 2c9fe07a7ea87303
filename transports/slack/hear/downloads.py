"""Files in: the content of what people attach, read piece by piece, with the token shown to Slack's hosts alone.

A private file needs ``Authorization: Bearer`` and the files:read scope; without them Slack answers 200 and a login
page (docs.slack.dev, "Working with files"). Whatever keeps a file from us becomes one `FileUnavailable`, whose
``friendly`` is for the thread and for the model.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
from yarl import URL

from threads.errors import FileUnavailable
from threads.model import Attachment
from transports.slack.wire.http import proxy_for, trusted

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
REDIRECTS = 5
IDLE_S = 30.0
"""A download that stays silent for so long is given up."""

TRIES = 2
PAUSE_S = 1.0
LONGEST_WAIT_S = 20.0
"""A Retry-After is obeyed once, up to here: the turn waits for its files."""

NO_ACCESS = "I may not read files here: whoever runs this bot needs to add the files:read permission."
GONE = "it is not there any more."
NOT_SLACKS = "it is kept outside of Slack, and I only read files that Slack keeps."
TROUBLE = "Slack did not hand the file over. Sending it again may help."
BUSY = "Slack asks me to wait before I read more files. Try again in a minute."
CUT = "it broke off while I was reading it. Sending it again may help."
TOO_LARGE = "it is too large for me."

REFUSED = {401: NO_ACCESS, 403: NO_ACCESS, 404: GONE, 410: GONE, 429: BUSY}


@asynccontextmanager
async def open_download(
    session: aiohttp.ClientSession,
    attachment: Attachment,
    *,
    token: str,
    own: URL | None = None,
    max_bytes: int | None = None,
    idle_s: float = IDLE_S,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the file's content, in chunks of 64 KB at most; it ends only when all of it was read.

    *own* is what `own_origin` says. Raises `FileUnavailable`, also midway: what was read until then is incomplete.
    """
    if not attachment.url:
        raise _unavailable("no address", GONE)
    _fits(attachment.size, max_bytes)
    response = await _open(session, _address(attachment.url), token, own, idle_s)
    try:
        _check(response, attachment, max_bytes)
        yield _read(response, attachment)
    finally:
        response.close()


async def _open(
    session: aiohttp.ClientSession, url: URL, token: str, own: URL | None, idle_s: float
) -> aiohttp.ClientResponse:
    """Follow redirects to the file and return the opened answer; one try more for what may pass."""
    redirects = failures = 0
    while True:
        if not trusted(url, own):
            raise _unavailable(f"{url.host} is none of Slack's hosts", NOT_SLACKS)
        last = failures + 1 >= TRIES
        response = await _get(session, url, token, idle_s)
        if isinstance(response, str):
            pause = PAUSE_S
            if last:
                raise _unavailable(response, TROUBLE)
        elif response.status == 200:
            return response
        else:
            response.close()
            if 300 <= response.status < 400 and redirects < REDIRECTS:
                redirects += 1
                url = _next(url, response)
                continue
            pause = _pause(response, last=last)
        failures += 1
        await anyio.sleep(pause)


async def _get(
    session: aiohttp.ClientSession, url: URL, token: str, idle_s: float
) -> aiohttp.ClientResponse | str:
    """Return the answer, or what went wrong in a word: aiohttp's errors hold the token, and are not let out."""
    try:
        return await session.get(
            url,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=idle_s),
            proxy=proxy_for(str(url)),
        )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return type(error).__name__


def _next(url: URL, response: aiohttp.ClientResponse) -> URL:
    """Return where a redirect leads; the caller checks the host before it shows the token there."""
    return url.join(_address(response.headers.get("Location", "")))


def _address(text: str) -> URL:
    try:
        return URL(text)
    except ValueError:
        return URL()


def _pause(response: aiohttp.ClientResponse, *, last: bool) -> float:
    """Return how long to wait before the next try, or refuse."""
    status, pause = response.status, PAUSE_S
    if status == 429:
        told = response.headers.get("Retry-After", "")
        pause = float(told) if told.isdecimal() else PAUSE_S
    if (status == 429 or status >= 500) and not last and pause <= LONGEST_WAIT_S:
        return pause
    raise _unavailable(f"status {status}", REFUSED.get(status, TROUBLE))


def _fits(size: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size > max_bytes:
        raise _unavailable(f"{size} bytes", TOO_LARGE)


def _check(response: aiohttp.ClientResponse, attachment: Attachment, max_bytes: int | None) -> None:
    length = response.content_length
    _fits(length or 0, max_bytes)
    if response.content_type == "text/html" and (
        not _is_html(attachment) or (length is not None and attachment.size and length != attachment.size)
    ):
        raise _unavailable("a login page in place of the file", NO_ACCESS)


def _is_html(attachment: Attachment) -> bool:
    return attachment.media_type == "text/html" or attachment.name.lower().endswith((".html", ".htm"))


async def _read(response: aiohttp.ClientResponse, attachment: Attachment) -> AsyncIterator[bytes]:
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
    if why or count < attachment.size:  # where no length was given, an end and a cut look the same
        raise _unavailable(f"{why} after {count} of {attachment.size} bytes", CUT)


def _unavailable(why: str, friendly: str) -> FileUnavailable:
    error = FileUnavailable(f"download: {why}")
    error.friendly = friendly
    return error
