"""The display names of people: looked up on demand, and cached."""

from __future__ import annotations

from collections.abc import Iterable

from cachetools import LRUCache

from transports.slack.api.json_fields import Shape, identifier, part, string
from transports.slack.api.web_api import Web

MOST_AT_ONCE = 20
"""Look-ups for one thread; the other people stay ids."""

MOST_KNOWN = 5_000


class UserNames:
    """``known`` leads from a user's id to their name."""

    def __init__(self, web: Web) -> None:
        self.known: LRUCache[str, str] = LRUCache(MOST_KNOWN)
        self._web = web

    async def of(self, user: str) -> str:
        """Return a person's name, or "" if it cannot be read now."""
        await self.learn([{"user": user}])
        return self.known.get(user, "")

    async def learn(self, messages: Iterable[Shape]) -> None:
        """Look up the authors of these messages, as far as the rate limits allow."""
        unknown = dict.fromkeys(identifier(message, "user") for message in messages)
        for user in [user for user in unknown if user and user not in self.known][:MOST_AT_ONCE]:
            if not (answer := await self._web.try_call("users.info", user=user)):
                return
            person = part(answer, "user")
            profile = part(person, "profile")
            names = (string(profile, "display_name"), string(profile, "real_name"), string(person, "name"))
            self.known[user] = next(filter(None, names), "")
