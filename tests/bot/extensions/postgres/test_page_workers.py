"""Two whole bots over one database, each with its page: any of them shows all, and talks to any thread."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack, asynccontextmanager, closing

import anyio
import pytest

from bot.config.settings import Settings
from bot.extensions.postgres.reading import PostgresReader
from bot.reports.audit_trail import Filter, read_audit
from bot.reports.line_reader import Damage
from tests.fakes.http import Wait
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.patience import WITHIN_S, until
from tests.serving import KEYS, compatible
from tests.transports.web.patient import watching
from tests.transports.web.site import Visitor, serving_page
from threads.model import ThreadId
from transports.web import relay
from transports.web.events import history_events
from transports.web.page_history import ThreadHistory

ASKS = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def two(dsn, tmp_path, fields=None, model="offline/demo", files=None):
    """Yield a visitor of each of two workers: the same person, with a session of each."""
    given = {**(fields or ASKS), "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}
    web = {"files": files} if files else {}
    async with AsyncExitStack() as stack:
        visitors = []
        for name in ("a", "b"):
            environ = {**KEYS, "DATABASE_URL": dsn}
            serving = serving_page(tmp_path / name, given, model=model, environ=environ, web=web)
            site = await stack.enter_async_context(serving)
            visitors.append(await stack.enter_async_context(Visitor(site)))
            await visitors[-1].enter()
        yield visitors


def owns(visitor, thread) -> bool:
    """Return whether the worker of a visitor served the thread's messages."""
    return bool(visitor.site.web._talk.own(f"web::you:{thread}"))


async def test_a_thread_that_one_worker_serves_is_followed_and_continued_at_the_other(dsn, tmp_path):
    async with two(dsn, tmp_path) as (a, b):
        thread = str(uuid.uuid4())
        async with watching(b, thread) as at_b, watching(a, thread) as at_a:
            first = await b.say("hello", thread)
            await at_b.until(lambda: at_b.state(first) == "answered")
            await at_a.until(lambda: at_a.state(first) == "answered")
            assert at_a.posts(first) == at_b.posts(first)
            second = await a.say("and again", thread)
            for page in (at_a, at_b):
                await page.until(lambda page=page: page.state(second) == "answered")
                assert len(page.posts(second)) == 1
                assert page.messages[second].text == "and again"
            assert owns(a, thread) != owns(b, thread)
        for visitor in (a, b):
            listed = (await visitor.get("/api/threads")).json()["threads"]
            assert [(one["thread"], one["title"], one["busy"]) for one in listed] == [
                (thread, "hello", False)
            ]


