"""The roles of people: told by Discord with what they say, but not in its history, where they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from threads.errors import TransportRejected
from threads.model import Author
from transports.discord.api.rest import Rest
from transports.discord.api.values import Place

REMEMBERED = 10_000
"""Members whose roles are known, for one session: afterwards they may have others."""


class Roles:
    """``matter`` are those that rights hang on: of others nothing is kept, and without any nobody is asked for."""

    def __init__(self, rest: Rest, matter: frozenset[str]) -> None:
        self._rest, self._matter = rest, matter
        self._known: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def forget(self) -> None:
        self._known.clear()

    def that_matter(self, author: Author) -> Author:
        return replace(author, roles=tuple(role for role in author.roles if role in self._matter))

    async def asked_for(self, author: Author, place: Place) -> Author:
        """Return the person with the roles they have there now. Raises `PostFailed`."""
        if not self._matter or place.kind == "direct":
            return author
        who = place.guild, author.id
        if who not in self._known:
            try:
                self._known[who] = await self._rest.roles_of(*who)
            except TransportRejected:  # who is no member any more
                self._known[who] = ()
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return replace(author, roles=self._known[who])
