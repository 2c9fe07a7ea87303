"""A running bot that takes events."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio

from bot.config.load import resolve_secret
from bot.extensions.events.accepted import AcceptedEvents, AcceptedFile
from bot.extensions.events.intake import PATH, Intake
from bot.extensions.events.settings import EventSettings
from bot.extensions.events.signature import secret_bytes
from bot.extensions.events.starter import Starter
from bot.extensions.events.webhook import Webhook
from bot.host.extension import Host, Running
from bot.observe.http_server import serve_on
from threads.background import background_tasks


@asynccontextmanager
async def open_events(given: EventSettings, host: Host) -> AsyncIterator[Running]:
    """Take events during this block.

    Raises `ConfigInvalid` for a secret that cannot be used, OSError for a port that is taken, and as `States.open`.
    """
    keys = await host.offload(_keys, given, host.environ)
    state = await host.states.open("accepted", AcceptedFile())
    alone = host.settings.store.kind == "files"
    accepted = AcceptedEvents(state, lambda: host.now().timestamp(), uuid.uuid4().hex, alone)
    intake, starter = Intake(given, accepted), Starter(host, accepted)
    async with background_tasks() as tasks:
        tasks.start_soon(starter.run)
        if (port := given.port) is not None:  # workers on one machine share the port
            tcp = await anyio.create_tcp_listener(local_host=given.host, local_port=port, reuse_port=True)
            tasks.start_soon(serve_on, tcp, Webhook(given, intake, keys).serve)
        facts = {"events": f"of {', '.join(given.sources) or 'nobody but `threadfast post`'}"}
        posts = {PATH: intake.post}
        yield Running(facts=facts, troubles=starter.troubles, receiving=starter.receiving, posts=posts)


def _keys(given: EventSettings, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return what signs the requests of each source. Blocking. Raises `ConfigInvalid`."""
    secrets = {name: source.secret for name, source in given.sources.items() if source.secret}
    return {name: secret_bytes(resolve_secret(secret, environ)) for name, secret in secrets.items()}
