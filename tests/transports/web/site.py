"""The page of a real bot for a test: its own port, a link to enter with, and a client that is signed in."""

from __future__ import annotations

import json
import re
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import httpx2

from bot.config.extensions import settings_model
from bot.config.scopes import CurrentSettings
from bot.host.extension import TransportHost
from bot.host.model_settings import offered
from bot.observe.event_stream import EventStream
from bot.wiring.app import serve
from tests.patience import WITHIN_S
from tests.serving import FAST, KEYS
from threads.background import background_tasks
from transports.web.client import WebTransport
from transports.web.page import make_page
from transports.web.routes import TOKEN
from transports.web.sessions import Person

OWNER = "you"


@dataclass
class Site:
    """``web`` is the transport; ``links`` are those that it has told, and ``events`` feeds the admins' pages."""

    web: WebTransport | None = None
    events: EventStream = field(default_factory=EventStream)
    links: list[str] = field(default_factory=list)
    opened: anyio.Event = field(default_factory=anyio.Event)
    stopping: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)

    async def stop(self) -> None:
        """Stop the bot, while the page stays open."""
        self.stopping.set()
        await self.stopped.wait()

    def open(self, link: str) -> None:
        self.links.append(link)
        self.opened.set()

    @property
    def url(self) -> str:
        return self.web.address.url

    def link(self, person: str = OWNER, name: str = "") -> str:
        """Return the secret of a new link."""
        return self.web.sessions.link(Person(id=person, name=name))


@asynccontextmanager
async def serving_page(
    data: Path,
    fields: Mapping[str, object] | None = None,
    *,
    model: str = "offline/demo",
    environ: Mapping[str, str] = KEYS,
    port: int = 0,
    web: Mapping[str, object] | None = None,
    **more,
) -> AsyncIterator[Site]:
    """Serve the page over *data* until the block ends; *fields* are those of the settings."""
    given = {
        **FAST,
        "access": {"admins": [OWNER]},
        **(fields or {}),
        "data": data,
        "transports": {"web": {"port": port, "titles": False, **(web or {})}},
    }
    settings = settings_model().model_validate(given, strict=False)
    settings.data.mkdir(exist_ok=True)
    site, answering = Site(), []

    def make(storage):
        site.web = make_page(
            TransportHost(
                "web",
                settings.transports.web,
                CurrentSettings(settings),
                environ,
                storage,
                offered(settings, model),
                lambda _: None,
                lambda: None,
                site.events,
                site.open,
                lambda: answering[-1] if answering else None,
            )
        )
        return [site.web]

    async with background_tasks() as tasks:
        run = partial(
            serve, settings, environ, model=model, make_transports=make, on_agents=answering.append, **more
        )
        tasks.start_soon(_serve, site, run)
        with anyio.fail_after(WITHIN_S):
            await site.opened.wait()
        yield site


async def _serve(site: Site, work) -> None:
    async with background_tasks() as tasks:
        tasks.start_soon(work)
        await site.stopping.wait()
    site.stopped.set()


class Visitor(httpx2.AsyncClient):
    """A browser without a screen: it follows the rules of the page."""

    def __init__(self, site: Site) -> None:
        super().__init__(base_url=site.url, headers={"Origin": site.url}, timeout=10)
        self.site = site

    async def enter(self, person: str = OWNER) -> None:
        answer = await self.post("/api/enter", json={"link": self.site.link(person)})
        assert answer.status_code == 200, answer.text
        page = (await self.get("/")).text
        self.headers[TOKEN] = re.search(r'name="token" content="([0-9a-f]+)"', page)[1]

    async def say(self, text: str, thread: str, *, files=(), message_id: str = "") -> str:
        message_id = message_id or str(uuid.uuid4())
        body = {"id": message_id, "thread": thread, "text": text, "files": list(files)}
        answer = await self.post("/api/messages", json=body)
        assert answer.status_code == 202, answer.text
        return message_id

    @asynccontextmanager
    async def events(self, thread: str, last_id: str = "") -> AsyncIterator[PageEvents]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        async with self.stream("GET", "/api/events", params={"thread": thread}, headers=headers) as answer:
            assert answer.status_code == 200
            yield PageEvents(answer)


class PageEvents:
    """Reads server-sent events. ``last_id`` is what a browser would send after a lost connection."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._lines = answer.aiter_lines()
        self.last_id = ""
        self.seen: list[dict] = []
        self._unread: deque[dict] = deque()

    async def until(self, op: str, **more: object) -> dict:
        """Read on to the event of this kind with these fields; snapshots are unpacked."""
        with anyio.fail_after(WITHIN_S):
            while True:
                while self._unread:
                    self.seen.append(event := self._unread.popleft())
                    if event["op"] == op and more.items() <= event.items():
                        return event
                await self._read()

    async def _read(self) -> None:
        name, _, value = (await anext(self._lines)).partition(": ")
        if name == "id":
            self.last_id = value
        if name == "data":
            for event in json.loads(value):
                self._unread.extend(event.get("events", ()))
                self._unread.append(event)


@asynccontextmanager
async def visiting(data: Path, fields: Mapping[str, object] | None = None, **more) -> AsyncIterator[Visitor]:
    """Serve the page, and yield a visitor who is signed in as its owner."""
    async with serving_page(data, fields, **more) as site, Visitor(site) as visitor:
        await visitor.enter()
        yield visitor
