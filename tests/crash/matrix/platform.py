"""A real homeserver that outlives the bot and dies as well, and the people in its rooms, who have nio's client.

What came of it is read in the end over the client API, by people who are in the rooms, as a client would show it.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus

from tests.crash.chat_platform import ChatPlatform
from tests.crash.matrix import ACCOUNT
from tests.crash.matrix.link import Link, MatrixChance
from tests.judge.matrix import MatrixJudge
from tests.transports.matrix.person import Person, Shown, account, person, show
from tests.transports.matrix.synapse import NAME, Synapse

Fields = dict[str, Any]

PEOPLE = ("ann", "bob", "cem", "dee")
ROOMS = 3
DIES_EVERY = 4
"""Of so many cuts one is a kill -9 of the homeserver."""
FILE = ("notes.txt", b"some notes of mine")
MARK = "org.threadfast.post"
"""Where the bot's messages say what they are."""


@dataclass(slots=True)
class Said:
    """One message of a person. ``must``: it is owed an outcome. ``beside``: it is not for the bot at all."""

    token: str
    room: str
    root: str
    """Of its thread, none in a direct room."""
    texts: list[str]
    id: str
    must: bool
    command: bool = False
    beside: bool = False
    deleted: bool = False
    at: float = field(default_factory=time.monotonic)

    def line(self, acked_at: float | None) -> Fields:
        thread = thread_id(self.room, self.root)
        return {
            "id": self.id,
            "ids": [self.id],
            "thread": thread,
            "threads": [thread],
            "token": self.token,
            "text": self.texts[0],
            "texts": self.texts,
            "must": self.must and not self.deleted,
            "command": self.command,
            "deleted": self.deleted,
            "beside": self.beside,
            "alone": False,
            "said_at": self.at,
            "acked_at": acked_at,
        }


def thread_id(room: str, root: str) -> str:
    """Return the bot's name for a thread; a direct room is one itself."""
    channel = encoded(room)
    return f"matrix:{NAME}:{channel}:{encoded(root) or channel}"


def encoded(name: str) -> str:
    return quote(name, safe="!$")


