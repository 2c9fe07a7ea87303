"""What the fake's workspace keeps, and what people see of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.fakes.slack.records import (
    BOT_USER,
    Call,
    Channel,
    Ephemeral,
    File,
    Json,
    Message,
    Session,
    User,
    Words,
)
from tests.fakes.waiting import Waiting


class Workspace(Waiting):
    """``clock`` measures spans (streams, limits, statuses), ``wall`` stamps messages; both in seconds."""

    status_lasts = 120.0
    """An assistant status is gone after two minutes without a message."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.clock, self.wall = clock, wall
        self.users: dict[str, User] = {}
        self.groups: dict[str, str] = {}
        """The handles of groups of people, by id."""
        self.channels: dict[str, Channel] = {}
        self.files: dict[str, File] = {}
        self.ephemerals: list[Ephemeral] = []
        self.sessions: dict[tuple[str, str], Session] = {}
        self.words: dict[tuple[str, str], list[Words]] = {}
        self.prompts: list[Json] = []
        """Suggested prompts that people see: calls without ``thread_ts`` only."""
        self.calls: list[Call] = []
        self.serial = itertools.count(1)
        self._last_ts = 0
        super().__init__()
        self.user(BOT_USER, "threadfast", is_bot=True)
        for user in ("U1", "U2", "U3"):
            self.user(user)
            self.channel(f"D{user[1:]}", kind="im", user=user)
        self.channel("C1", "general")
        self.channel("C2", "random")

    # people and places

    def user(self, id: str, name: str = "", **more: Any) -> User:
        """Add a person (U1, U2, U3 are there, each with a DM: D1, D2, D3)."""
        self.users[id] = made = User(id, name, **more)
        return made

    def channel(self, id: str, name: str = "", **more: Any) -> Channel:
        """Add a channel (C1 and C2 are there, public, with the bot in them)."""
        self.channels[id] = made = Channel(id, name, **more)
        return made

    # messages

    def next_ts(self) -> str:
        """The wall clock's microseconds, but always later than the one before."""
        self._last_ts = max(self._last_ts + 100, int(self.wall() * 1_000_000) // 100 * 100)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06}"

    def put(self, message: Message) -> Message:
        channel = self.channels[message.channel]
        channel.messages[message.ts] = message
        if message.thread_ts and message.thread_ts != message.ts:
            channel.replies.setdefault(message.thread_ts, []).append(message.ts)
        message.texts.append(message.text)
        if message.ours:
            self.clear_words(message.channel, message.root)
        self.changed()
        return message

    def message(self, ts: str) -> Message:
        """The message of that ts, which is unique over all channels here."""
        for channel in self.channels.values():
            if found := channel.messages.get(ts):
                return found
        raise KeyError(ts)

    def thread(self, channel: str, root: str) -> list[Message]:
        """What people see in a thread: the root and the replies, in order."""
        return self.channels[channel].thread(root)

    def posts(self, channel: str | None = None) -> list[Message]:
        """Every visible message of the bot, in order."""
        return sorted(
            (
                message
                for place in self.channels.values()
                if channel in (None, place.id)
                for message in place.messages.values()
                if message.ours and not message.deleted
            ),
            key=lambda message: message.ts,
        )

    @property
    def pings(self) -> list[str]:
        """Every ping that messages of the bot fired, edits and ephemeral posts included."""
        fired = itertools.chain.from_iterable(message.pings for message in self._all_ours())
        return [*fired, *itertools.chain.from_iterable(post.pings for post in self.ephemerals)]

    @property
    def unfurls(self) -> list[str]:
        """Every address that Slack would have fetched because of what the bot sent."""
        fetched = itertools.chain.from_iterable(message.unfurls for message in self._all_ours())
        return [*fetched, *itertools.chain.from_iterable(post.unfurls for post in self.ephemerals)]

    def _all_ours(self) -> Iterator[Message]:
        for place in self.channels.values():
            yield from (message for message in place.messages.values() if message.ours)

    # presence

    def status(self, channel: str, thread: str) -> str:
        """The status words that people see now, "" when there are none."""
        said = self.words.get((channel, thread))
        return said[-1].text if said and self.clock() < said[-1].until else ""

    def say_status(self, channel: str, thread: str, text: str, loading: list[str]) -> None:
        now = self.clock()
        self.words.setdefault((channel, thread), []).append(
            Words(text, loading, now, now + self.status_lasts)
        )
        self.changed()

    def clear_words(self, channel: str, thread: str) -> None:
        if said := self.words.get((channel, thread)):
            said[-1].until = min(said[-1].until, self.clock())

    def session(self, channel: str, thread: str) -> Session | None:
        return self.sessions.get((channel, thread))

    # watching

    def calls_to(self, *methods: str) -> list[Call]:
        return [call for call in self.calls if call.method in methods]
