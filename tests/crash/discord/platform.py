"""A guild that outlives the bot, and the people in it; what happened is written down for the judge at the end.

What is said while no gateway is open is in the history alone, which soon forgets the nonces of what the bot said.
Nothing here hides a second message that says the same.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from tests.crash.chat_platform import NEVER_S, QUIET_S, ChatPlatform
from tests.crash.child import DISCORD_STRANGER as STRANGER
from tests.crash.discord import IN_PLACE
from tests.crash.discord.faults import DELETE, EDIT, HISTORY, OPEN_THREAD, SEND, DiscordChance
from tests.crash.discord.person_message import PersonMessage
from tests.fakes.discord import BOT, FORUM, GUILD, FakeDiscord
from tests.fakes.discord.ids import DM, Json
from tests.fakes.discord.interactions import AUTOCOMPLETE, COMMAND, Interaction
from tests.fakes.discord.records import Call, Channel, Message, User
from tests.judge.crash import FORGET, FORGOTTEN
from tests.judge.discord import DiscordJudge

NONCE_LASTS_S, NONCE_SHOWN_S = 30.0, 1.5
"""Longer than the library tries again by itself, whose waits are not made shorter; shown for minutes by Discord."""

FILE = ("notes.txt", b"some notes of mine", "text/plain")
PEOPLE = tuple(f"7000000000000003{number:02}" for number in range(10, 18))
STOP = "Stop"
CALLBACK = "POST /interactions/{}/{}/callback"
STEPS = (
    *("deliver", HISTORY, f"{HISTORY} done", CALLBACK, f"{CALLBACK} done"),
    *(f"{route}{when}" for route in (SEND, EDIT, DELETE, OPEN_THREAD) for when in ("", " done")),
)


class Guild(FakeDiscord):
    """The fake, telling of what is delivered; old sessions are not kept for those who died."""

    def __init__(self, chance: DiscordChance, **given: Any) -> None:
        hurried = {"rate_scale": 10, "nonce_lasts": NONCE_LASTS_S, "nonce_shown": NONCE_SHOWN_S}
        super().__init__(rate_limits=True, **(hurried | given))
        self.script = self.chance = chance

    def tell(self, event: str, data: Json, **more: Any) -> None:
        super().tell(event, data, **more)
        if event == "MESSAGE_CREATE" and self.links:
            asyncio.get_running_loop().call_later(0.005, self.chance.trip, "deliver")

    def forget_the_dead(self) -> None:
        alive = [link.session.id for link in self.links if link.session]
        for session in set(self.sessions) - set(alive[-1:]) if alive else ():
            self.sessions.pop(session)


class Place(ChatPlatform):
    """Discord. *given* is for the fake, whose own times are not shortened then."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        late_s: float,
        crowd: int,
        pause_s: float,
        rooms: int = 6,
        people: tuple[str, ...] = PEOPLE,
        forgets: float = 0,
        **given: Any,
    ) -> None:
        self._forgets = forgets
        chance = DiscordChance(random.Random(f"{seed} faults"), late_s, self._refused)
        super().__init__(folder, chance, seed=seed, crowd=crowd, pause_s=pause_s, people=people)
        self.fake = self._discord = discord = Guild(chance, **given)
        self._threads, self._counts = itertools.count(100), Counter[str]()
        self._spoken: list[PersonMessage] = []
        self._by_id: dict[str, PersonMessage] = {}
        self._pressed: list[tuple[tuple[str, ...], Interaction]] = []
        for number, user in enumerate((*people, STRANGER)):
            discord.users[user] = User(user, f"person{number}")
            discord.dm(user)
        self._channels = [discord.channel(f"room-{number}").id for number in range(rooms)]
        self._in_place = frozenset(self._channels[:2])
        discord.deny(self._channels[0], "CREATE_PUBLIC_THREADS")
        (folder / IN_PLACE).write_text(self._channels[1])

    @property
    def posted(self) -> int:
        return len(self._discord.posts()) + len(self._discord.whispers)

    @property
    def owed(self) -> float:
        self._journal.look()
        taken, settled = self._journal.taken, self._journal.settled
        lost = [line for line in DiscordJudge.due(self._lines()) if line["id"] not in taken]
        return len(taken.keys() - settled) + len(lost)

    def tick(self) -> None:
        super().tick()
        self._discord.forget_the_dead()

    async def connected(self) -> None:
        await self._discord.until(lambda: self._discord.ready, 60)

    def count_calls(self) -> int:
        return len(self._discord.calls)

    def ways_to_cut(self) -> Sequence[Callable[[], None]]:
        return [
            way for link in self._discord.links[:1] for way in (link.abort, link.reconnect, link.invalidate)
        ]

    def close(self) -> None:
        discord = self._discord
        for line in self._lines():
            self._book.write("sent", **line)
        for message in discord.posts():
            self._book.write("visible", **self._seen(message))
        for whisper in discord.whispers:
            if not whisper.deleted and whisper.content:
                channel = discord.channels[whisper.channel].parent or whisper.channel
                self._book.write("whispers", ts=whisper.id, channel=channel, text=whisper.content)
        for call in discord.calls:  # for whoever looks into a violation
            about = {"path": call.path, "body": str(call.body)[:300]}
            self._book.write(
                "calls", at=call.at, route=call.route, status=call.status, code=call.code, **about
            )
        self._book.write(
            "left",
            eyes=len(eyed := self._eyed()),
            eyes_on=eyed,
            pings=[ping for ping in discord.pings if ping not in (*self._people, STRANGER)],
            unfurls=discord.unfurls,
            acked=self._acked(),
            interactions=sum(one.acked for one in discord.interactions.values() if one.type != AUTOCOMPLETE),
            presses=self._presses,
            commands=self._commands,
        )

    def _acked(self) -> dict[str, int]:
        """Return how many interactions the bot has acknowledged: a button that is pressed twice is one."""
        slashes = [one for one in self._discord.interactions.values() if one.type == COMMAND]
        pressed = {name for name, one in self._pressed if one.acked}
        return {"slash": sum(one.acked for one in slashes), "press": len(pressed)}

    def _eyed(self) -> list[str]:
        """Return the messages that still seem to be worked on."""
        places = self._discord.channels.values()
        said = [message for place in places for message in place.messages.values()]
        return [message.id for message in said if BOT in message.reactions.get("👀", ())]

    def _lines(self) -> list[Json]:
        return [spoken.line(self._journal.taken.get(spoken.message.id)) for spoken in self._spoken]

    # people

    async def _conversation(self, person: random.Random) -> None:
        user, kind = person.choice(self._people), person.random()
        if kind < 0.35:
            first = self._say(user, self._discord.dm(user), person)
        elif kind < 0.42:
            first = self._post(user, person)
        else:
            first = self._say(user, person.choice(self._channels), person, named=True)
            if person.random() < 0.05 and first.message.channel not in self._in_place:
                self._discord.thread(user, first.message, "by hand")
        for _ in range(person.choice((0, 0, 1, 3, 6))):
            await self._pause(person)
            if person.random() < 0.3:
                await self._wait_for_answer(lambda: self._shows(" of ", first.thread))
            if not self.talking:
                return
            await self._act(user, first, person)

    def _post(self, user: str, person: random.Random) -> PersonMessage:
        """Open a post in the forum, which names the bot."""
        token = self._token(number := self._number())
        message = self._discord.post(user, FORUM, f"a post {number}", f"<@{BOT}> please answer {token}")
        thread = f"discord:{GUILD}:{FORUM}:{message.id}"
        return self._keep(PersonMessage(token, thread, user, [f"please answer {token}"], message, must=True))

    async def _act(self, user: str, first: PersonMessage, person: random.Random) -> None:
        discord, kind = self._discord, person.random()
        where, reply_to = self._where(first)
        if not where:
            return  # people cannot go on yet
        if kind < 0.06:
            said = self._say(user, where, person, reply_to=reply_to)
            await anyio.sleep(person.uniform(0, 0.3))
            said.texts.append(f"please answer {said.token} anew")
            discord.edit(said.message, said.message.content.replace(said.texts[0], said.texts[-1]))
        elif kind < 0.11:
            said = self._say(user, where, person, reply_to=reply_to)
            await anyio.sleep(person.uniform(0, 0.2))
            said.deleted = True
            discord.delete(said.message)
        elif kind < 0.17:
            command = person.choice(("status", "stop", "status"))
            self._say(user, where, person, reply_to=reply_to, command=command)
        elif kind < 0.23:
            self._commands += 1
            discord.slash(user, where, person.choice(("status", "status", "stop")))
        elif kind < 0.25:
            self._say(STRANGER, person.choice(self._channels), person, named=True)
        elif kind < 0.28:
            self._chat(user, person.choice(self._channels))
        elif kind < 0.38:
            self._press(user, where)
        elif kind < 0.46 and self._forgets:
            await self._forget(user, where, first.thread, reply_to, person)
        else:
            self._say(user, where, person, reply_to=reply_to)

    async def _forget(self, user: str, where: str, thread: str, to: str, person: random.Random) -> None:
        """Have the thread forgotten once all is answered; afterwards Discord delivers all of it again."""
        before = [one for one in self._spoken if one.thread == thread]
        await self._wait_for_answer(lambda: {one.message.id for one in before} <= self._journal.settled)
        self._say(user, where, person, reply_to=to, command=FORGET)
        await self._wait_for_answer(lambda: self._shows(FORGOTTEN, thread))
        for one in before:
            if not one.deleted:
                self._discord.redeliver(one.message)

    def _where(self, first: PersonMessage) -> tuple[str, str]:
        """Return where the conversation goes on: in its thread, once that is open, or as a reply to the last answer."""
        _, _, channel, root = first.thread.split(":")
        if root in self._discord.channels:
            return root, ""
        answers = [
            message
            for message in self._discord.posts(channel)
            if self._thread_of(message) == first.thread and not self._unfinished(message)
        ]
        return (channel, answers[-1].id) if answers and channel in self._in_place else ("", "")

    def _say(
        self,
        user: str,
        channel: str,
        person: random.Random,
        *,
        named: bool = False,
        reply_to: str = "",
        command: str = "",
    ) -> PersonMessage:
        place = self._discord.channels[channel]
        before = self._thread_of(self._discord.message(reply_to)) if reply_to else ""
        thread = before or self._conversation_in(place)
        number = self._number(thread)
        token = self._token(number)
        joined = place.is_thread and self._shows(" of ", thread) and not self._is_quiet(thread)
        named = named or (place.is_thread and person.random() < (0.2 if joined else 0.8))
        words = command if command == FORGET else f"{command} {token}"
        text = f"/{words}" if command else f"please answer {token}"
        wire = f"<@{BOT}> {text}" if named else text
        files = [FILE] if not command and person.random() < 0.08 else []
        message = self._discord.say(user, channel, wire, reply_to=reply_to or None, files=files)
        must = named or joined or place.kind == DM or bool(reply_to)
        thread = thread or f"discord:{GUILD}:{channel}:{message.id}"
        return self._keep(PersonMessage(token, thread, user, [text], message, must, bool(command)))

    def _chat(self, user: str, channel: str) -> None:
        """Say something to somebody else."""
        token = self._token(self._number())
        text = f"<@{PEOPLE[0]}> look at {token}"
        message = self._discord.say(user, channel, text)
        thread = f"discord:{GUILD}:{channel}:{message.id}"
        self._keep(PersonMessage(token, thread, user, [text], message, must=False, beside=True))

    def _press(self, user: str, channel: str) -> None:
        """Press the newest button that is there."""
        for message in reversed(self._discord.posts(channel)):
            for _, custom_id in message.buttons:
                pressed = self._discord.press(user, message, custom_id)
                self._pressed.append(((user, message.id, custom_id), pressed))
                self._presses += 1
                return

    def _number(self, thread: str = "") -> str:
        """Return the digits of a conversation, by which its messages are told from others; direct ones never end."""
        for spoken in reversed(self._spoken) if thread else ():
            if spoken.thread == thread:
                return spoken.token[1:5]
        return f"{next(self._threads):04}"

    def _token(self, number: str) -> str:
        self._counts[number] += 1
        return f"t{number}m{self._counts[number]:03}"

    def _keep(self, spoken: PersonMessage) -> PersonMessage:
        self._spoken.append(spoken)
        self._by_id[spoken.message.id] = spoken
        return spoken

    def _is_quiet(self, thread: str) -> bool:
        """Whether the bot may know nothing of a thread any more."""
        last = max(one.at for one in self._spoken if one.thread == thread)
        return bool(self._forgets) and time.monotonic() - last > self._forgets / 2

    def _shows(self, words: str, thread: str) -> bool:
        """Whether a post has these words: by those of an answer people see that the bot takes part."""
        _, _, channel, root = thread.split(":")
        return any(
            words in message.content and self._thread_of(message) == thread and not self._unfinished(message)
            for message in self._discord.posts(root if root in self._discord.channels else channel)
        )

    # for the judge

    def _conversation_in(self, place: Channel) -> str:
        """Return the conversation that all of a place is, "" for a channel."""
        if place.is_thread:
            return f"discord:{GUILD}:{place.parent}:{place.id}"
        return f"discord:@me:{place.id}:{place.id}" if place.kind == DM else ""

    def _thread_of(self, message: Message) -> str:
        """Return the conversation that a message of the bot's is seen in."""
        if thread := self._conversation_in(self._discord.channels[message.channel]):
            return thread
        asked = self._by_id.get(message.reply_to)
        return asked.thread if asked else f"discord:{GUILD}:{message.channel}:"

    def _unfinished(self, message: Message) -> bool:
        return STOP in (label for label, _ in message.buttons)

    def _seen(self, message: Message) -> Json:
        return {
            "ts": message.id,
            "channel": message.channel,
            "thread": self._thread_of(message),
            "refers": message.reply_to,
            "text": message.content,
            "nonce": message.nonce,
            "unfinished": self._unfinished(message),
            "buttons": message.buttons,
            "files": [
                {"name": name, "text": data.decode("utf-8", "replace")}
                for name, data in message.files.items()
            ],
        }

    def _refused(self, kind: str, call: Call, error: str) -> None:
        self._book.write("refused", place=call.channel, call=call.route, error=error)


