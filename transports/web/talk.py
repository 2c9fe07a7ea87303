"""A person's threads on the page: what they send goes to the sink, and what happens comes to their feeds.

A thread belongs to the person in its ``channel``. Nobody else writes there or reads it here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Protocol
from urllib.parse import quote

from anyio import to_thread
from cachetools import FIFOCache
from pydantic import JsonValue

from threads import wording
from threads.model import (
    Attachment,
    Author,
    Deleted,
    Edited,
    Feedback,
    Incoming,
    Outgoing,
    QuestionClosed,
    Sink,
    Taken,
    ThreadId,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    WallClock,
)
from transports.base.notices import Notices
from transports.base.text import clean
from transports.shared.buttons import is_control
from transports.web.events import (
    Past,
    history_events,
    in_order,
    is_quiet,
    message_event,
    post_event,
    turn_event,
)
from transports.web.feed import Event, Feeds
from transports.web.files import Files, PostedFile
from transports.web.relay import Relay
from transports.web.sessions import Person
from transports.web.stream import Stream
from transports.web.thread_list import NOTHING, OpenNotes, ThreadNotes, Wanted, shown

LAST_MESSAGES = 50
"""Messages of a thread's log that a page is shown at once."""

MOST_WORDS = 8
"""Words of a search."""

ALL = Wanted()
"""The list that a page shows at first."""

MOST_STREAMS = 40
"""Streams of one person that are open at once."""

IDLE: Event = {"title": "", "busy": False, "asks": False}

ERASED: Event = {"op": "erased", "id": ""}

MOST_SENT = 1_000
"""Messages that are being handed over, with what only their sender knows: the time and the files."""


class UnknownFile(Exception):
    """A message names a file that was not sent."""


class TooManyStreams(Exception):
    """A person has the page open too often."""


class TurnBegan(Exception):
    """A message is edited after its turn began, or deleted after it had an outcome."""


class StillRunning(Exception):
    """A thread cannot go back to a message while something in it has no outcome."""


class NoSuchThread(Exception):
    """The store has nothing of a thread."""


Choose = Callable[[Sequence[tuple[str, float]]], Sequence[tuple[str, float]]]
"""Chooses of a person's threads, each its root and when it changed, in seconds since 1970."""


class PastThreads(Protocol):
    """What the store knows of the threads of this transport. Raises OSError."""

    async def threads(self, person: str, choose: Choose) -> Sequence[tuple[str, str, float]]:
        """Return the threads of a person that are chosen of all: root, first words, and when it changed."""

    async def search(
        self, person: str, words: Sequence[str], titles: Mapping[str, str], hidden: Container[str]
    ) -> tuple[list[Event], int]:
        """Return the threads with all these words in their title or in one text, but not those that are hidden.

        The words are in lower case. With them comes how many threads were not looked into.
        """

    async def export(self, thread: ThreadId, title: str, form: str) -> tuple[str, IO[str]]:
        """Return the title of a thread, by default its first words, and an open file with all of it.

        The form is "md" or "html". Raises `NoSuchThread`.
        """

    async def past(self, thread: ThreadId, most: int, before: int | None = None) -> Past:
        """Return the last messages of a thread's log, *most* of them, or the last of the first *before*."""


