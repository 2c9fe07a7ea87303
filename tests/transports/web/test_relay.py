"""What workers tell each other for their pages, over a wire that loses what it is told to."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.transports.web.alone import NoHistory
from tests.transports.web.patient import Page
from threads.background import background_tasks
from threads.model import Outgoing, Taken, TextDelta, ThreadId, ToolFinished, TurnSettled, TurnStarted
from transports.web import relay
from transports.web.files import PostedFile
from transports.web.sessions import Person
from transports.web.talk import Talk
from transports.web.thread_list import NotesState

THREAD = ThreadId("web", "", "ann", "t")
ANN = Person(id="ann")


class Files:
    async def posted(self, _):
        return []

    async def keep(self, thread, message_id, key, file, name):
        return PostedFile(message_id, name, 8, f"{message_id}~{key}~{name}")


class Unsaid:
    """What is said of threads, which is nothing."""

    value = NotesState()


async def nothing_said(_):
    return Unsaid()


class Wire:
    """Carries texts between workers, which hear their own too. ``cut`` refuses them, ``loses`` forgets them."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.cut = self.loses = False
        self.texts: list[str] = []

    def worker(self) -> Talk:
        self.ends.append(end := End(self))
        return Talk("web", Files(), NoHistory(), {}, partial(datetime.now, UTC), 0, nothing_said, end)


class End:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.heard = self.missed = lambda *_: None

    async def send(self, texts) -> None:
        if self.wire.cut:
            raise ConnectionError
        self.wire.texts += texts
        for text in () if self.wire.loses else texts:
            for end in self.wire.ends:
                end.heard(text)


