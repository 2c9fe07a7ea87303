"""Files out: what may be sent, and what a long answer's file is called."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import anyio

from threads.errors import TransportRejected


def rejected(why: str, friendly: str) -> TransportRejected:
    error = TransportRejected(why)
    error.friendly = friendly
    return error


async def size_of(path: Path, max_bytes: int) -> int:
    """Return a file's size in bytes. Raises `TransportRejected`, friendly, if it cannot be sent."""
    try:
        size = (await anyio.Path(path).stat()).st_size
    except OSError as error:
        raise rejected(f"attach: {error}", "The file cannot be read.") from error
    if size == 0:
        raise rejected("attach: the file is empty", "The file is empty, and empty files cannot be sent.")
    if size > max_bytes:
        why = f"The file has {size / 2**20:.1f} MiB; I may send {max_bytes / 2**20:.3g} MiB here at most."
        raise rejected(f"attach: {size} bytes", why)
    return size


def file_name(key: str) -> str:
    """Return the name of the file that holds a text too long to be read in messages."""
    return f"answer-{sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}.md"
