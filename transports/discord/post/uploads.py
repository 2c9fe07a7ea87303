"""Files out: what may be sent, and under which name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from threads.errors import PostFailed
from threads.store.attachments import safe_name
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.values import Upload
from transports.shared.delivery.files import size_of
from transports.shared.retry import retry

log = logging.getLogger(__name__)

PAUSE_S = 1.0

MAY_NOT = "I may not send files here: someone who manages this server has to let me attach files."


async def of_file(path: Path, name: str, max_bytes: int) -> Upload:
    """Return the file to send. Raises `TransportRejected` with the reason."""
    await size_of(path, max_bytes)
    return Upload(path, safe_name(name))


async def send(rest: Rest, channel: str, upload: Upload, *, nonce: str, reply_to: str) -> None:
    """Show a file in the channel, once: the second try has the same nonce. Raises `PostFailed`."""
    send_once = partial(rest.send, channel, "", nonce=nonce, reply_to=reply_to, upload=upload)
    try:
        await retry(send_once, (PAUSE_S,), _log_retry)
    except DiscordRefused as refused:
        if refused.kind == "forbidden":
            refused.friendly = MAY_NOT
        raise


def _log_retry(error: PostFailed, fields: Mapping[str, str | float]) -> None:
    log.warning("file.upload_failed: %s", error, extra=fields)
