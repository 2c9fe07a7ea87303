"""What becomes an event, whichever way it came, and the command's way: a POST to the socket of the data folder."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated

import h11
from anyio.abc import ByteStream
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.extensions.events.accepted import AcceptedEvents, Event, event_id
from bot.extensions.events.refused import Refused
from bot.extensions.events.request import MOST_BYTES, answer, read_body, text_in
from bot.extensions.events.settings import Channel, EventSettings, OwnName, Source

PATH = "/post"
"""Where the command posts."""

OWN_NAME = "post"
"""The source of an event that names none."""


class PostBody(BaseModel):
    """What `threadfast post` sends. ``channel`` is a channel, or the name of a source, which stands for its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    channel: Channel | OwnName
    text: Annotated[str, Field(max_length=MOST_BYTES)]
    source: OwnName | None = None
    key: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class Intake:
    given: EventSettings
    accepted: AcceptedEvents

    async def take(self, name: str, channel: str, text: str, key: str) -> str:
        """Return the id of an event once it is durable. Raises `Refused`, and `StoreUnavailable`."""
        source = self.given.sources.get(name) or Source(channel=channel, per_minute=60)
        asks = f"/play {source.playbook}" if source.playbook else source.prompt
        one, at = event_id(name, key), self.accepted.now()
        event = Event(id=one, source=name, channel=channel, asks=asks, text=text, at=at)
        await self.accepted.accept(event, source.per_minute)
        return one

    async def post(self, stream: ByteStream, peer: h11.Connection, _request: h11.Request) -> None:
        """Take what the command posts. Raises nothing that the socket does not expect."""

        async def take() -> str:
            try:
                given = PostBody.model_validate_json(await read_body(stream, peer))
            except ValidationError as error:
                raise Refused(422, error.errors()[0]["msg"]) from error
            name, channel = given.source or OWN_NAME, given.channel
            if ":" not in channel:
                if (source := self.given.sources.get(channel)) is None:
                    raise Refused(404, f"there is no source {channel} in events.sources")
                name, channel = given.source or channel, source.channel
            text = text_in(given.text.encode("utf-8", "replace"))
            return await self.take(name, channel, text, given.key or uuid.uuid4().hex)

        await answer(stream, peer, take, "post")