async def test_a_question_of_one_worker_is_answered_at_the_other(dsn, tmp_path):
    async with two(dsn, tmp_path) as (a, b):
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a, watching(b, thread) as at_b:
            message = await b.say("write notes.md buy milk", thread)
            await at_a.until(lambda: at_a.choices(message))
            await at_b.until(lambda: at_b.choices(message))
            other = a if owns(b, thread) else b
            seen = at_a if other is a else at_b
            listed = (await other.get("/api/threads")).json()["threads"]
            assert [(one["thread"], one["busy"]) for one in listed] == [(thread, True)]
            press = next(one for one in seen.choices(message) if one.startswith("/approve"))
            await other.say(press, thread)
            for page in (at_a, at_b):
                await page.until(lambda page=page: page.state(message) == "answered")
                assert not page.choices(message)
                assert {"tool", "tool_done", "closed", "spent"} <= {one["op"] for one in page.seen}
    settings = Settings.model_validate(
        {"store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}, strict=False
    )
    past = await ThreadHistory(settings, {"DATABASE_URL": dsn}).past(ThreadId("web", "", "you", thread), 100)
    told = [one for one in history_events(past) if one.get("id") == message]
    assert {"tool", "tool_done", "closed", "spent"} <= {one["op"] for one in told}
    assert len({one["id"] for one in history_events(past) if "id" in one}) == 1


async def test_text_grows_at_both_and_a_page_that_opens_in_the_middle_has_all_of_it(dsn, tmp_path):
    go = anyio.Event()
    whole = chat_answer(Text("The beginning. " * 40, 10))
    steps = (*whole.steps[:6], Wait(go), *whole.steps[6:])
    async with FakeOpenAI([type(whole)(steps, headers=whole.headers)]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with two(dsn, tmp_path, fields, "local/m") as (a, b):
            thread = str(uuid.uuid4())
            message = await a.say("hello", thread)
            async with watching(a, thread) as at_a, watching(b, thread) as at_b:
                # Either may be told later than the other.
                await until(lambda: at_a.draft(message) and at_a.draft(message) == at_b.draft(message))
                assert at_b.messages[message].text == "hello"
                go.set()
                for page in (at_a, at_b):
                    await page.until(lambda page=page: page.state(message) == "answered")
                    assert page.posts(message) == [("The beginning. " * 40).strip()]


async def test_what_is_said_of_a_thread_and_found_in_it_is_the_same_at_all(dsn, tmp_path):
    async with two(dsn, tmp_path) as (a, b), b.events("") as at_b:
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a:
            message = await a.say("the word is plum", thread)
            await at_a.until(lambda: at_a.state(message) == "answered")
        await a.post("/api/threads", json={"thread": thread, "title": "Fruit", "pinned": True})
        await at_b.until("list", thread=thread, title="Fruit", pinned=True)
        found = (await b.get("/api/threads", params={"search": "PLUM"})).json()
        assert [(one["title"], one["message"]) for one in found["threads"]] == [("Fruit", message)]
        exported = await b.get("/api/export", params={"thread": thread, "form": "md"})
        assert "the word is plum" in exported.text
        await b.post("/api/threads", json={"thread": thread, "deleted": True})
        async with a.events("") as at_a:
            with anyio.fail_after(WITHIN_S):
                while (await a.get("/api/threads")).json()["threads"]:
                    await at_a.until("list")
        assert (await a.get("/api/events", params={"thread": thread})).status_code == 404


async def test_a_link_and_a_session_of_one_worker_count_at_all(dsn, tmp_path):
    async with two(dsn, tmp_path) as (a, b):
        link, name = a.site.link(), b.site.web.address.cookie
        async with Visitor(a.site) as third, Visitor(b.site) as again:
            third.site.link = lambda *_: link
            await third.enter()
            assert (await again.post("/api/enter", json={"link": link})).status_code == 403
            again.cookies[name] = third.cookies[third.site.web.address.cookie]
            await until_status(again, 200)
            await third.post("/api/leave", json={})
            await until_status(again, 401)


async def until_status(visitor, code) -> None:
    """Wait until a worker has heard of what another one stored."""
    with anyio.fail_after(WITHIN_S):
        while (await visitor.get("/api/threads")).status_code != code:
            await anyio.sleep(0.05)


async def test_what_was_lost_between_workers_is_asked_for_again(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr(relay, "ASK_S", 0.3)
    async with two(dsn, tmp_path) as (a, b):
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a, watching(b, thread) as at_b:
            first = await b.say("hello", thread)
            await at_a.until(lambda: at_a.state(first) == "answered")
            await at_b.until(lambda: at_b.state(first) == "answered")
            owner, other = (a, b) if owns(a, thread) else (b, a)
            page = at_b if owner is a else at_a
            heard = other.site.web._talk.relay._notices.heard
            other.site.web._talk.relay._notices.heard = lambda _: None
            message = await owner.say("write notes.md x", thread)
            mine = at_a if owner is a else at_b
            await mine.until(lambda: mine.choices(message))
            assert page.state(message) == "waiting"
            notices = other.site.web._talk.relay._notices
            notices.heard = heard
            notices.missed()  # as its session says when it is back
            await page.until(lambda: page.choices(message))


async def test_an_answer_longer_than_a_notice_reaches_the_other_worker(dsn, tmp_path):
    text = " ".join(f"{number:x}" for number in range(30_000))
    async with FakeOpenAI([chat_answer(Text(text, 40))]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with two(dsn, tmp_path, fields, "local/m") as (a, b):
            thread = str(uuid.uuid4())
            async with watching(a, thread) as at_a, watching(b, thread) as at_b:
                message = await a.say("hello", thread)
                for page in (at_a, at_b):
                    await page.until(lambda page=page: page.state(message) == "answered")
                    assert page.posts(message) == [text]


async def posted(owner, page, thread) -> str:
    """Have a worker post a file, and return its address."""
    await page.until(lambda: True)
    first = await owner.say("write out.md hello", thread)
    await page.until(lambda: page.state(first) == "answered")
    await owner.say("attach out.md", thread)
    await page.until(lambda: any(one["op"] == "file" for one in page.seen))
    return next(one["address"] for one in page.seen if one["op"] == "file")


OPEN = {"tools": {"enabled": ["files"]}}


async def test_a_file_of_one_worker_is_missed_at_the_other_with_a_clear_word(dsn, tmp_path, caplog):
    async with two(dsn, tmp_path, OPEN) as (a, b):
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a, watching(b, thread) as at_b:
            address = await posted(a, at_a, thread)
            await at_b.until(lambda: any(one["op"] == "file" for one in at_b.seen))
            owner, other = (a, b) if owns(a, thread) else (b, a)
            assert (await owner.get(address)).text == "hello"
            missing = await other.get(address)
            assert (missing.status_code, "transports.web.files" in missing.text) == (404, True)
    assert "web.files_apart" in caplog.text


async def test_with_a_shared_folder_files_go_both_ways_at_every_worker(dsn, tmp_path, caplog):
    async with two(dsn, tmp_path, OPEN, files=tmp_path / "shared") as (a, b):
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a:
            address = await posted(a, at_a, thread)
            assert [(await one.get(address)).text for one in (a, b)] == ["hello", "hello"]
            for visitor in (a, b):  # one of them does not serve the thread
                sent = (await visitor.post("/api/files?name=notes.txt", content=b"buy milk")).json()
                files = [{"id": sent["id"], "name": "notes.txt"}]
                message = await visitor.say("hello", thread, files=files)
                await at_a.until(lambda message=message: at_a.state(message) == "answered")
                assert "not on this machine" not in "".join(at_a.posts(message))
    stored = tmp_path.glob("*/threads/web/*/workspace/attachments/*")
    assert {path.read_text() for path in stored if path.is_file()} == {"buy milk"}
    assert "web.files_apart" not in caplog.text


async def test_the_audit_names_the_worker_of_each_record_as_the_status_does(dsn, tmp_path):
    async with two(dsn, tmp_path) as (_, b):
        with closing(PostgresReader(dsn, tmp_path)) as reader:
            names = {one.name for one in reader.workers()}
            with anyio.fail_after(WITHIN_S):
                while len(found := [*read_audit(reader, Filter(kinds=["start"]), Damage())]) < len(names):
                    await anyio.sleep(0.05)
        assert {one.worker for one in found} == names
        page = (await b.get("/look/models")).text
        assert f"Circuits now, on {names.pop()}" in page


async def test_the_summary_of_one_worker_counts_the_turns_and_the_workers_of_all(dsn, tmp_path):
    async with two(dsn, tmp_path) as (a, b):
        thread = str(uuid.uuid4())
        async with watching(a, thread) as at_a:
            first = await a.say("hello there", thread)
            await at_a.until(lambda: at_a.state(first) == "answered")
        for visitor in (a, b):
            page = (await visitor.get("/look/")).text
            assert "2 of 2 alive" in page
            assert '<data value="1">1</data> answered' in page
            assert "hello there" in (await visitor.get("/look/turns?outcome=answered")).text
