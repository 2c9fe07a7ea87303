"""People at their pages, which stay open over all deaths of the bot, and what they have seen in the end.

A message is posted again, with its id, until it is accepted. A page keeps every event that it ever got; after the last
restart it has a fresh snapshot, by which it is judged.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import httpx2
from anyio.abc import TaskStatus

from tests.crash.book import Book
from tests.crash.journal import Journal
from tests.crash.run import Rounds
from tests.judge.crash import FORGET
from tests.transports.web.patient import Fields, Page, follow, words
from tests.transports.web.process import free_port
from tests.transports.web.site import Visitor
from transports.web.sessions import Person, sign_link

STEPS = ("accepted", "started", "draft", "post", "settled")
"""Steps that a death may follow, as a page sees them."""

AGAIN_S = 0.1
QUIET_S = 1.0
ODD = "odd \ud83d \u2028 \u0085 \x00 {} \"' \U0001f600"


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    text: str
    command: bool


class Kept(Page):
    """A page that tells of each event, and remembers every text that ever stood under a key."""

    def __init__(self, trip: Callable[[str], object]) -> None:
        super().__init__()
        self.trip, self.settled = trip, dict[str, str]()
        self.texts, self.kinds = dict[tuple[str, str], list[str]](), dict[tuple[str, str], str]()
        self.snapshots, self.sent = 0, set[str]()

    def apply(self, event: Fields) -> None:
        super().apply(event)
        self.seen.clear()
        match event["op"]:
            case "snapshot":
                self.snapshots += 1
            case "post":
                key = event["id"], event["key"]
                texts, self.kinds[key] = self.texts.setdefault(key, []), event["kind"]
                if (text := words(event["tree"])) not in texts:
                    texts.append(text)
            case "settled":
                self.settled[event["id"]] = event["outcome"]
            case _:
                pass
        self.trip(event["op"])


class Site:
    """What a `Visitor` has to know of a bot that comes and goes: links are signed with its own key."""

    def __init__(self, data: Path, port: int) -> None:
        self.url, self._state = f"http://127.0.0.1:{port}", data / "web.json"

    def link(self, person: str, name: str = "") -> str:
        key = json.loads(self._state.read_bytes())["key"]
        return sign_link(key, Person(id=person, name=name), datetime.now(UTC))


class Place:
    """A `tests.crash.run.Place`. Two threads share a person; where there are questions, they may answer them."""

    def __init__(self, folder: Path, rounds: Rounds) -> None:
        self.trip: Callable[[str], bool] = lambda _: False
        self.talking, self.accepted = True, 0
        self._rounds = rounds
        self._book, self._journal = Book(folder), Journal(folder / "data" / "journal.jsonl")
        self._site = Site(folder / "data", free_port())
        self._pages: dict[str, Kept] = {}
        self._sent, self._presses_sent, self._waiting = set[str](), set[str](), set[str]()
        self._pressed = set[str]()
        self._fate = random.Random(f"{rounds.seed} fate")

    @property
    def posted(self) -> int:
        return sum(len(page.texts) for page in self._pages.values())

    @property
    def owed(self) -> float:
        self._journal.look()
        sent = self._sent | self._presses_sent
        return len(self._waiting) + len(sent & self._journal.taken.keys() - self._journal.settled)

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        task_status.started(int(self._site.url.rpartition(":")[2]))
        await anyio.sleep_forever()

    async def talk(self) -> None:
        async with anyio.create_task_group() as people:
            for number in range(self._rounds.threads):
                people.start_soon(self._sit, number)

    async def until_settled(self) -> None:
        """Return when the bot owes nothing, and each page shows so."""
        quiet = 0.0
        while quiet < QUIET_S:
            await anyio.sleep(AGAIN_S)
            seen = {message for page in self._pages.values() for message in page.settled}
            unseen = self._sent & self._journal.settled - seen
            quiet = 0.0 if self.owed or unseen else quiet + AGAIN_S
        for page in self._pages.values():
            page.snapshots = 0

    def close(self) -> None:
        for thread, page in self._pages.items():
            for (message_id, key), texts in page.texts.items():
                kind = page.kinds[message_id, key]
                self._book.write("texts", thread=thread, id=message_id, key=key, kind=kind, texts=texts)
            for n, (message_id, shown) in enumerate(page.messages.items()):
                posts = [
                    {"key": key, "kind": post["kind"], "text": words(post["tree"])}
                    for key, post in shown.posts.items()
                ]
                about = {"state": shown.state, "text": shown.text, "draft": shown.draft, "posts": posts}
                self._book.write("last", thread=thread, id=message_id, n=n, **about)
            self._book.write("pages", thread=thread, snapshots=page.snapshots, settled=page.settled)

    # people

    async def _sit(self, number: int) -> None:
        """Enter, keep the page of one thread open for good, and write there."""
        person, root = f"p{number // 2}", f"r{number}"
        page = self._pages[f"web::{person}:{root}"] = Kept(lambda step: self.trip(step))
        async with Visitor(self._site) as visitor, anyio.create_task_group() as tasks:
            while not await self._enter(visitor, person):
                await anyio.sleep(AGAIN_S)
            tasks.start_soon(follow, visitor, root, page)
            if self._rounds.questions == "answered":
                tasks.start_soon(self._answer, visitor, person, root, page)
            await self._converse(visitor, person, root, number, page)
            await anyio.sleep_forever()

    async def _enter(self, visitor: Visitor, person: str) -> bool:
        try:
            await visitor.enter(person)
        except (httpx2.HTTPError, OSError, ValueError, KeyError, AssertionError):
            return False
        return True

    async def _converse(self, visitor: Visitor, person: str, root: str, number: int, page: Kept) -> None:
        people = random.Random(f"{self._rounds.seed} thread {number}")
        for message in says(people, number):
            if not self.talking:
                return
            await self._send(visitor, person, root, message)
            await self._pause(people, number)
            if self._rounds.forgets and people.random() < 0.05:
                await self._forget(visitor, person, root, page)

    async def _forget(self, visitor: Visitor, person: str, root: str, page: Kept) -> None:
        """Have the thread forgotten once all is answered, after the question; then the page sends all of it again."""
        before = page.sent & self._sent
        for text in ("/forget", f"/{FORGET}", ""):
            while not page.settled.keys() >= page.sent & self._sent:
                await page.news()
            if text and self.talking:
                await self._send(visitor, person, root, Message(f"f{len(self._sent)} {root}", text, True))
        for message_id in before:
            await self._post(visitor, {"id": message_id, "thread": root, "text": "again"})

    async def _pause(self, people: random.Random, number: int) -> None:
        hurried = number % 8 == 0 and people.random() < 0.9
        await anyio.sleep(0 if hurried else people.expovariate(1 / self._rounds.pause_s))

    async def _send(self, visitor: Visitor, person: str, root: str, message: Message) -> None:
        text = message.text.encode("utf-8", "replace").decode()  # as a browser makes a text well formed
        message_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._rounds.seed} {message.id}"))
        thread = f"web::{person}:{root}"
        about = {"text": text, "command": message.command, "token": message.id}
        self._book.write("sent", id=message_id, thread=thread, said_at=anyio.current_time(), **about)
        (self._presses_sent if "?" in message.id else self._sent).add(message_id)
        self._pages[thread].sent.add(message_id)
        self._waiting.add(message_id)
        post = partial(self._post, visitor, {"id": message_id, "thread": root, "text": text})
        while not await post():
            await anyio.sleep(AGAIN_S)
        self._book.write("acked", id=message_id, thread=thread)
        self._waiting.discard(message_id)
        self.accepted += 1
        self.trip("accepted")
        if self._fate.random() < 0.06:  # a press of Send too much
            await post()

    async def _post(self, visitor: Visitor, body: Fields) -> bool:
        try:
            answer = await visitor.post("/api/messages", json=body)
        except httpx2.HTTPError:
            return False
        if answer.status_code not in (202, 503):
            raise AssertionError(answer.text)
        return answer.status_code == 202

    async def _answer(self, visitor: Visitor, person: str, root: str, page: Kept) -> None:
        """Press the first button of each question, once."""
        while True:
            await page.news()
            for shown in list(page.messages.values()):
                for key, post in list(shown.posts.items()):
                    if post["choices"] and "?" in key and key not in self._pressed:
                        self._pressed.add(key)
                        text = post["choices"][0]["command"]
                        await self._send(visitor, person, root, Message(key, text, command=True))


def says(people: random.Random, number: int) -> Iterator[Message]:
    """Return what is written in a thread; each text holds its message's id."""
    for count in range(100_000):
        message_id = f"t{number:02}m{count:05}"
        kind = people.random()
        if kind < 0.05:
            command = "/status" if kind < 0.03 else "/stop" if kind < 0.04 else "/new"
            text = f"{command} {message_id}"
        elif kind < 0.10:
            text = f"{ODD} {message_id} {'long ' * people.randrange(2000)}"
        else:
            text = f"please answer {message_id}"
        yield Message(message_id, text, command=kind < 0.05)
