"""Another answer, and another question in the place of one that was answered: on the page, over HTTP."""

from __future__ import annotations

import json
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from playwright.async_api import expect

from tests.fakes.http import Stall
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.serving import compatible
from tests.transports.web.chromium import browsing, needs_chromium, say
from tests.transports.web.patient import watching, words
from tests.transports.web.process import process_serving
from tests.transports.web.site import PageEvents, Visitor, serving_page, visiting


def settings(api):
    local = compatible("local", api.base_url, free=False)
    return {"providers": local, "model": "local/m", "prices": {"local/m": {"input": 1.0, "output": 1.0}}}


def said(request) -> list[str]:
    """Return what people and the model say in a request, without headings."""
    texts = [one["content"] for one in request.json["messages"][1:]]
    return [(text if isinstance(text, str) else text[-1]["text"]).rpartition("\n")[2] for text in texts]


@dataclass
class Talking:
    """A person in one thread of a bot over *api*, and the events of their page."""

    ann: Visitor
    api: FakeOpenAI
    events: PageEvents
    thread: str

    async def say(self, text, **more) -> str:
        message = await self.ann.say(text, self.thread, **more)
        await self.events.until("settled", id=message, outcome="answered")
        return message

    async def again(self, message, text, status=202, **more):
        """Ask for another version of *message*, and return its id and the fault, if that is refused."""
        body = {"id": str(uuid.uuid4()), "thread": self.thread, "message": message, "text": text, **more}
        answer = await self.ann.post("/api/again", json=body)
        assert answer.status_code == status
        return answer.json()["error"] if status > 202 else body["id"]

    async def answered(self, *version) -> str:
        return await self.events.until("settled", id=(message := await self.again(*version))) and message


@asynccontextmanager
async def talking(tmp_path, answers, thread=""):
    thread = thread or str(uuid.uuid4())
    async with (
        FakeOpenAI(answers) as api,
        visiting(tmp_path, settings(api), model="local/m") as ann,
        ann.events(thread) as events,
    ):
        await events.until("snapshot")
        yield Talking(ann, api, events, thread)


def always(_):
    return chat_answer(Text("an answer"))


def told(events, message):
    """Return what a page was told of a message that holds for every page."""
    ops = {"message", "post", "settled"}
    return [{**e, "at": "", "same": 0} for e in events.seen if e.get("id") == message and e["op"] in ops]


async def test_two_tabs_and_a_page_that_is_loaded_again_see_what_takes_the_place_of_what(tmp_path):
    answers = [chat_answer(Text(text)) for text in ("one", "two", "other")]
    async with talking(tmp_path, answers) as talk, talk.ann.events(talk.thread) as tab:
        first, _ = await talk.say("first"), await talk.say("second")
        version = await talk.answered(first, "first, in short")
        await tab.until("message", id=version, replaces=first, text="first, in short")
        await tab.until("settled", id=version, outcome="answered")
        assert said(talk.api.requests[-1]) == ["first, in short"]
        live = told(talk.events, version)
        assert told(tab, version) == live
    async with talking(tmp_path, answers, talk.thread) as later:
        assert told(later.events, version) == live
        posts = [words(e["tree"]).strip() for e in later.events.seen if e["op"] == "post"]
        assert posts == ["one", "two", "other"], "what followed can still be read"


async def test_what_the_earlier_version_has_cost_stays_counted(tmp_path):
    async with talking(tmp_path, always) as talk:
        await talk.answered(await talk.say("hello"), "hello")
        costs = [e["cost"] for e in talk.events.seen if e["op"] == "spent"]
    lines = "".join(path.read_text() for path in tmp_path.glob("usage/*.jsonl")).splitlines()
    paid = [one["micros"] for one in map(json.loads, lines) if one["kind"] == "commit"]
    assert (len(paid), all(paid)) == (2, True)
    assert sum(paid) == pytest.approx(1e6 * sum(costs), abs=2)


async def test_the_files_of_a_message_come_with_its_other_version(tmp_path):
    async with talking(tmp_path, always) as talk:
        sent = (await talk.ann.post("/api/files?name=notes.txt", content=b"buy milk")).json()
        message = await talk.say("what is this?", files=[{"id": sent["id"], "name": sent["name"]}])
        await talk.answered(message, "and in French?")
        assert "buy milk" in json.dumps(talk.api.requests[-1].json)
        assert said(talk.api.requests[-1]) == ["and in French?"]


