"""After a restore, messages answered between the backup and the restore are not answered again.

The platforms hand over all messages since the backup, and the restored journal knows none of them. The old process
may have answered some. Its posts are on the platform, each with its key. So each such message is looked up first, and
skipped if its post is found. If the lookup fails, the platform is read again later.

Not covered: platforms that cannot find posts (the console), and messages whose outcome has no post of its own (merged
into another turn, or stopped). They are served again. The restored conversations lack what was said after the backup.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from threads.delivery import Outlet
from threads.errors import PostFailed, StoreUnavailable, TransportRejected
from threads.model import Inbound, Incoming, Outcome, Sink
from threads.store.json_file import JsonState

log = logging.getLogger(__name__)

NAME = "restored.json"


class Restored(JsonState):
    """The backup that a folder came from. Times are UTC, and ``backup_at`` is the time of the backup."""

    backup: str
    backup_at: AwareDatetime
    restored_at: AwareDatetime


def restored(data: Path) -> Restored | None:
    """Return the backup that the folder came from, or None. Blocking. Raises OSError."""
    try:
        return Restored.model_validate_json((data / NAME).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.warning(
            "restore.damaged: %s is damaged, so what was answered since the backup may be answered again: %s",
            NAME,
            error,
        )
        return None


def skip_answered(
    receive: Sink,
    came: Restored | None,
    knows: Callable[[str], Awaitable[bool]],
    outlets: Mapping[str, Outlet],
) -> Sink:
    """Return a sink that skips messages answered before the restore. Without a restore it is *receive* itself."""
    if came is None:
        return receive
    until = came.restored_at

    async def skip(event: Inbound) -> Outcome | None:
        if (
            isinstance(event, Incoming)
            and _said_before(event, until)
            and not await knows(event.key)
            and await _answered(event, outlets)
        ):
            ids = {"thread_id": str(event.thread), "message_id": event.id}
            log.info("restore.spared: answered before the backup was restored", extra=ids)
            return None
        return await receive(event)

    return skip


def _said_before(incoming: Incoming, until: datetime) -> bool:
    try:
        return datetime.fromisoformat(incoming.sent_at) < until
    except (ValueError, TypeError):  # no time, or one without a zone: a press, which is not read again
        return False


async def _answered(incoming: Incoming, outlets: Mapping[str, Outlet]) -> bool:
    """Look a message's post up. Raises `StoreUnavailable` if that is not possible now, so the message comes again."""
    outlet = outlets.get(incoming.thread.transport)
    if outlet is None or not outlet.finds:
        return False
    try:
        return await outlet.find(incoming.thread, incoming.key) is not None
    except TransportRejected as refused:
        log.warning("restore.unseen: whether it was answered before the restore cannot be seen: %s", refused)
        return False
    except PostFailed as error:
        raise StoreUnavailable(
            f"whether it was answered before the restore cannot be seen now: {error}"
        ) from error