class Talk:
    """``sink`` is set while the transport is served. ``commands`` are the bot's, with their meanings.

    ``answered`` is called with a message of a thread that has no title yet, and its answer. ``forget_titles`` drops
    what is remembered of the first words of a thread.
    """

    sink: Sink
    files_are_apart = False

    def __init__(
        self,
        name: str,
        files: Files,
        history: PastThreads,
        commands: Mapping[str, str],
        now: WallClock,
        most_bytes: int,
        open_notes: OpenNotes,
        notices: Notices | None = None,
    ) -> None:
        self.files, self.commands, self.most_bytes = files, commands, most_bytes
        self._name, self._history, self._now = name, history, now
        self.answered: Callable[[Incoming, str], None] = lambda *_: None
        self.forget_titles: Callable[[str], None] = lambda _: None
        self._feeds = Feeds()
        self._streams: set[Stream] = set()
        self._repaired: set[str] = set()
        self._elsewhere: dict[str, dict[str, Event]] = {}
        self.relay = Relay(self, notices)
        self.notes = ThreadNotes(open_notes, lambda person, told: self._feeds.list_of(person).append(told))
        self._sent: FIFOCache[str, Event] = FIFOCache(MOST_SENT)

    async def send(
        self,
        person: Person,
        root: str,
        message_id: str,
        text: str,
        files: Sequence[tuple[str, str]] = (),
        replaces: str = "",
    ) -> None:
        """Hand a message over. Raises `UnknownFile` and `StoreUnavailable`."""
        thread = await self.open(person, root)
        attachments = tuple([await self._attachment(person, *file) for file in files])
        at = self._now().isoformat(timespec="milliseconds")
        author = Author(person.id, person.name)
        if not is_quiet(text):
            sizes = [(file.name, file.size) for file in attachments]
            self._sent[message_id] = message_event(message_id, text, person.id, at, sizes, replaces)
        pictures = [await self.files.keep_picture(thread, message_id, file) for file in attachments]
        await self.sink(Incoming(message_id, thread, author, text, at, files=attachments, replaces=replaces))
        for picture in filter(None, pictures):
            self._publish(thread, _file_event(thread, picture))

    async def again(self, person: Person, root: str, message_id: str, replaces: str, text: str) -> None:
        """Hand a message over that takes the place of an earlier one: with the same text, or with another.

        Raises `StillRunning` and `StoreUnavailable`.
        """
        feed = self._feeds.of(str(self.thread(person, root)))
        if feed.running and not feed.knows(message_id):
            raise StillRunning
        await self.send(person, root, message_id, text, replaces=replaces)

    async def edit(self, person: Person, root: str, message_id: str, text: str) -> None:
        """Replace the text of a message that waits. Raises `TurnBegan` and `StoreUnavailable`."""
        thread = await self.open(person, root)
        if self._feeds.of(str(thread)).began(message_id):
            raise TurnBegan
        await self.sink(Edited(message_id, thread, text))
        if self._feeds.of(str(thread)).started_with(message_id) not in {None, clean(text)}:
            raise TurnBegan  # meanwhile, with the text before
        self._publish(thread, {"op": "edit", "id": message_id, "text": clean(text)})

    async def delete(self, person: Person, root: str, message_id: str) -> None:
        """Withdraw a message that has no outcome yet. Raises `TurnBegan` and `StoreUnavailable`."""
        thread = await self.open(person, root)
        if self._feeds.of(str(thread)).settled(message_id):
            raise TurnBegan
        await self.sink(Deleted(message_id, thread))

    async def feedback(
        self, person: Person, root: str, feedback_id: str, post_id: str, verdict: Literal["up", "down"]
    ) -> None:
        """Hand a verdict on an answer over."""
        author = Author(person.id, person.name)
        await self.sink(Feedback(feedback_id, await self.open(person, root), author, post_id, verdict))

    async def list_threads(self, person: Person, wanted: Wanted = ALL) -> Event:
        """Return the person's threads, newest first, and the cursor for more."""
        notes, known, cursor = await self.notes.of(person.id), set[str](), ""

        def choose(found: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
            nonlocal cursor
            known.update(root for root, _ in found)
            chosen, cursor = wanted.of(found, notes)
            return chosen

        stored = await self._history.threads(person.id, choose)
        now, threads = self._busy_now(person), list[JsonValue]()
        for root in [] if wanted.archived or wanted.before else [*reversed(now)]:
            if root not in known and wanted.takes(notes.get(root, NOTHING)):
                threads.append({"thread": root, **now[root]})  # its first message has no outcome yet
        for root, title, at in stored:
            note, live = notes.get(root, NOTHING), now.get(root, IDLE)
            words = note.title or title or live["title"]
            threads.append({**shown(note), **live, "thread": root, "at": at, "title": words})
        return {"threads": threads, **({"before": cursor} if cursor else {})}

    def _busy_now(self, person: Person) -> dict[str, Event]:
        """Return of each thread in memory its title, and whether it is busy and asks, by its root."""
        now: dict[str, Event] = {}
        for name, feed in self._feeds.known.items():
            thread = ThreadId.parse(name)
            if thread.channel == person.id and feed.title:
                now[thread.root] = {"title": feed.title, "busy": feed.running, "asks": feed.asks}
        for root, event in self._elsewhere.get(person.id, {}).items():
            here = now.get(root, IDLE)
            state: Event = {one: here[one] or bool(event.get(one)) for one in ("busy", "asks")}
            now[root] = {"title": here["title"] or str(event["title"]), **state}
        return now

    async def search(self, person: Person, text: str) -> Event:
        """Return the person's threads in which all words of *text* are, and how many were not looked into."""
        notes, words = await self.notes.of(person.id), text.lower().split()[:MOST_WORDS]
        titles = {root: note.title for root, note in notes.items()}
        hidden = {root for root, note in notes.items() if note.deleted_at}
        hits, left = await self._history.search(person.id, words, titles, hidden) if words else ([], 0)
        return {"threads": [*hits], "left_out": left}

    async def export(self, person: Person, root: str, form: str) -> tuple[str, IO[str]]:
        """Return the title of a thread, and an open file with all of it."""
        thread = await self.open(person, root)
        return await self._history.export(thread, self.notes.known(person.id, root).title, form)

    async def say_of(self, person: Person, root: str, said: Mapping[str, str | bool]) -> None:
        """Change what is said of a thread. Raises `TooManyNotes` and `StoreUnavailable`."""
        if said.get("deleted_at") and self._busy_now(person).get(root, IDLE)["busy"]:
            await self.send(person, root, str(uuid.uuid4()), "/stop", [])
        await self.notes.change(person.id, root, lambda note: note.model_copy(update=said))

    def stream(
        self, person: Person, root: str, last_id: str, may_go_on: Callable[[], bool] = lambda: True
    ) -> Stream:
        """Return the stream of a page that shows this thread, or only the list if *root* is blank.

        It ends once *may_go_on* says no. Raises `TooManyStreams`.
        """
        if sum(stream.person == person.id for stream in self._streams) >= MOST_STREAMS:
            raise TooManyStreams
        thread = self.thread(person, root)

        async def snapshot() -> list[Event]:
            return await self._past(thread, None, self._feeds.of(str(thread)).knows)

        feed = self._feeds.of(str(thread)) if root else None
        threads, people = self.watched()
        self.relay.ask({str(thread)} - threads if root else (), {person.id} - people, afresh=True)
        named, names = str(thread) if root else "", self._feeds.list_of(person.id)
        return Stream(person.id, named, names, feed, snapshot, last_id, self._streams, may_go_on)

    async def earlier(self, person: Person, root: str, before: int) -> list[Event]:
        """Return what the page is told of the last messages of the first *before* of a thread."""
        return in_order(await self._past(await self.open(person, root), before, lambda _: False))

    async def _past(self, thread: ThreadId, before: int | None, also: Callable[[str], bool]) -> list[Event]:
        past = await self._history.past(thread, LAST_MESSAGES, before)
        shown = {entries[0].message_id for entries in past.messages}
        posted = await self.files.posted(thread)
        files = [file for file in posted if file.message_id in shown or also(file.message_id)]
        events = await to_thread.run_sync(list, history_events(past))  # fifty answers are read as Markdown
        return [*events, *(_file_event(thread, file) for file in files)]

    def look_again(self) -> None:
        """Show the threads anew whose last outcomes an earlier process had not written into their logs."""
        for thread in self._repaired & self._feeds.known.keys():
            self._feeds.of(thread).ring.reset()
        self._repaired.clear()

    def end(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.end()

    def posted_file(self, person: Person, root: str, stored: str) -> Path | None:
        """Return where a file of the person's thread is, None for a name that cannot be one."""
        return self.files.path(self.thread(person, root), stored)

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Tell the pages of an event."""
        known = self._feeds.of(str(thread)).knows(message_id) or message_id in self._sent
        if isinstance(event, TurnSettled) and event.again and not known:
            self._repaired.add(str(thread))
        if told := turn_event(message_id, event, self._now()):
            self._publish(thread, told)
        if isinstance(event, Taken | TurnStarted | TurnSettled | QuestionClosed):
            self._list(thread)
        if isinstance(event, TurnSettled) and event.outcome == "answered":
            self._answered(thread, message_id)

    def post(self, outgoing: Outgoing) -> str:
        """Show a post, in place of one with the same key."""
        event = post_event(outgoing, self._now().isoformat(timespec="milliseconds"))
        if is_quiet(outgoing.about):
            event |= {"op": "told", "text": clean(outgoing.text)}
        if event["op"] == "post" or outgoing.text not in (wording.APPROVED, wording.DENIED):
            self._publish(outgoing.thread, event)
        if not outgoing.reply_to:
            self._publish(
                outgoing.thread, {"op": "settled", "id": event["id"], "outcome": "posted", "code": ""}
            )
        if outgoing.choices:
            self._list(outgoing.thread)
        posts = self._feeds.of(str(outgoing.thread)).posts
        posts[outgoing.key] = str(event["key"])
        return posts[outgoing.key]

    def find(self, thread: ThreadId, key: str) -> str | None:
        """Return the key under which a post is shown, None if this process has not shown it."""
        return self._feeds.of(str(thread)).posts.get(key)

    async def attach(self, thread: ThreadId, message_id: str, key: str, file: Path, name: str) -> None:
        """Store a file that the bot posts, and show it. Raises `PostFailed`."""
        posted = await self.files.keep(thread, message_id, key, file, name)
        self._publish(thread, _file_event(thread, posted))

    async def erased(self, thread: ThreadId) -> None:
        """Drop the files and the title of a thread that was erased, and what is remembered of it at any worker.

        It stays while the thread has a history: only another part of it was erased. Raises `StoreUnavailable` and
        OSError.
        """
        if (await self._history.past(thread, 1)).messages:
            return
        await self.files.erase(thread)
        await to_thread.run_sync(self.forget_titles, str(thread))  # it waits for who reads titles
        self._publish(thread, ERASED)
        await self.notes.change(
            thread.channel, thread.root, lambda note: note.model_copy(update={"title": "", "named": False})
        )
        self._list(thread)

    def tell(self, incoming: Incoming, text: str) -> None:
        """Tell the pages of a message's thread something that is no message."""
        self._publish(incoming.thread, {"op": "told", "id": incoming.id, "text": clean(text)})

    def _answered(self, thread: ThreadId, message_id: str) -> None:
        events = self._feeds.of(str(thread)).events_of(message_id)
        asked = next((str(one["text"]) for one in events if one["op"] in {"message", "started"}), "")
        answer = next((str(one["text"]) for one in reversed(events) if one.get("kind") == "reply"), "")
        note = self.notes.known(thread.channel, thread.root)
        if answer and not (is_control(asked) or note.asked or note.named):
            self.answered(Incoming(message_id, thread, Author(thread.channel), asked, ""), answer)

    def _list(self, thread: ThreadId) -> None:
        """Tell the pages of the thread's person what its place in the list shows now."""
        feed, note = self._feeds.of(str(thread)), self.notes.known(thread.channel, thread.root)
        told: Event = {"op": "list", "thread": thread.root, "title": feed.title}
        told |= {"busy": feed.running, "asks": feed.asks}
        if note != NOTHING:
            told |= {**shown(note), "title": note.title or feed.title}
        self._feeds.list_of(thread.channel).append(told)
        self.relay.list(thread.channel, told)

    def _publish(self, thread: ThreadId, event: Event) -> None:
        for told in self._with_message(str(event["id"]), event):
            self._feeds.of(str(thread)).publish(told)
            self.relay.tell(str(thread), told)

    def _with_message(self, message_id: str, event: Event) -> list[Event]:
        """Put what its sender knows of a message before its first event; a command has no other to tell it."""
        sent = self._sent.pop(message_id, None)
        if sent is None:
            return [event]
        return [sent] if event["op"] == "message" else [sent, event]

    # what other workers tell, and are told: a `transports.web.relay.Pages`

    def watched(self) -> tuple[set[str], set[str]]:
        return {one.thread for one in self._streams if one.thread}, {one.person for one in self._streams}

    def own(self, thread: str) -> Mapping[str, list[Event]]:
        return self._feeds.known[thread].own() if thread in self._feeds.known else {}

    def busy(self, person: str) -> list[Event]:
        known = {ThreadId.parse(name): feed for name, feed in self._feeds.known.items()}
        return [
            {"op": "list", "thread": thread.root, "title": feed.title, "busy": True}
            for thread, feed in known.items()
            if thread.channel == person and feed.running
        ]

    def forget(self, threads: Iterable[str], people: Iterable[str]) -> None:
        for thread in threads:
            if thread in self._feeds.known:
                self._feeds.of(thread).forget_others()
        for person in people:
            self._elsewhere.pop(person, None)

    def take(self, origin: str, thread: str, message_id: str, event: Event, *, whole: bool) -> None:
        feed = self._feeds.known.get(thread)
        if event == ERASED:
            self.forget_titles(thread)
        if feed is None or not (feed.ring.watched or event == ERASED):
            return
        if event["op"] == "file" and self.files_are_apart:
            event = {**event, "elsewhere": True}
        first, *more = self._with_message(message_id, event)
        feed.publish(first, origin, anew=whole)
        for told in more:
            feed.publish(told, origin)

    def take_listed(self, person: str, event: Event) -> None:
        if person in self.watched()[1]:
            self._elsewhere.setdefault(person, {})[str(event["thread"])] = event
            self._feeds.list_of(person).append(event)

    def thread(self, person: Person, root: str) -> ThreadId:
        """Return the person's thread with this root."""
        return ThreadId(self._name, "", person.id, root)

    async def open(self, person: Person, root: str) -> ThreadId:
        """Return a thread of the person. Raises `ThreadDeleted` and OSError."""
        await self.notes.check(person.id, root)
        return self.thread(person, root)

    async def _attachment(self, person: Person, file_id: str, name: str) -> Attachment:
        attachment = await self.files.sent(person.id, file_id, name)
        if attachment is None:
            raise UnknownFile(name)
        return attachment


def _file_event(thread: ThreadId, file: PostedFile) -> Event:
    return {
        "op": "picture" if file.sent else "file",
        "id": file.message_id,
        "key": file.stored,
        "name": file.name,
        "size": file.size,
        "address": f"/files/{quote(thread.root, safe='')}/{quote(file.stored, safe='')}",
    }
