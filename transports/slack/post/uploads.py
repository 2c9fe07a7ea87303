"""Files out: Slack gives an upload URL, the bytes go there, and then the file is shared in a thread.

Slack does not return the ts of the message with the file (docs.slack.dev, "Working with files"): it is found by the
file's id or name. Until `share` nobody sees anything, so everything before it may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from io import BytesIO
from pathlib import Path

import aiohttp
import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportUnavailable
from transports.shared.delivery.files import rejected, size_of
from transports.shared.link.proxy import proxy_for
from transports.shared.retry import retry
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.web_api import WebApi

log = logging.getLogger(__name__)

MAX_BYTES = 50_000_000
"""Our own limit; Slack takes 1 GB."""

CHUNK = 64 * 1024
PAUSE_S = 1.0
TIMEOUT = aiohttp.ClientTimeout(total=300, sock_connect=5, sock_read=60)

Source = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes] | BytesIO]]
"""Opens a content anew each time it is called."""

MAY_NOT = "I may not send files here: whoever runs this bot needs to add the files:write permission."


def of_text(text: str) -> tuple[Source, int]:
    data = text.encode("utf-8", "replace")
    return lambda: nullcontext(BytesIO(data)), len(data)


async def of_file(path: Path, max_bytes: int) -> tuple[Source, int]:
    """Return what reads the file in chunks, and its size. Raises `TransportRejected` with the reason."""
    size = await size_of(path, max_bytes)

    @asynccontextmanager
    async def source() -> AsyncIterator[AsyncIterator[bytes]]:
        async with await anyio.open_file(path, "rb") as file:
            yield _read(file, size)

    return source, size


async def _read(file: anyio.AsyncFile[bytes], size: int) -> AsyncIterator[bytes]:
    while size and (chunk := await file.read(min(CHUNK, size))):
        size -= len(chunk)
        yield chunk
    if size:
        raise OSError("the file became shorter while it was sent")


async def upload(web: WebApi, source: Source, size: int, name: str) -> str:
    """Upload the bytes and return the file's id; nobody sees it yet. Raises `PostFailed`."""
    try:
        answer = await web.call("files.getUploadURLExternal", filename=name, length=size)
    except SlackRefused as refused:
        if refused.kind == "scope":
            refused.friendly = MAY_NOT
        raise
    match answer:
        case {"upload_url": str(url), "file_id": str(file_id)}:
            await retry(partial(_put, web.session, url, source, size), (PAUSE_S,), _log_retry)
            return file_id
    raise TransportUnavailable("files.getUploadURLExternal: no address in the answer")


def _log_retry(error: PostFailed, fields: Mapping[str, object]) -> None:
    log.warning("file.upload_failed: %s", error, extra=fields)


async def _put(session: aiohttp.ClientSession, url: str, source: Source, size: int) -> None:
    """Send the bytes. Raises `TransportUnavailable` if another try may work, and `TransportRejected`.

    The address is Slack's word and a secret of its own: no token goes there, and it is not logged.
    """
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
    try:
        async with (
            source() as body,
            session.post(
                url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False, proxy=proxy_for(url)
            ) as response,
        ):
            status = response.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise TransportUnavailable(f"upload: {type(error).__name__}") from None
    if status >= 500 or status == 429:
        raise TransportUnavailable(f"upload: status {status}")
    if status != 200:
        raise rejected(f"upload: status {status}", "Slack did not take the file.")


async def share(web: WebApi, file_id: str, name: str, channel: str, root: str) -> None:
    """Show an uploaded file in the thread. Raises `PostFailed`; a lost answer is ``maybe_posted``."""
    files: list[JsonValue] = [{"id": file_id, "title": name}]
    await web.call("files.completeUploadExternal", files=files, channel_id=channel, thread_ts=root or None)
