"""Decides by platform ids who may use the bot: ``*`` is everyone, an empty list is nobody.

A person is listed by id or by a role. The channel must be listed too. An admin counts as a user, but only in listed
channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.config.scopes import CurrentSettings, Place
from bot.config.settings import Access
from threads.model import Author, Feedback, Incoming, ThreadId


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Decides with the settings that hold now, in the place of each event."""

    current: CurrentSettings

    def allowed(self, event: Incoming | Feedback) -> bool:
        """Return whether a message, a command, a press or a feedback is accepted."""
        return allowed(self.current.at(Place.of(event)).settings.access, event)

    def may_use(self, person: Author, thread: ThreadId) -> bool:
        """Return whether this person may use the bot in this thread."""
        access = self.current.at(Place.in_thread(thread, person.id)).settings.access
        return may_use(access, person, thread)

    def is_admin(self, user_id: str) -> bool:
        """Return whether this person is an admin. No scope changes that."""
        return is_admin(self.current.settings.access, user_id)


def allowed(access: Access, event: Incoming | Feedback) -> bool:
    """Return whether a message, a command, a press or a feedback is accepted."""
    return may_use(access, event.author, event.thread)


def may_use(access: Access, person: Author, thread: ThreadId) -> bool:
    """Return whether this person may use the bot in this thread. A channel also counts by its workspace or guild."""
    known = (
        _listed(access.users, person.id)
        or is_admin(access, person.id)
        or not set(access.roles).isdisjoint(person.roles)
    )
    return known and (_listed(access.channels, thread.channel) or _listed(access.channels, thread.workspace))


def is_admin(access: Access, user_id: str) -> bool:
    """Return whether this person may grant money, change settings and decide for others."""
    return _listed(access.admins, user_id)


def _listed(ids: Sequence[str], who: str) -> bool:
    return "*" in ids or who in ids