async def test_a_thread_that_is_at_work_does_not_go_back_and_a_stopped_answer_is_asked_for_again(tmp_path):
    cut = chat_answer(Text("The beginning. " * 20, 8)).keep(9, Stall())
    async with talking(tmp_path, [always(0), cut, always(0)]) as talk:
        message = await talk.say("hello")
        running = await talk.ann.say("and now?", talk.thread)
        await talk.events.until("draft", id=running)
        assert "at work" in await talk.again(message, "hello", 409)
        await talk.ann.say("/stop", talk.thread)
        await talk.events.until("settled", id=running, outcome="stopped")
        await talk.answered(running, "and now?")
        assert said(talk.api.requests[-1]) == ["hello", "an answer", "and now?"]


async def test_a_press_that_comes_twice_is_one_version_and_a_command_is_none(tmp_path):
    async with talking(tmp_path, always) as talk:
        message = await talk.say("hello")
        assert "command" in await talk.again(message, "/stop", 422)
        version = await talk.again(message, "hello")
        await talk.again(message, "hello", id=version)
        await talk.say("the last")
        assert len(talk.api.requests) == 3


async def test_a_version_that_kill_minus_nine_cut_is_answered_once_and_the_other_stays_readable(tmp_path):
    whole, thread = chat_answer(Text("The other answer. " * 20, 8)), str(uuid.uuid4())
    async with (
        FakeOpenAI([chat_answer(Text("one")), whole.keep(9, Stall()), whole]) as api,
        process_serving(tmp_path, settings(api), {}) as process,
        Visitor(process) as ann,
        watching(ann, thread) as page,
    ):
        await ann.enter()
        message = await ann.say("hello", thread)
        await page.until(lambda: page.state(message) == "answered")
        version = await Talking(ann, api, page, thread).again(message, "hello")
        await page.until(lambda: page.draft(version))
        await process.restart()
        await page.until(lambda: page.state(version) == "answered")
        [post] = page.posts(version)
        assert (post.count("The other answer."), page.posts(message)) == (20, ["one"])
        replaced = {e["id"]: e.get("replaces") for e in page.seen if e["op"] == "message"}
        assert replaced == {message: None, version: message}
        assert "one" not in said(api.requests[-1])


@asynccontextmanager
async def on_the_page(tmp_path, *texts):
    """Yield a page, its answers that are not folded, and its earlier versions."""
    async with (
        FakeOpenAI([chat_answer(Text(text)) for text in texts]) as api,
        serving_page(tmp_path, settings(api), model="local/m") as site,
        browsing(site) as page,
    ):
        yield page, page.locator("#messages > li > .bot .reply"), page.locator("#messages > .earlier")


@needs_chromium
async def test_an_answer_is_asked_for_again_and_a_question_changed_on_the_page(tmp_path):
    async with on_the_page(tmp_path, "one", "two", "again", "three", "other") as (page, answers, earlier):
        await say(page, "first")
        await expect(answers).to_have_text(["one"])
        await say(page, "second")
        await expect(answers).to_have_text(["one", "two"])
        await page.get_by_role("button", name="Regenerate").first.click()
        await expect(answers).to_have_text(["again"])
        await say(page, "third")
        await expect(answers).to_have_text(["again", "three"])
        await page.get_by_role("button", name="Edit").last.click()
        await page.fill("#text", "the third")
        await page.get_by_role("button", name="Save").click()
        for _ in range(2):  # also when it is loaded again
            await expect(answers).to_have_text(["again", "other"])
            await expect(earlier.locator(".reply")).to_have_text(["one", "two", "three"])
            await expect(earlier.get_by_text("two", exact=True)).to_be_hidden()
            await earlier.first.locator("summary").click()
            await expect(earlier.get_by_text("two", exact=True)).to_be_visible()
            await expect(earlier.get_by_role("button", name="Regenerate")).to_have_count(0)
            await page.reload()


@needs_chromium
async def test_what_cannot_be_gone_back_to_stays_where_it_is(tmp_path):
    async with on_the_page(tmp_path, "one") as (page, answers, earlier):
        await say(page, "first")
        await expect(answers).to_have_count(1)
        await say(page, "/new")
        await expect(page.locator(".notice")).to_have_count(1)
        await page.get_by_role("button", name="Regenerate").click()
        for _ in range(2):
            await expect(page.locator(".notice").last).to_contain_text("I cannot go back to that message")
            await expect(earlier).to_have_count(0)
            await page.reload()
