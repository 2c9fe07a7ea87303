"""Decides who is served, by platform ids: ``*`` is everyone, an empty list is nobody.

A person is known by their id or by a role that they have; the channel must be served too. An admin is a user without
being listed twice, but also only in channels that are served.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.config.settings import Access
from threads.model import Author, Feedback, Incoming, ThreadId


def allowed(access: Access, event: Incoming | Feedback) -> bool:
    """Return whether a message, a command, a pressed button or a judgement is served."""
    return may_use(access, event.author, event.thread)


def may_use(access: Access, person: Author, thread: ThreadId) -> bool:
    """Return whether this person is served in this thread; a channel also counts by its workspace or guild."""
    known = (
        _listed(access.users, person.id)
        or is_admin(access, person.id)
        or not set(access.roles).isdisjoint(person.roles)
    )
    return known and (_listed(access.channels, thread.channel) or _listed(access.channels, thread.workspace))


def is_admin(access: Access, user_id: str) -> bool:
    """Return whether this person may grant, change and continue for everyone."""
    return _listed(access.admins, user_id)


def _listed(ids: Sequence[str], who: str) -> bool:
    return "*" in ids or who in ids