class Threads(Place):
    """People who each stay in one thread, and press what they are asked there (``presses``), or nothing."""

    def __init__(self, folder: Path, *, presses: bool, **given: Any) -> None:
        super().__init__(folder, **given)
        self._cut_every_s, self._quiet_s, self._does_press = NEVER_S, QUIET_S, presses

    async def _converse(self, person: random.Random) -> None:
        user = person.choice(self._people)
        places = self._channels[2:]  # where threads are opened
        first = self._say(user, person.choice(places), person, named=True)
        async with anyio.create_task_group() as both:
            if self._does_press:
                both.start_soon(self._answer, user, first)
            while self.talking:
                await self._pause(person)
                where, _ = self._where(first)
                if where and self.talking:
                    self._say(user, where, person)

    async def _answer(self, user: str, first: PersonMessage) -> None:
        """Press the first button of each question, once, also after people have fallen silent."""
        pressed = set[str]()
        while True:
            await anyio.sleep(0.5)
            where, _ = self._where(first)
            for message in self._discord.posts(where) if where else ():
                asks = [
                    name for _, name in message.buttons if name.startswith("choice") and "/retry" not in name
                ]
                if asks and message.id not in pressed:
                    pressed.add(message.id)
                    done = self._discord.press(user, message, asks[0])
                    self._pressed.append(((user, message.id, asks[0]), done))
                    self._presses += 1
