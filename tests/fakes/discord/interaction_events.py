"""Buttons, slash commands and the menu of messages: what arrives as INTERACTION_CREATE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.discord.ids import APP, GRANTED, GUILD, PERMISSIONS, Json
from tests.fakes.discord.interactions import AUTOCOMPLETE, COMMAND, COMPONENT, Interaction
from tests.fakes.discord.people import People
from tests.fakes.discord.records import Channel, Message
from tests.fakes.discord.views import channel_view, member, message_view

Value = str | int | bool | float


class InteractionEvents(People):
    deadline = 3.0
    upload_limit: int

    def __init__(self, *times: Any) -> None:
        super().__init__(*times)
        self.interactions: dict[str, Interaction] = {}
        """By their tokens."""
        self.commands: list[Json] = []
        """The global commands that the app has, as it told them last."""

    def press(self, user: str, said: str | Message, custom_id: str, *, stale: bool = False) -> Interaction:
        """Press a button. One that is not shown cannot be pressed (LookupError), unless the view is *stale*."""
        message = self.message(said)
        if not stale and custom_id not in {shown for _, shown in message.buttons}:
            raise LookupError(f"no button {custom_id!r} on {message.id}: {message.buttons}")
        data = {"custom_id": custom_id, "component_type": 2, "id": 2}
        return self._interact(COMPONENT, user, message.channel, data, message)

    def slash(
        self, user: str, channel: str, name: str, options: Mapping[str, Value] | None = None
    ) -> Interaction:
        """A slash command."""
        given = [_option(key, value) for key, value in (options or {}).items()]
        return self._interact(COMMAND, user, channel, self._command(name, given))

    def autocomplete(self, user: str, channel: str, name: str, option: str, typed: str = "") -> Interaction:
        """Somebody types in an option of a command; the answer is in ``choices``."""
        given = [_option(option, typed) | {"focused": True}]
        return self._interact(AUTOCOMPLETE, user, channel, self._command(name, given))

    def choose(self, user: str, said: str | Message, name: str) -> Interaction:
        """A choice in the menu of a message. One that the app has not registered cannot be made (LookupError)."""
        message = self.message(said)
        known = next((one["id"] for one in self.commands if (one["name"], one["type"]) == (name, 3)), None)
        if known is None:
            raise LookupError(f"no {name!r} in the menu: {self.commands}")
        data: Json = {"id": known, "name": name, "type": 3, "target_id": message.id}
        data["resolved"] = {"messages": {message.id: message_view(self, message)}}
        return self._interact(COMMAND, user, message.channel, data)

    def _command(self, name: str, options: list[Json]) -> Json:
        known = next((one["id"] for one in self.commands if one["name"] == name), None)
        data: Json = {"id": known or self.snowflake(), "name": name, "type": 1}
        return data | ({"options": options} if options else {})

    def _granted(self, channel: Channel) -> str:
        denied = channel.denied | self.channels.get(channel.parent, channel).denied
        return str(GRANTED & ~sum(PERMISSIONS[name] for name in denied))

    def _interact(
        self, type: int, user: str, channel: str, data: Json, message: Message | None = None
    ) -> Interaction:
        place = self.place(channel)
        number = self.snowflake()
        made = Interaction(
            number, f"token-{number}", type, user, channel, self.clock(), self.deadline, message
        )
        self.interactions[made.token] = made
        payload: Json = {
            "id": number,
            "application_id": APP,
            "type": type,
            "token": made.token,
            "version": 1,
            "data": data,
            "channel_id": channel,
            "channel": channel_view(self, place) | {"permissions": str(GRANTED)},
            "app_permissions": self._granted(place),
            "locale": "en-US",
            "entitlements": [],
            "entitlement_sku_ids": [],
            "authorizing_integration_owners": {"0": place.guild or "0"},
            "context": 0 if place.guild else 1,
            "attachment_size_limit": self.upload_limit,
        }
        if place.guild:
            payload |= {"guild_id": GUILD, "guild_locale": "en-US"}
            payload["guild"] = {"id": GUILD, "locale": "en-US", "features": []}
            payload["member"] = member(self, user) | {"permissions": str(GRANTED)}
        else:
            payload["user"] = self.users[user].view()
        if message:
            payload["message"] = message_view(self, message)
        self.tell("INTERACTION_CREATE", payload, family="")
        return made

    def stop_waiting(self) -> None:
        for made in self.interactions.values():
            made.heard.set()


def _option(name: str, value: Value) -> Json:
    kind = 5 if isinstance(value, bool) else {str: 3, int: 4, float: 10}[type(value)]
    return {"name": name, "type": kind, "value": value}
