"""What people are called: looked up when it is to be read, and remembered."""

from __future__ import annotations

from collections.abc import Iterable

from transports.slack.api.json_fields import Shape, identifier, part, string
from transports.slack.api.web_api import Web

MOST_AT_ONCE = 20
"""Names that one look at a thread asks for; the others stay ids."""

MOST_KNOWN = 5_000


class UserNames:
    """``known`` leads from a user's id to their name."""

    def __init__(self, web: Web) -> None:
        self.known: dict[str, str] = {}
        self._web = web

    async def of(self, user: str) -> str:
        """Return a person's name; "" when it cannot be had now."""
        await self.learn([{"user": user}])
        return self.known.get(user, "")

    async def learn(self, messages: Iterable[Shape]) -> None:
        """Ask who wrote these, as far as the limits have calls to spare."""
        unknown = dict.fromkeys(identifier(message, "user") for message in messages)
        for user in [user for user in unknown if user and user not in self.known][:MOST_AT_ONCE]:
            if not (answer := await self._web.try_call("users.info", user=user)):
                return
            person = part(answer, "user")
            profile = part(person, "profile")
            names = (string(profile, "display_name"), string(profile, "real_name"), string(person, "name"))
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[user] = next(filter(None, names), "")
