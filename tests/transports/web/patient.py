"""A page as its script keeps it: every event of its stream by key, over all reconnects, without a browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2

from tests.patience import WITHIN_S
from tests.transports.web.site import Visitor
from threads.background import background_tasks

RETRY_S = 0.2
Fields = dict[str, Any]


def words(tree: list[Any]) -> str:
    """Return the text of a tree, its blocks apart."""
    return "".join(node if isinstance(node, str) else words(node[2:]) + _end(node) for node in tree)


def apply_change(tree: list[Any], change: list[Any]) -> None:
    """Change a tree as the page does."""
    path, keep, more, nodes = change
    inside, first = tree, 0
    for place in path:
        inside, first = inside[first + place], 2
    del inside[first + keep :]
    if more:
        inside[-1] += more
    inside.extend(nodes)


def _end(node: list[Any]) -> str:
    return "\n" if node[0] in {"p", "pre", "li", "br"} else ""


class Shown:
    """One message: its state, and by key what stands under it, in the order of appearance."""

    def __init__(self) -> None:
        self.state, self.text = "waiting", ""
        self.parts: list[list[Any]] = []
        self.posts: dict[str, Fields] = {}
        self.files: dict[str, Fields] = {}

    @property
    def draft(self) -> str:
        return "".join(map(words, self.parts)).strip()

    def apply(self, event: Fields) -> None:
        match event["op"]:
            case "message" | "edit":
                self.text = event["text"]
            case "started" if self.state == "waiting":
                self.state, self.text = "running", event["text"]
            case "draft":
                self.parts += [[] for _ in range(event["part"] + 1 - len(self.parts))]
                for change in event["changes"]:
                    apply_change(self.parts[event["part"]], change)
            case "post":
                self.posts[event["key"]] = {**event}
                if event["key"] == event["id"]:
                    self.parts = []
            case "file":
                self.files[event["key"]] = event
            case "closed" if event["key"] in self.posts:
                self.posts[event["key"]] |= {"choices": [], "decision": event["decision"]}
            case "settled":
                self.state, self.parts = event["outcome"], []
                for post in self.posts.values():
                    if post["kind"] == "notice" and post["choices"]:
                        post |= {"choices": [], "decision": "Not decided."}
            case _:
                pass


class Page:
    """``seen`` are all events that ever came, ``messages`` what is on the page now."""

    def __init__(self) -> None:
        self.messages: dict[str, Shown] = {}
        self.seen: list[Fields] = []
        self.last_id, self.reconnected = "", 0
        self._news = anyio.Event()

    def apply(self, event: Fields) -> None:
        self.seen.append(event)
        if event["op"] == "snapshot":
            self.messages.clear()
            for one in event["events"]:
                self.apply(one)
        elif "id" in event and event["op"] != "told":
            self.messages.setdefault(event["id"], Shown()).apply(event)

    def wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def until(self, predicate: Callable[[], object], seconds: float = WITHIN_S) -> None:
        with anyio.fail_after(seconds):
            while not predicate():
                await self._news.wait()

    async def news(self) -> None:
        await self._news.wait()

    def state(self, message_id: str) -> str:
        return self.messages.get(message_id, Shown()).state

    def draft(self, message_id: str) -> str:
        return self.messages.get(message_id, Shown()).draft

    def posts(self, message_id: str) -> list[str]:
        """Return the texts that stand under a message."""
        shown = self.messages.get(message_id, Shown()).posts.values()
        return [words(post["tree"]).strip() for post in shown]

    def choices(self, message_id: str) -> list[str]:
        """Return the commands of the buttons that stand under a message."""
        shown = self.messages.get(message_id, Shown()).posts.values()
        return [choice["command"] for post in shown for choice in post["choices"]]


@asynccontextmanager
async def watching(visitor: Visitor, thread: str) -> AsyncIterator[Page]:
    """Keep a page of the thread open until the block ends, whatever becomes of the bot."""
    page = Page()
    async with background_tasks() as tasks:
        tasks.start_soon(follow, visitor, thread, page)
        yield page


async def follow(visitor: Visitor, thread: str, page: Page) -> None:
    while True:
        try:
            await _read(visitor, thread, page)
        except (httpx2.HTTPError, AssertionError):
            await anyio.sleep(RETRY_S)
        page.reconnected += 1


async def _read(visitor: Visitor, thread: str, page: Page) -> None:
    headers = {"Last-Event-ID": page.last_id} if page.last_id else {}
    where = {"params": {"thread": thread}, "headers": headers, "timeout": httpx2.Timeout(10, read=60)}
    async with visitor.stream("GET", "/api/events", **where) as answer:
        assert answer.status_code == 200
        seen = ""
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                seen = value
            if name == "data":
                for event in json.loads(value):
                    page.apply(event)
                page.last_id = seen
                page.wake()