class Place(ChatPlatform):
    """Matrix. In the rooms of all people the bot is called by its name; each person has a room alone with it."""

    fake: Synapse
    _server: TaskGroup
    _bot: str

    def __init__(
        self, folder: Path, *, seed: int, late_s: float, crowd: int, pause_s: float, forgets: float = 0
    ) -> None:
        chance = MatrixChance(random.Random(f"{seed} faults"), late_s, self._refused)
        super().__init__(folder, chance, seed=seed, crowd=crowd, pause_s=pause_s, people=PEOPLE)
        (home := folder / "home").mkdir()
        self._folder, self._forgets, self.fake = folder, forgets, Synapse(home)
        self._link = Link(chance, self.fake.port)
        self._spoken: list[Said] = []
        self._new, self._counts, self._numbers = count(), Counter[str](), dict[str, str]()
        self._direct = dict[str, str]()
        self._rooms, self._names = dict[str, str](), dict[str, Person]()
        self._deaths, self._dying = 0, False

    @property
    def posted(self) -> int:
        return sum(one.sender == self._bot for room in self._rooms for one in self._shown(room))

    @property
    def owed(self) -> float:
        self._journal.look()
        taken, settled = self._journal.taken, self._journal.settled
        lost = [line for line in MatrixJudge.due(self._lines()) if line["id"] not in taken]
        return len(taken.keys() - settled) + len(lost)

    def _lines(self) -> list[Fields]:
        return [said.line(self._journal.taken.get(said.id)) for said in self._spoken]

    def count_calls(self) -> int:
        return self._link.writes

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        logging.getLogger("nio").setLevel(logging.ERROR)  # it tells of each death of the homeserver
        (keys := self._folder / "keys").mkdir()
        async with self.fake, AsyncExitStack() as people:
            bot = await account(self.fake)
            self._bot = bot.user_id
            (self._folder / ACCOUNT).write_text(bot.access_token)
            for name in self._people:
                one = person(name, synapse=self.fake, folder=keys)
                self._names[name] = await people.enter_async_context(one)
            async with anyio.create_task_group() as self._server:
                task_status.started(await self._server.start(self._link.serve))
                while True:
                    await anyio.sleep(self.look_s)
                    self.tick()

    async def connected(self) -> None:
        """Open the rooms, and wait until the bot is in them."""
        first, *others = self._names.values()
        for _ in range(ROOMS):
            room = await first.channel(self._bot, *(one.id for one in others))
            self._rooms[room] = self._people[0]
            for one in others:
                await one.join(room)
        for name, one in self._names.items():
            self._direct[name] = room = await one.direct(self._bot)
            self._rooms[room] = name
        for room, name in self._rooms.items():
            await self._names[name].until_joined(room, self._bot)

    def ways_to_cut(self) -> Sequence[Callable[[], None]]:
        return [*[self._link.cut] * (DIES_EVERY - 1), lambda: self._server.start_soon(self._die)]

    async def _die(self) -> None:
        """Kill the homeserver, and start it over the same data."""
        if not self._dying:
            self._dying = True
            self._deaths += 1
            await self.fake.kill()
            await self.fake.start()
            self._dying = False

    def close(self) -> None:
        for line in self._lines():
            self._book.write("sent", **line)
        for n, line in enumerate(self._visible()):
            self._book.write("visible", n=n, **line)
        about = {"eyes": 0, "pings": [], "unfurls": [], "acked": {}, "presses": 0, "commands": 0}
        self._book.write("left", **about, deaths=self._deaths)

    # people

    async def _conversation(self, person: random.Random) -> None:
        name = person.choice(self._people)
        if person.random() < 0.35:
            room = self._direct[name]
        else:
            room = person.choice([room for room in self._rooms if room not in self._direct.values()])
        first = await self._say(name, room, "", person)
        for _ in range(person.choice((0, 0, 1, 3, 6))):
            await self._pause(person)
            if person.random() < 0.3:
                await self._wait_for_answer(lambda: self._joined(room, first.root))
            if not self.talking:
                return
            await self._act(name, room, first.root, person)

    async def _act(self, name: str, room: str, root: str, person: random.Random) -> None:
        who, kind = self._names[name], person.random()
        if kind < 0.06:
            said = await self._say(name, room, root, person)
            await anyio.sleep(person.uniform(0, 0.3))
            said.texts.append(f"please answer {said.token} anew")
            await who.edit(room, said.id, said.texts[-1])
        elif kind < 0.11:
            said = await self._say(name, room, root, person)
            await anyio.sleep(person.uniform(0, 0.2))
            said.deleted = True
            await who.redact(room, said.id)
        elif kind < 0.17:
            await self._say(name, room, root, person, command=person.choice(("status", "stop", "status")))
        elif kind < 0.20 and root:
            await self._chat(who, room)
        elif kind < 0.28:
            await self._press(who, room, root)
        else:
            await self._say(name, room, root, person)

    async def _say(self, name: str, room: str, root: str, person: random.Random, command: str = "") -> Said:
        who, direct = self._names[name], room in self._direct.values()
        joined = bool(root) and self._joined(room, root) and not self._is_quiet(room, root)
        named = not direct and (not root or person.random() < (0.2 if joined else 0.8))
        token = self._token(room if direct else root)
        text = f"/{command} {token}" if command else f"please answer {token}"
        how: Fields = {"to": self._bot if named else "", "thread": root, "modern": person.random() < 0.8}
        if not command and person.random() < 0.08:
            sent = await who.upload(room, *FILE, text=text, **how)
        else:
            sent = await who.say(room, text, **how)
        if not (root or direct):
            self._numbers[sent] = token[1:5]
        must, own = direct or named or joined, "" if direct else sent
        said = Said(token, room, root or own, [text], sent, must, bool(command))
        self._spoken.append(said)
        return said

    async def _chat(self, who: Person, room: str) -> None:
        """Say something to somebody else."""
        text = f"look at {(token := self._token(''))}"
        other = next(one for one in self._names.values() if one is not who)
        sent = await who.say(room, text, to=other.id)
        self._spoken.append(Said(token, room, sent, [text], sent, must=False, beside=True))

    async def _press(self, who: Person, room: str, root: str) -> None:
        """Choose the newest choice that is there."""
        for message in reversed(self._shown(room, root)):
            signs = message.content.get(MARK, {}).get("choices", ()) if message.sender == self._bot else ()
            for sign in [one for one in signs if who.id not in message.reactions.get(one, ())][:1]:
                sent = await who.react(room, message.id, sign)
                self._spoken.append(Said("", room, root, [signs[sign]], sent, must=False, command=True))
                return

    def _token(self, place: str) -> str:
        """Return the next word of a thread or direct room, whose digits tell it from those of others."""
        number = self._numbers.get(place) or f"{next(self._new):04}"
        if place:
            self._numbers[place] = number
        self._counts[number] += 1
        return f"t{number}m{self._counts[number]:03}"

    def _is_quiet(self, room: str, root: str) -> bool:
        """Whether the bot may know nothing of a thread any more."""
        last = max(said.at for said in self._spoken if (said.room, said.root) == (room, root))
        return bool(self._forgets) and time.monotonic() - last > self._forgets / 2

    def _joined(self, room: str, root: str) -> bool:
        """Whether an answer is there, so that people see that the bot takes part."""
        return any(" of " in one.body and self._is_whole(one) for one in self._shown(room, root))

    def _is_whole(self, message: Shown) -> bool:
        return bool(message.sender == self._bot and message.content.get(MARK, {}).get("final"))

    def _shown(self, room: str, root: str | None = None) -> list[Shown]:
        return self._names[self._rooms[room]].shown(room, root)

    # for the judge

    def _visible(self) -> Iterator[Fields]:
        for room, name in self._rooms.items():
            for message in self._read(room, self._names[name].headers):
                if message.sender == self._bot:
                    yield self._seen(room, message)

    def _read(self, room: str, headers: dict[str, str]) -> list[Shown]:
        """Return the messages of a room as a client shows them that is new there."""
        events, query = list[Fields](), {"dir": "f", "limit": "100"}
        with httpx2.Client(base_url=self.fake.url, headers=headers) as client:
            while True:
                page = client.get(f"/_matrix/client/v3/rooms/{quote(room)}/messages", params=query).json()
                events += page["chunk"]
                if "end" not in page:
                    return show(events)
                query["from"] = page["end"]

    def _seen(self, room: str, message: Shown) -> Fields:
        return {
            "ts": message.id,
            "thread": thread_id(room, message.thread),
            "text": message.body,
            "mark": message.content.get(MARK, {}),
            "files": [],
        }

    def _refused(self, kind: str, call: bytes, error: str) -> None:
        room = re.search(rb"/rooms/([^/?]+)", call)
        place = encoded(unquote(room[1].decode())) if room else ""
        self._book.write("refused", place=place, call=kind, error=error)
