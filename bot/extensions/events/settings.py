"""The events that may start a turn, in settings.json: `events`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from bot.config.document import Document, object_in, plain
from bot.config.parts import SettingsPart
from bot.config.settings import CHANNEL, Name, Port, Secret, Section, Text, Url, matches, setting

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Form = Literal["standard", "github"]
OwnName = Annotated[str, matches(NAME, "must be of a-z, 0-9, _ and -, and begin with a letter or digit")]
Channel = Annotated[str, matches(CHANNEL, 'must be "transport:workspace:channel", such as "slack:T1:C1"')]


class Source(Section):
    """A sender of events. Its turns are those of `event:NAME`: access, scopes and budgets know it by that name."""

    channel: Channel = Field(description="Where its events are posted: transport:workspace:channel.")
    secret: Secret | None = setting(None, "Reference to what signs its requests; null takes `post` only.")
    form: Form = setting("standard", "How it signs: as Standard Webhooks says, or as GitHub does.")
    prompt: Text = setting("", "What the model is to do with an event; empty says so in general words.")
    playbook: OwnName | None = setting(None, "Playbook that an event starts, in place of a prompt.")
    per_minute: Annotated[int, Field(ge=1, le=60)] = setting(6, "Events a minute; more are refused.")


Sources = Annotated[dict[OwnName, Source], Field(max_length=20)]


class EventSettings(Section):
    """Events from outside. Without a port only commands on this machine send some."""

    host: Name = setting("127.0.0.1", "Address to listen at; loopback is this machine alone.")
    port: Port | None = setting(None, "Port of the webhook, at /events/NAME; null opens none.")
    public_url: Url | None = setting(None, "What senders call when a reverse proxy stands before it.")
    sources: Sources = Field(default_factory=dict, description="Senders by name.")


def _faults(document: Document) -> Iterator[str]:
    events = object_in(document.get("events"))
    host, url = events.get("host", "127.0.0.1"), events.get("public_url")
    if isinstance(url, str) and not url.startswith(("https://", "http://127.", "http://localhost")):
        yield "events.public_url: must be an https address"
    if isinstance(host, str) and host not in LOOPBACK and url is None:
        yield "events.host: other machines can reach this address; give public_url, of a reverse proxy with TLS"
    for name, source in object_in(events.get("sources")).items():
        from bot.routing.commands import parse  # noqa: PLC0415 - slow, and only where there are some

        given = object_in(source)
        path, prompt = f"events.sources.{plain(name)}", given.get("prompt", "")
        if prompt and given.get("playbook"):
            yield f"{path}: prompt and playbook exclude each other"
        if isinstance(prompt, str) and parse(prompt):
            yield f"{path}.prompt: must not be a command; give words for the model"


def _references(given: EventSettings | None) -> Mapping[str, str | None]:
    sources = given.sources if given else {}
    return {f"sources.{name}.secret": source.secret for name, source in sources.items()}


FIELD = FieldInfo(default=None, description="Events from outside that start a turn; null takes none.")
EVENTS = SettingsPart[EventSettings | None]("events", EventSettings | None, FIELD, _faults, _references)