class Reader:
    """A page of the thread at a worker."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        talk._streams.add(talk.stream(ANN, THREAD.root, ""))
        self._watch = talk._feeds.of(str(THREAD)).ring.watch(lambda: None)
        self._watch.__enter__()

    def read(self, page: Page, number: int) -> int:
        """Tell a page what came after this number, as its stream does, and return the new number."""
        feed = self.talk._feeds.of(str(THREAD))
        feed.write_out()
        lines = feed.ring.since(number)
        told = [{"op": "snapshot", "events": [*feed.noted()]}] if lines is None else map(json.loads, lines)
        for event in told:
            page.apply(event)
        return feed.ring.last

    def shown(self) -> list[tuple]:
        known = self.talk._feeds.of(str(THREAD))._messages.values()
        events = [event for message in known for event in message.events]
        return [(event["op"], event["id"], event.get("text", "")) for event in events]


@pytest.fixture
async def wire(monkeypatch):
    monkeypatch.setattr(relay, "PACE_S", 0.0)
    return Wire()


@pytest.fixture
async def two(wire):
    a, b = wire.worker(), wire.worker()
    async with background_tasks() as tasks:
        for talk in (a, b):
            tasks.start_soon(talk.relay.run)
        yield a, b


async def settle() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def begin(talk: Talk, message: str = "m1", words: str = "half an") -> None:
    for event in (Taken("hi", "ann"), TurnStarted("hi", "ann"), TextDelta(words)):
        talk.show(THREAD, message, event)


async def test_without_a_page_elsewhere_nothing_is_sent(two, wire):
    begin(two[1])
    await settle()
    assert wire.texts == []


@pytest.fixture
async def page(two):
    """A reader at the first worker."""
    page = Reader(two[0])
    await settle()
    return page


async def test_a_page_has_what_happened_before_it_opened_and_what_comes(two):
    a, b = two
    begin(b)
    page = Reader(a)
    await settle()
    assert page.shown() == [("message", "m1", "hi"), ("started", "m1", "hi"), ("delta", "m1", "half an")]
    b.show(THREAD, "m1", TextDelta(" answer"))
    await settle()
    assert page.shown()[-1] == ("delta", "m1", "half an answer")
    b.post(Outgoing(THREAD, "web::ann:m1", "half an answer", "reply", "m1"))
    b.show(THREAD, "m1", TurnSettled("answered"))
    await settle()
    assert [op for op, *_ in page.shown()] == ["message", "started", "post", "settled"]


async def test_a_list_elsewhere_shows_what_is_busy(two):
    a, b = two
    begin(b)
    Reader(a)
    await settle()
    assert (await a.list_threads(ANN))["threads"] == [
        {"thread": "t", "title": "hi", "busy": True, "asks": False}
    ]
    b.show(THREAD, "m1", TurnSettled("stopped"))
    await settle()
    assert (await a.list_threads(ANN))["threads"] == [
        {"thread": "t", "title": "hi", "busy": False, "asks": False}
    ]


async def test_what_the_wire_lost_is_asked_for_again_once_that_is_noticed(page, two, wire):
    _, b = two
    wire.loses = True
    begin(b)
    await settle()
    assert page.shown() == []
    wire.loses = False
    b.show(THREAD, "m1", TextDelta(" answer"))
    await settle()
    wire.ends[0].missed()
    await settle()
    assert page.shown()[-1] == ("delta", "m1", "half an answer")
    assert len(page.shown()) == 3


async def test_who_could_not_send_tells_all_at_the_next_ask(page, two, wire):
    a, b = two
    wire.cut = True
    begin(b)
    await settle()
    wire.cut = False
    a.relay.ask(*a.watched(), afresh=False)
    await settle()
    assert len(page.shown()) == 3


async def test_too_much_to_tell_is_dropped_and_told_whole_later(page, two, wire, monkeypatch):
    monkeypatch.setattr(relay, "MOST_QUEUED", 50)
    a, b = two
    for number in range(30):
        begin(b, f"m{number}")
        b.show(THREAD, "other", TextDelta("between"))
    await settle()
    a.relay.ask(*a.watched(), afresh=False)
    await settle()
    assert {message for _, message, _ in page.shown()} == {"other", *(f"m{number}" for number in range(30))}


async def test_a_message_that_another_worker_took_over_is_told_by_that_one_alone(two, wire):
    a, b = two
    begin(b)
    page = Reader(a)
    await settle()
    third = wire.worker()
    async with background_tasks() as tasks:
        tasks.start_soon(third.relay.run)
        a.relay.ask(*a.watched(), afresh=False)
        await settle()
        begin(third, words="a new")
        await settle()
    assert page.shown() == [("message", "m1", "hi"), ("started", "m1", "hi"), ("delta", "m1", "a new")]


@pytest.mark.parametrize("size", [6_000, 60_000, 300_000])
async def test_a_long_text_comes_in_pieces(page, two, wire, size):
    _, b = two
    text = "".join(chr(33 + number * number % 90) for number in range(size))
    b.show(THREAD, "m1", TextDelta(text))
    await settle()
    assert page.shown() == [("delta", "m1", text)]
    assert max(len(text.encode()) for text in wire.texts) < 8_000


async def test_a_text_beyond_all_bounds_says_so(page, two, wire, monkeypatch):
    monkeypatch.setattr(relay, "MOST_PIECES", 1)
    _, b = two
    result = "".join(random.Random(1).choices("abcdefgh", k=90_000))
    b.show(THREAD, "m1", ToolFinished("read_file", ok=True, call_id="c", result=result))
    await settle()
    [event] = page.talk._feeds.of(str(THREAD)).noted()
    assert event["result"] == relay.TOO_LONG


@pytest.mark.parametrize("apart", [True, False])
async def test_a_page_says_which_files_are_at_another_worker(two, apart):
    a, b = two
    a.files_are_apart = b.files_are_apart = apart
    begin(b)
    pages = Reader(a), Reader(b)
    await settle()
    await b.attach(THREAD, "m1", "f", Path("out.md"), "out.md")
    await settle()
    noted = [event for page in pages for event in page.talk._feeds.of(str(THREAD)).noted()]
    files = [event for event in noted if event["op"] == "file"]
    assert [file.get("elsewhere", False) for file in files] == [apart, False]


@pytest.mark.parametrize(
    "text",
    ["", "x", "a b c d", "a 1 0 {", 'a 1 0 {"told": 1}', "a 1 0 eA==", 'a 1 0 {"told":["t","m"],"event":{}}'],
)
async def test_an_odd_notice_ends_nothing(page, two, wire, text):
    _, b = two
    for end in wire.ends:
        end.heard(text)
    begin(b)
    await settle()
    assert len(page.shown()) == 3


async def test_a_thread_that_nobody_asks_for_any_more_is_told_no_more(two, wire, monkeypatch):
    monkeypatch.setattr(relay, "LASTS_S", -1.0)
    a, b = two
    Reader(a)
    await settle()
    told = len(wire.texts)
    begin(b)
    await settle()
    assert len(wire.texts) == told


@pytest.mark.parametrize("lost", ["its connection", "a notice"])
async def test_a_page_that_another_worker_tells_all_again_shows_it_once(two, wire, lost):
    a, b = two
    reader, page = Reader(a), Page()
    await settle()
    begin(b)
    await settle()
    seen = reader.read(page, -1)
    if lost == "its connection":
        a._streams.clear()
        a._streams.add(a.stream(ANN, THREAD.root, ""))
    else:
        wire.ends[0].missed()
    seen = reader.read(page, seen)
    await settle()
    reader.read(page, seen)
    assert page.draft("m1") == "half an"
