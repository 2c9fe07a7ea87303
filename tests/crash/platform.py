"""A chat platform that outlives the bot: a loopback server, JSON lines, and files of what was said by whom.

It delivers each thread's messages in order, the next one after the acknowledgement of the one before, and again what
was not acknowledged, or, now and then, what was. A post that was under way when the bot died lands within ``late_s``
of the death, or not at all; nothing here hides a second post with the same key.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream, TaskGroup, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

MAX_FRAME = 1 << 20
REDELIVER_AFTER_S = 1.5
ODD = "odd \ud83d \u2028 \u0085 \x00 {} \"' \U0001f600"

Frame = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Habits:
    """How the platform and its people behave. Shares are of 1; seconds are means or bounds."""

    seed: int
    threads: int = 24
    find: bool = True
    late_s: float = 0.24
    pause_s: float = 0.4
    twin: float = 0.04
    again: float = 0.06
    limited: float = 0.03
    before: float = 0.03
    after: float = 0.03
    rejected: float = 0.004
    blind: float = 0.02
    slow: float = 0.25
    workers: int = 1


@dataclass(slots=True)
class Message:
    thread: str
    id: str
    author: str
    text: str
    command: bool
    acked: anyio.Event = field(default_factory=anyio.Event)

    @property
    def frame(self) -> Frame:
        told = {"thread": self.thread, "id": self.id, "author": self.author, "text": self.text}
        return {"t": "message", **told}


class Book:
    """What happened, as JSON lines in a folder: sent, acked, shown, refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, **fields: object) -> None:
        with (self._folder / f"{name}.jsonl").open("a", encoding="ascii") as file:
            file.write(json.dumps(fields) + "\n")


def write_about(folder: Path, **about: object) -> None:
    """Write what the judge has to know of a run. ``clock`` added to an instant of the platform is the time of day."""
    about["clock"] = time.time() - time.monotonic()
    (folder / "run.json").write_text(json.dumps(about))


