"""Discord's files. Their signed addresses expire after about a day; the message has a new one. No token is sent.

https://docs.discord.com/developers/reference#signed-attachment-cdn-urls
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import aiohttp
from yarl import URL

from threads.errors import PostFailed
from threads.model import Attachment
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import is_snowflake
from transports.discord.events.message_text import attachments_of
from transports.shared.downloads import GONE, FileHost, FileRefused, opened, read, unavailable
from transports.shared.link.proxy import is_trusted

HOSTS = ("cdn.discordapp.com", "media.discordapp.net")

EXPIRED = (401, 403, 404, 410)
"""The statuses of an expired address; a deleted file answers so again."""

NO_ACCESS = (
    "I may not read it: whoever runs this bot needs to give me the permission to read this channel's history."
)


@asynccontextmanager
async def open_download(
    session: aiohttp.ClientSession, rest: Rest, attachment: Attachment, own: URL | None = None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open the file's content, in chunks of 64 KB at most; it ends only when all of it was read.

    *own* is what `own_origin` says. Raises `FileUnavailable`, also midway: what was read until then is incomplete.
    """
    host = FileHost("Discord", partial(trusted, own=own), NO_ACCESS)
    at = partial(opened, session, host=host)
    async with AsyncExitStack() as stack:
        try:
            response = await stack.enter_async_context(at(attachment.url))
        except FileRefused as error:
            if error.status not in EXPIRED:
                raise
            response = await stack.enter_async_context(at(await _address(rest, attachment, host)))
        yield read(response, attachment.size)


def trusted(url: URL, own: URL | None) -> bool:
    """Return whether *url* is one of Discord's file hosts."""
    return is_trusted(url, own, known_host=url.host in HOSTS)


async def _address(rest: Rest, attachment: Attachment, host: FileHost) -> str:
    """Return the file's address as its message has it now. Raises `FileUnavailable`."""
    ids = attachment.id.split("/")
    if len(ids) != 3 or not all(map(is_snowflake, ids)):
        raise unavailable("its message is not known", GONE)
    channel, message_id, file_id = ids
    try:
        message = await rest.message(channel, message_id)
    except DiscordRefused as error:
        friendly = {"gone": GONE, "forbidden": NO_ACCESS}.get(error.kind, host.trouble)
        raise unavailable(f"its message: {error}", friendly) from None
    except PostFailed as error:
        raise unavailable(f"its message: {error}", host.trouble) from None
    for file in attachments_of(message):
        if str(file.id) == file_id:
            return file.url
    raise unavailable("its message is without it now", GONE)
