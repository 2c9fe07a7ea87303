"""The roles of people. Live messages have them; for messages of the history Discord is asked."""

from __future__ import annotations

from dataclasses import replace

from cachetools import LRUCache

from threads.errors import TransportRejected
from threads.model import Author
from transports.discord.api.rest import Rest
from transports.discord.api.values import Place

REMEMBERED = 10_000
"""Members whose roles are known, for one session: afterwards they may have others."""


class Roles:
    """``matter`` are the roles that grant rights: others are dropped, and without any Discord is not asked."""

    def __init__(self, rest: Rest, matter: frozenset[str]) -> None:
        self._rest, self._matter = rest, matter
        self._known: LRUCache[tuple[str, str], tuple[str, ...]] = LRUCache(REMEMBERED)

    def forget(self) -> None:
        self._known.clear()

    def that_matter(self, author: Author) -> Author:
        return replace(author, roles=tuple(role for role in author.roles if role in self._matter))

    async def asked_for(self, author: Author, place: Place) -> Author:
        """Return the person with the roles they have there now. Raises `PostFailed`."""
        if not self._matter or place.kind == "direct":
            return author
        who = place.guild, author.id
        if (roles := self._known.get(who)) is None:
            try:
                roles = await self._rest.roles_of(*who)
            except TransportRejected:  # not a member any more
                roles = ()
            self._known[who] = roles
        return replace(author, roles=roles)
