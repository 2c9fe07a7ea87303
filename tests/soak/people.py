"""The people of the soak: each has one conversation, and long pauses; questions are decided by who asked.

They do what those of the crash runs do (say, edit, delete, stop, press, ask for the status) and are judged as those are.
"""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from pathlib import Path
from typing import Any

import anyio

from tests.crash.chat_platform import ChatPlatform
from tests.crash.discord import platform as discord
from tests.crash.run import Rounds
from tests.crash.slack import platform as slack
from tests.crash.web import platform as web
from tests.fakes.discord.records import Message as DiscordMessage
from tests.fakes.slack import File, Message
from tests.transports.web.patient import follow
from tests.transports.web.site import Visitor
from threads.background import background_tasks

CHOICE = "choice"
DECIDE_EVERY_S = 2.0
AGAIN_S = 10.0
"""A press may get lost with its link; then people press again."""
CUT_EVERY_S = 60.0
SEEN = 12
"""How many of a thread's newest messages people still look at."""


class _Soaked(ChatPlatform):
    """People who also decide the bot's questions."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._next = itertools.count()
        self._decided: dict[str, tuple[float, str]] = {}
        self._cut_every_s = CUT_EVERY_S

    async def talk(self) -> None:
        async with background_tasks() as tasks:
            tasks.start_soon(self._decide)
            await super().talk()

    async def _decide(self) -> None:
        while True:
            await self._until_next_look()
            self._look_for_questions()

    async def _until_next_look(self) -> None:
        await anyio.sleep(DECIDE_EVERY_S)

    @abstractmethod
    def _look_for_questions(self) -> None: ...

    def until_calm(self) -> None:
        self._chance.calm = True


class InSlack(_Soaked, slack.Place):
    def __init__(self, folder: Path, *, seed: int, threads: int, pause_s: float) -> None:
        self._users = tuple(f"U{number}" for number in range(1, threads + 1))
        super().__init__(
            folder,
            seed=seed,
            late_s=2.4,
            crowd=threads,
            pause_s=pause_s,
            channels=tuple(f"C{number}" for number in range(1, 2 + threads // 5)),
            people=self._users,
            ack_budget=3.0,
            redeliver_after=(0.0, 20.0, 60.0),
            rate_scale=1.0,
        )

    async def _converse(self, person: random.Random) -> None:
        number = next(self._next)
        await anyio.sleep(person.uniform(0, self._pause_s))
        user = self._users[number]
        channel = f"D{user}" if person.random() < 0.4 else person.choice(self._channels)
        name = f"{next(self._threads):04}"
        root = self._say(name, 0, user, channel, "", person)
        if len(root.said) > 1:  # a twin began a conversation of its own
            root = self._say(name, 1, user, channel, root.root, person)
        for count in itertools.count(2):
            await self._pause(person)
            if not self.talking:
                return
            await self._act(name, count, user, root, person)

    def _files(self, person: random.Random) -> list[File]:
        return [self._slack.file("notes.txt", b"some notes of mine")] if person.random() < 0.06 else []

    def _look_for_questions(self) -> None:
        for spoken in {(one.channel, one.root): one for one in self._spoken}.values():
            for message in self._slack.thread(spoken.channel, spoken.root)[-SEEN:]:
                if message.ours:
                    self._look_at(message, spoken)

    def _look_at(self, message: Message, spoken: slack.Spoken) -> None:
        """Decide a question that still has its buttons."""
        found = [action for action in slack.actions(message.blocks or ()) if action[0].startswith(CHOICE)]
        if found and (
            chosen := _chosen(self._decided, message.ts, [value for _, value in found], self._fate)
        ):
            name = next(name for name, value in found if value == chosen)
            self._slack.press(spoken.user, message.ts, name, chosen)
            self._presses += 1


class InDiscord(_Soaked, discord.Place):
    def __init__(self, folder: Path, *, seed: int, threads: int, pause_s: float) -> None:
        self._users = tuple(f"70000000000001{number:04}" for number in range(threads))
        super().__init__(
            folder,
            seed=seed,
            late_s=2.4,
            crowd=threads,
            pause_s=pause_s,
            rooms=2 + threads // 5,
            people=self._users,
            rate_scale=1.0,
            nonce_lasts=300.0,
            nonce_shown=60.0,
        )

    async def _converse(self, person: random.Random) -> None:
        user = self._users[next(self._next)]
        await anyio.sleep(person.uniform(0, self._pause_s))
        if person.random() < 0.3:
            first = self._say(user, self._discord.dm(user), person)
        elif person.random() < 0.1:
            first = self._post(user, person)
        else:
            first = self._say(user, person.choice(self._channels), person, named=True)
        while True:
            await self._pause(person)
            if not self.talking:
                return
            await self._act(user, first, person)

    def _look_for_questions(self) -> None:
        for message in self._discord.posts():
            if any(label != discord.STOP for label, _ in message.buttons):
                self._look_at(message)

    def _look_at(self, message: DiscordMessage) -> None:
        """Decide a question that still has its buttons: by who asked, the newest in the thread."""
        asked = [one for one in self._spoken if one.thread == self._thread_of(message) and one.must]
        found = [custom_id for label, custom_id in message.buttons if label != discord.STOP]
        if asked and (custom_id := _chosen(self._decided, message.id, found, self._fate)):
            pressed = self._discord.press(asked[-1].user, message, custom_id)
            self._pressed.append(((asked[-1].user, message.id, custom_id), pressed))
            self._presses += 1


class InWeb(web.Place):
    """People at their pages, which stay open all the time; they edit and delete nothing."""

    def __init__(self, folder: Path, *, seed: int, threads: int, pause_s: float) -> None:
        super().__init__(folder, Rounds(0, seed, threads=threads, pause_s=pause_s, questions="answered"))
        self._open, self._pause_s = anyio.CancelScope(), pause_s

    async def talk(self) -> None:
        with self._open:
            await super().talk()

    async def _converse(self, visitor: Visitor, person: str, root: str, number: int, page: web.Kept) -> None:
        await anyio.sleep(self._fate.uniform(0, self._pause_s))
        await super()._converse(visitor, person, root, number, page)

    def until_calm(self) -> None:
        """Nothing: the page has no faults of its own."""

    async def until_settled(self) -> None:
        """Return when the bot owes nothing, each page shows so, and all are opened once more and closed."""
        await super().until_settled()
        self._open.cancel()
        for thread, page in self._pages.items():
            await self._look_again(*thread.split(":")[2:], page)

    async def _look_again(self, person: str, root: str, page: web.Kept) -> None:
        page.last_id = ""
        async with Visitor(self._site) as visitor, background_tasks() as tasks:
            await visitor.enter(person)
            tasks.start_soon(follow, visitor, root, page)
            await page.until(lambda: page.snapshots)


def _chosen(
    decided: dict[str, tuple[float, str]], message: str, found: list[str], fate: random.Random
) -> str:
    """Return what to press now, "" for nothing: always the same, and not too soon again."""
    last, chosen = decided.get(message, (-AGAIN_S, ""))
    if (now := anyio.current_time()) - last < AGAIN_S:
        return ""
    chosen = chosen if chosen in found else fate.choice(found)
    decided[message] = (now, chosen)
    return chosen
