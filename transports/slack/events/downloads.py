"""Slack's files. The token goes to Slack's hosts only.

Without the files:read scope Slack answers 200 and a login page (docs.slack.dev, "Working with files").
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
from yarl import URL

from threads.model import Attachment
from transports.shared.downloads import FileHost, opened, read, unavailable
from transports.slack.api.http_session import trusted

NO_ACCESS = "I may not read files here: whoever runs this bot needs to add the files:read permission."


@asynccontextmanager
async def open_download(
    session: aiohttp.ClientSession,
    attachment: Attachment,
    *,
    token: str,
    own: URL | None = None,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the file's content, in chunks of 64 KB at most; it ends only when all of it was read.

    *own* is what `own_origin` says. Raises `FileUnavailable`, also midway: what was read until then is incomplete.
    """
    slack = FileHost("Slack", partial(trusted, own=own), NO_ACCESS, {"Authorization": f"Bearer {token}"})
    async with opened(session, attachment.url, slack) as response:
        _check(response, attachment)
        yield read(response, attachment.size)


def _check(response: aiohttp.ClientResponse, attachment: Attachment) -> None:
    length = response.content_length
    if response.content_type == "text/html" and (
        not _is_html(attachment) or (length is not None and attachment.size and length != attachment.size)
    ):
        raise unavailable("a login page in place of the file", NO_ACCESS)


def _is_html(attachment: Attachment) -> bool:
    return attachment.media_type == "text/html" or attachment.name.lower().endswith((".html", ".htm"))
