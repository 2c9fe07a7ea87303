"""The list of threads: what a person says of theirs, search, titles of a model, and a thread as a file."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from bot.ports.errors import BudgetExceeded
from bot.reports.files import FileReader
from bot.reports.usage import reports
from tests.fakes.http import Wait
from tests.fakes.openai import FakeOpenAI, Text, chat_answer, fault
from tests.patience import WITHIN_S
from tests.serving import compatible
from tests.transports.web.alone import at_once
from tests.transports.web.site import Visitor, serving_page, visiting
from threads.background import background_tasks
from threads.model import Author, Incoming, ThreadId
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from transports.web import page_history, thread_list
from transports.web.thread_list import NotesState, ThreadNote, ThreadNotes, TooManyNotes, Wanted
from transports.web.titles import Titles


def new() -> str:
    return str(uuid.uuid4())


async def begin(ann, *texts: str) -> str:
    """Say these texts in a new thread, wait until their answers are in its log, and return the thread."""
    thread, earlier = new(), {"before": str(len(texts))}
    async with ann.events(thread) as events:
        for text in texts:
            await events.until("settled", id=(message := await ann.say(text, thread)))
    with anyio.fail_after(WITHIN_S):
        while message not in (await ann.get("/api/earlier", params={"thread": thread, **earlier})).text:
            pass
    return thread


async def say_of(ann, thread, code=200, **said):
    answer = await ann.post("/api/threads", json={"thread": thread, **said})
    assert answer.status_code == code, answer.text
    return answer.json()


async def listed(ann, **query):
    return (await ann.get("/api/threads", params=query)).json()


async def titles(ann, **query):
    return [one["title"] for one in (await listed(ann, **query))["threads"]]


# --- what a person says


async def test_a_title_a_pin_and_the_archive_outlive_a_restart_and_every_tab_sees_them(tmp_path):
    async with visiting(tmp_path) as ann, ann.events("") as tab:
        first, second, third = [await begin(ann, text) for text in ("one", "two", "three")]
        await say_of(ann, first, title=" My\u202e first\nthread " + "x" * 100)
        told = await tab.until("list", thread=first, deleted=False)
        assert told["title"] == ("My first thread " + "x" * 100)[:80]
        assert told["title"] in (await ann.get("/look/threads")).text
        await say_of(ann, first, pinned=True)
        await tab.until("list", thread=first, pinned=True)
        await say_of(ann, second, archived=True)
        await tab.until("list", thread=second, archived=True)
    async with visiting(tmp_path) as ann:
        assert await titles(ann) == [told["title"], "three"]
        assert await titles(ann, archived=1) == ["two"]
        await say_of(ann, second, archived=False)
        await say_of(ann, first, title="", pinned=False)
        assert await titles(ann) == ["three", "two", "one"]
        assert third in [one["thread"] for one in (await listed(ann))["threads"]]


async def test_a_deleted_thread_is_hidden_and_closed_until_it_is_taken_back(tmp_path):
    async with visiting(tmp_path) as ann, ann.events("") as tab:
        thread = await begin(ann, "the word is plum", "write out.md hello", "attach out.md")
        async with ann.events(thread) as events:
            address = (await events.until("file"))["address"]
        await say_of(ann, thread, deleted=True)
        await tab.until("list", thread=thread, deleted=True)
        message = {"id": new(), "thread": thread, "text": "hi"}
        answers = [
            await ann.get("/api/events", params={"thread": thread}),
            await ann.get("/api/earlier", params={"thread": thread, "before": "1"}),
            await ann.get("/api/export", params={"thread": thread, "form": "md"}),
            await ann.get(address),
            await ann.post("/api/messages", json=message),
        ]
        assert [one.status_code for one in answers] == [404] * 5
        assert answers[0].json() == {"error": "This thread was deleted.", "deleted": True}
        assert (await listed(ann, search="plum"))["threads"] == await titles(ann) == []
        await say_of(ann, thread, deleted=False)
        await tab.until("list", thread=thread, deleted=False)
        assert await titles(ann) == ["the word is plum"]
        assert (await ann.get(address)).text == "hello"


async def test_a_delete_stops_what_runs(tmp_path):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    async with visiting(tmp_path, fields) as ann, ann.events(thread := new()) as events:
        message = await ann.say("write notes.md x", thread)
        await events.until("post", kind="notice", id=message)
        await say_of(ann, thread, deleted=True)
        await events.until("settled", id=message, outcome="stopped")


async def test_nobody_changes_or_reads_a_thread_of_somebody_else(tmp_path):
    async with visiting(tmp_path) as ann, Visitor(ann.site) as bob:
        await bob.enter("bob")
        thread = await begin(ann, "secret plans")
        await say_of(bob, thread, title="mine", deleted=True)
        assert await titles(ann) == ["secret plans"]
        assert (await listed(bob, search="secret"))["threads"] == []
        answer = await bob.get("/api/export", params={"thread": thread, "form": "md"})
        assert answer.status_code == 404
        del bob.headers["x-threadfast-token"]
        await say_of(bob, thread, 403, pinned=True)


def test_titles_of_models_are_forgotten_before_what_a_person_said(monkeypatch):
    monkeypatch.setattr(thread_list, "MOST_NOTES", 2)
    state = NotesState(threads={"a": ThreadNote(pinned=True), "b": ThreadNote(title="t", asked=True)})
    state = thread_list._changed("c", lambda note: note.model_copy(update={"archived": True}), state)
    assert [*state.threads] == ["a", "c"]
    with pytest.raises(TooManyNotes):
        thread_list._changed("d", lambda note: note.model_copy(update={"deleted_at": "now"}), state)
    assert thread_list._changed("a", lambda note: note, state) is state


def test_every_thread_is_on_one_part_of_the_list(monkeypatch):
    monkeypatch.setattr(thread_list, "MOST_LISTED", 3)
    # two at a time have the same instant
    found = [(f"t{number}", float(number // 2)) for number in range(10)]
    notes = {
        "t1": ThreadNote(pinned=True),
        "t5": ThreadNote(deleted_at="now"),
        "t6": ThreadNote(archived=True),
    }
    seen, before = [], ""
    while True:
        part, before = Wanted(before=before).of(found, notes)
        seen += [root for root, _ in part]
        if not before:
            break
    assert seen == ["t1", "t8", "t9", "t7", "t4", "t2", "t3", "t0"]
    assert Wanted(archived=True).of(found, notes) == ([("t6", 3.0)], "")


async def test_the_list_ends_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(thread_list, "MOST_LISTED", 2)
    async with visiting(tmp_path) as ann:
        for text in ("one", "two", "three"):
            await begin(ann, text)
        part = await listed(ann)
        assert [one["title"] for one in part["threads"]] == ["three", "two"]
        assert await titles(ann, before=part["before"]) == ["one"]
        assert (await ann.get("/api/threads", params={"before": "nan:x"})).status_code == 422


# --- search


async def test_a_search_finds_words_in_titles_and_texts_whatever_their_case(tmp_path):
    async with visiting(tmp_path) as ann:
        named, said = await begin(ann, "hello"), await begin(ann, "first", f'{"long " * 40}Äpfel "and" pears')
        await begin(ann, "apples alone")
        await say_of(ann, named, title="Recipes of Äpfel", archived=True)
        hits = (await listed(ann, search="äpfel"))["threads"]
        expected = [(said, "first"), (named, "Recipes of Äpfel")]
        assert [(one["thread"], one["title"]) for one in hits] == expected
        assert 'Äpfel "and" pears' in hits[0]["text"]
        assert "text" not in hits[1]
        assert len(hits[0]["text"]) <= page_history.AROUND
        async with ann.events(said) as events:
            await events.until("message", id=hits[0]["message"])
        assert [one["thread"] for one in (await listed(ann, search='PEARS "and"'))["threads"]] == [said]
        assert (await listed(ann, search="first pears"))["threads"] == []


async def test_a_search_that_takes_too_long_says_how_much_it_left_out(tmp_path, monkeypatch):
    async with visiting(tmp_path) as ann:
        for text in ("one plum", "two plums", "three plums"):
            await begin(ann, text)
        assert (await listed(ann, search="plum"))["left_out"] == 0
        monkeypatch.setattr(page_history, "MOST_HITS", 1)
        found = await listed(ann, search="plum")
        assert ([one["title"] for one in found["threads"]], found["left_out"]) == (["three plums"], 2)
        monkeypatch.setattr(page_history, "SEARCH_S", -1.0)
        assert await listed(ann, search="plum") == {"threads": [], "left_out": 3}


# --- a thread as a file


@pytest.mark.parametrize("form", ["md", "html"])
async def test_a_thread_is_a_download_with_a_safe_name(tmp_path, form):
    async with visiting(tmp_path) as ann:
        thread = await begin(ann, "<b>hi</b> sk-ant-REDACTED")
        await say_of(ann, thread, title='../Ä "list"\r\nX: y')
        answer = await ann.get("/api/export", params={"thread": thread, "form": form})
        named = answer.headers["content-disposition"]
        assert named == f"attachment; filename*=UTF-8''%C3%84-list-X-y.{form}"
        assert answer.headers["content-type"].startswith({"md": "text/markdown", "html": "text/html"}[form])
        assert ("hi" in answer.text, "<b>hi" in answer.text) == (True, form == "md")
        assert "sk-ant-api03" not in answer.text
        assert (await ann.get("/api/export", params={"thread": new(), "form": form})).status_code == 404
        assert (await ann.get("/api/export", params={"thread": thread, "form": "exe"})).status_code == 422


# --- titles of a model

ANSWER = chat_answer(Text("It is made of flour."))
TITLE = chat_answer(Text('"Bread\u202e and\x07 flour"\nAs you asked.'))
CHEAP = {"input": 10, "output": 1}
DEAR = {"prices": {"local/m": CHEAP, "local/other": {"input": 100_000, "output": 1}}}


@asynccontextmanager
async def asking(data, replies, web=None, **fields):
    """Serve the page with a model that has a price and these replies; yield a visitor and the requests."""
    async with FakeOpenAI(replies) as api:
        prices = {"local/m": CHEAP, "local/other": CHEAP}
        given = {"providers": compatible("local", api.base_url, free=False), "prices": prices, **fields}
        async with (
            serving_page(data, given, model="local/m", web={"titles": True, **(web or {})}) as site,
            Visitor(site) as ann,
        ):
            await ann.enter()
            yield ann, api.requests


async def titled(ann, thread, title):
    """Wait until a thread has this title."""
    with anyio.fail_after(WITHIN_S):
        async with ann.events("") as tab:
            while await titles(ann) != [title]:
                await tab.until("list")


def spent(data):
    """Return the calls of each thread in the ledger, and what they cost in micro-dollars."""
    [report] = reports(FileReader(data), ["thread"], ("", None))
    return [(line.calls, line.micros) for line in report.lines]


async def test_a_model_gives_a_thread_its_title_once_and_the_thread_pays_for_it(tmp_path):
    async with asking(tmp_path, [ANSWER, TITLE]) as (ann, requests):
        thread = await begin(ann, "what is bread made of?")
        await titled(ann, thread, "Bread and flour")
        asked = requests[1].json
        assert asked["max_tokens"] == 20
        assert "tools" not in asked
        assert "what is bread made of?" in str(asked["messages"])
        assert "It is made of flour." in str(asked["messages"])
    [(calls, micros)] = spent(tmp_path)
    assert (calls, micros) == (2, 2 * (18 * 10 + 7 * 1))
    async with asking(tmp_path, [ANSWER]) as (ann, requests):
        more = []
        ann.site.web._talk.answered = lambda *args: more.append(args)
        async with ann.events(thread) as events:
            await events.until("settled", id=await ann.say("and cake?", thread))
        assert (await titles(ann), more, len(requests)) == (["Bread and flour"], [], 1)


async def test_another_model_of_the_settings_makes_the_titles(tmp_path):
    async with asking(tmp_path, [ANSWER, TITLE], {"titles_model": "local/other"}) as (ann, requests):
        await titled(ann, await begin(ann, "bread?"), "Bread and flour")
    assert [one.json["model"] for one in requests] == ["m", "other"]


async def test_a_title_of_its_person_stays(tmp_path):
    go = anyio.Event()
    async with asking(tmp_path, [ANSWER, replace(TITLE, steps=(Wait(go), *TITLE.steps))]) as (ann, requests):
        tried = watched(ann.site.web._titles)
        await say_of(ann, await begin(ann, "bread?"), title="Mine")
        go.set()
        with anyio.fail_after(WITHIN_S):
            await tried.wait()
        assert (await titles(ann), len(requests)) == (["Mine"], 2)


def watched(at_work):
    """Return an event that is set once a title was made, or not."""
    over, give = anyio.Event(), at_work._give

    async def work(*args):
        try:
            await give(*args)
        finally:
            over.set()

    at_work._give = work
    return over


NONE: dict[str, tuple[list, dict, dict]] = {
    "turned off": ([ANSWER], {}, {"titles": False}),
    "no budget": ([ANSWER], DEAR, {"titles_model": "local/other"}),
    "a model that fails": ([ANSWER, fault(400, None)], {}, {}),
    "a model that says nothing": ([ANSWER, chat_answer(Text("  "))], {}, {}),
    "a model that is not there": ([ANSWER], {}, {"titles_model": "nobody/x"}),
}


@pytest.mark.parametrize("case", NONE)
async def test_without_a_title_of_a_model_the_first_words_stay_and_nobody_is_disturbed(tmp_path, case):
    replies, fields, web = NONE[case]
    async with asking(tmp_path, replies, web, **fields) as (ann, requests):
        tried = watched(ann.site.web._titles) if case != "turned off" else None
        async with ann.events(thread := new()) as events:
            message = await ann.say("bread?", thread)
            await events.until("settled", id=message, outcome="answered")
            if tried:
                with anyio.fail_after(WITHIN_S):
                    await tried.wait()
            await events.until("settled", id=await ann.say("/help", thread))
        assert len([one for one in events.seen if one["op"] == "post" and one["id"] == message]) == 1
        assert await titles(ann) == ["bread?"]
        assert len(requests) == len(replies)


async def test_the_demo_makes_no_titles(tmp_path):
    async with visiting(tmp_path) as ann:
        await begin(ann, "hello")
        assert await titles(ann) == ["hello"]
    assert not [*tmp_path.glob("web-threads-*")]


async def test_a_model_is_not_asked_again_for_what_was_asked_before_a_restart(tmp_path):
    states = JsonFiles(PosixDisk(), tmp_path, at_once)
    made, told = [], []
    for _ in range(2):
        notes = ThreadNotes(
            lambda person: states.open(f"web-threads-{person}", NotesState()), lambda *_: None
        )

        async def make(incoming, answer, begin, tell):
            await begin()
            made.append(answer)
            tell("nearly used up")
            raise BudgetExceeded("no")

        at_work = Titles(make, notes, lambda _, text: told.append(text))
        async with background_tasks() as tasks:
            tasks.start_soon(at_work.run)
            at_work.answered(Incoming("m", ThreadId("web", "", "ann", "t"), Author("ann"), "q"), "a")
            await anyio.wait_all_tasks_blocked()
    assert (made, told) == (["a"], ["nearly used up"])