class Platform:
    """Serve in a task, let people `talk` in another. ``trip`` is called at each step that a death may follow."""

    def __init__(self, folder: Path, habits: Habits) -> None:
        self.trip: Callable[[str], bool] = lambda _: False
        self.talking = True
        self.accepted = 0
        self.posts: list[Frame] = []
        self.owed = math.inf
        self._habits, self._book = habits, Book(folder)
        self._fate = random.Random(f"{habits.seed} fate")
        self._waiting: dict[str, Message] = {}
        self._again: list[Message] = []
        self._links: list[Callable[[Frame], None]] = []
        self._choice = random.Random(f"{habits.seed} links")
        self._changed = anyio.Event()
        self._tasks: TaskGroup

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        """Take the connections of the bot's processes; start with the port."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as self._tasks:
            address: tuple[str, int] = listener.extra_attributes[anyio.abc.SocketAttribute.local_address]()
            task_status.started(address[1])
            await listener.serve(self._connected)

    async def talk(self) -> None:
        """Let people write in every thread until `talking` ends and each message is acknowledged."""
        async with anyio.create_task_group() as people:
            for number in range(self._habits.threads):
                people.start_soon(self._converse, number)

    @property
    def posted(self) -> int:
        return len(self.posts)

    def close(self) -> None:
        """Nothing: all is in the files already."""

    async def until_settled(self) -> None:
        """Return when every message is acknowledged and the bot owes nothing."""
        while self._waiting or self.owed:
            await self._changed.wait()

    async def _converse(self, number: int) -> None:
        people = random.Random(f"{self._habits.seed} thread {number}")
        for message in says(people, number):
            if not self.talking:
                return
            about = {"text": message.text, "command": message.command, "said_at": anyio.current_time()}
            self._book.write("sent", id=message.id, thread=message.thread, **about)
            self._waiting[message.id] = message
            while not message.acked.is_set():
                self._deliver(message)
                if self._fate.random() < self._habits.twin:
                    self._deliver(message)
                with anyio.move_on_after(REDELIVER_AFTER_S):
                    await message.acked.wait()
            hurried = number % 8 == 0 and people.random() < 0.9
            await anyio.sleep(0 if hurried else people.expovariate(1 / self._habits.pause_s))

    async def _connected(self, stream: ByteStream) -> None:
        send, frames = anyio.create_memory_object_stream[Frame](math.inf)
        link = send.send_nowait
        self._links.append(link)
        for message in (*self._again, *self._waiting.values()):
            self._deliver(message)
        self._again.clear()
        async with stream, send, frames, anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, stream, frames)
            await self._read(stream, link)
            self._links.remove(link)
            self.owed = math.inf
            tasks.cancel_scope.cancel()

    async def _write(self, stream: ByteStream, frames: Any) -> None:
        try:
            async for frame in frames:
                await stream.send(json.dumps(frame).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _read(self, stream: ByteStream, answer: Callable[[Frame], None]) -> None:
        buffered = BufferedByteReceiveStream(stream)
        while True:
            try:
                frame = json.loads(await buffered.receive_until(b"\n", MAX_FRAME))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return
            match frame["t"]:
                case "post":
                    self.trip("post")
                    self._tasks.start_soon(self._take_post, frame, answer)
                case "find":
                    self.trip("find")
                    self._tasks.start_soon(self._look, frame, answer)
                case "ack":
                    self.owed = frame["owed"]
                    self._acknowledge(frame["id"])
                case "owed":
                    self.owed = frame["owed"]
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

    def _deliver(self, message: Message) -> None:
        """Send to one of the newest links: a process that is gone may still have one."""
        if newest := self._links[-self._habits.workers :]:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._choice.choice(newest)(message.frame)

    def _acknowledge(self, message_id: str) -> None:
        message = self._waiting.pop(message_id, None)
        if message is None:
            return
        self._book.write("acked", id=message.id, thread=message.thread)
        self.accepted += 1
        self.trip("ack")
        message.acked.set()
        if self._fate.random() < self._habits.again:
            self._deliver(message)
        if self._fate.random() < self._habits.again:
            self._again.append(message)

    async def _take_post(self, frame: Frame, answer: Callable[[Frame], None]) -> None:
        habits, fate, call = self._habits, self._fate, frame["call"]
        fault = self._fault()
        await anyio.sleep(fate.uniform(0, habits.late_s if fate.random() < habits.slow else 0.008))
        if fault:
            self._book.write("refused", key=frame["key"], call="post", error=fault)
        match fault:
            case "limited":
                refusal: Frame = {"error": "limited", "retry_after": fate.uniform(0.01, 0.1)}
            case "before" | "rejected":
                refusal = {"error": fault}
            case "after":
                self._keep(frame)
                refusal = {"error": "after"}
            case _:
                post_id = self._keep(frame)
                self.trip("stored")
                await anyio.sleep(fate.uniform(0, 0.005))
                refusal = {"id": post_id}
        _send(answer, {"t": "answer", "call": call, **refusal})

    async def _look(self, frame: Frame, answer: Callable[[Frame], None]) -> None:
        await anyio.sleep(self._fate.uniform(0, 0.01))
        if self._fate.random() < self._habits.blind:
            self._book.write("refused", key=frame["key"], call="find", error="before")
            found: Frame = {"error": "before"}
        else:
            wanted = (frame["thread"], frame["key"])
            ids = (post["id"] for post in self.posts if (post["thread"], post["key"]) == wanted)
            found = {"id": next(ids, None)}
        _send(answer, {"t": "answer", "call": frame["call"], **found})

    def _fault(self) -> str:
        names = ("limited", "before", "after", "rejected")
        drawn = self._fate.random()
        for name in names:
            drawn -= getattr(self._habits, name)
            if drawn < 0:
                return name
        return ""

    def _keep(self, frame: Frame) -> str:
        post = {"id": f"p{len(self.posts) + 1}"} | {
            name: frame[name] for name in ("key", "thread", "text", "reply_to", "kind")
        }
        self.posts.append(post)
        self._book.write("shown", **post)
        return str(post["id"])


def _send(answer: Callable[[Frame], None], frame: Frame) -> None:
    try:
        answer(frame)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the asker is dead


def says(people: random.Random, number: int) -> Iterator[Message]:
    """Return what is written in a thread; each text holds its message's id. Two threads share a channel."""
    thread = f"crash:W:C{number // 2}:r{number}"
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
        yield Message(thread, message_id, f"U{people.randrange(6)}", text, command=kind < 0.05)
