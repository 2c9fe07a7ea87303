"""The one decision who is served: by platform ids, ``*`` is everyone, an empty list is nobody.

Both lists must agree. An admin is a user without being listed twice, but also only in channels that are served.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.settings_model import Access
from threads.model import Feedback, Incoming, ThreadId


def allowed(access: Access, event: Incoming | Feedback) -> bool:
    """Return whether this is served: a message, a command, a pressed button, a judgement."""
    return may_use(access, event.author.id, event.thread)


def may_use(access: Access, user_id: str, thread: ThreadId) -> bool:
    """Return whether this person is served in this thread; a channel also counts by its workspace or guild."""
    known = _listed(access.users, user_id) or is_admin(access, user_id)
    return known and (_listed(access.channels, thread.channel) or _listed(access.channels, thread.workspace))


def is_admin(access: Access, user_id: str) -> bool:
    """Return whether this person may grant, change and continue for everyone."""
    return _listed(access.admins, user_id)


def _listed(ids: Sequence[str], who: str) -> bool:
    return "*" in ids or who in ids
