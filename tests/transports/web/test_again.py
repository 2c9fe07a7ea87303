"""Another answer, and another question in the place of one that was answered: on the page, over HTTP."""

from __future__ import annotations

import json
import uuid
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from tests.fakes.http import Stall
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.serving import compatible
from tests.transports.web.chromium import browsing, needs_chromium, say
from tests.transports.web.patient import watching, words
from tests.transports.web.process import process_serving
from tests.transports.web.site import Visitor, serving_page, visiting

PRICE = {"input": 1.0, "output": 1.0}


def new() -> str:
    return str(uuid.uuid4())


def settings(api, **more):
    return {
        "providers": compatible("local", api.base_url, free=False),
        "model": "local/m",
        "prices": {"local/m": PRICE},
        **more,
    }


@asynccontextmanager
async def talking(tmp_path, api, **more):
    async with visiting(tmp_path, settings(api, **more), model="local/m") as ann:
        yield ann


async def again(visitor, thread, message, text, *, message_id=""):
    """Ask for another version of *message*, and return its id and what the page was told."""
    body = {"id": message_id or new(), "thread": thread, "message": message, "text": text}
    return body["id"], await visitor.post("/api/again", json=body)


def asked(request) -> list[str]:
    """Return what people and the model say in a request."""
    said = [one for one in request.json["messages"] if one["role"] in {"user", "assistant"}]
    return [one["content"] if isinstance(one["content"], str) else one["content"][-1]["text"] for one in said]


def told(events, message):
    """Return what a page was told of a message, without what only a page that was there can know."""
    return [
        {**e, "at": "", "same": 0}
        for e in events
        if e.get("id") == message and e["op"] in {"message", "post", "settled"}
    ]


async def test_two_tabs_and_a_page_that_is_loaded_again_see_what_takes_the_place_of_what(tmp_path):
    async with FakeOpenAI([chat_answer(Text(text)) for text in ("one", "two", "other")]) as api:
        thread = new()
        async with talking(tmp_path, api) as ann, ann.events(thread) as tab, ann.events(thread) as other:
            for message in (first := await ann.say("first", thread), await ann.say("second", thread)):
                await tab.until("settled", id=message, outcome="answered")
            version, answer = await again(ann, thread, first, "first, in short")
            assert answer.status_code == 202
            for events in (tab, other):
                await events.until("message", id=version, replaces=first, text="first, in short")
                await events.until("settled", id=version, outcome="answered")
            assert [line.rpartition("\n")[2] for line in asked(api.requests[-1])] == ["first, in short"]
            live = told(tab.seen, version)
            assert live == told(other.seen, version)
        async with talking(tmp_path, api) as ann, ann.events(thread) as fresh:
            await fresh.until("snapshot")
            assert told(fresh.seen, version) == live
            posts = [words(e["tree"]).strip() for e in fresh.seen if e["op"] == "post"]
            assert posts == ["one", "two", "other"], "what followed can still be read"


async def test_what_the_earlier_version_has_cost_stays_counted(tmp_path):
    async with FakeOpenAI(lambda _: chat_answer(Text("an answer"))) as api:
        thread = new()
        async with talking(tmp_path, api) as ann, ann.events(thread) as events:
            message = await ann.say("hello", thread)
            await events.until("settled", id=message)
            version, _ = await again(ann, thread, message, "hello")
            await events.until("settled", id=version, outcome="answered")
            costs = [e["cost"] for e in events.seen if e["op"] == "spent"]
    ledger = [
        json.loads(line) for path in tmp_path.glob("usage/*.jsonl") for line in path.read_text().splitlines()
    ]
    paid = [one for one in ledger if one["kind"] == "commit"]
    assert len(paid) == 2
    assert sum(one["micros"] for one in paid) == pytest.approx(1e6 * sum(costs), abs=2)
    assert all(costs)


async def test_the_files_of_a_message_come_with_its_other_version(tmp_path):
    async with FakeOpenAI(lambda _: chat_answer(Text("an answer"))) as api:
        thread = new()
        async with talking(tmp_path, api) as ann, ann.events(thread) as events:
            sent = (await ann.post("/api/files?name=notes.txt", content=b"buy milk")).json()
            file = {"id": sent["id"], "name": sent["name"]}
            message = await ann.say("what is this?", thread, files=[file])
            await events.until("settled", id=message)
            await again(ann, thread, message, "and in French?")
            await events.until("settled", outcome="answered")
            request = json.dumps(api.requests[-1].json["messages"])
    assert "buy milk" in request
    assert "and in French?" in request
    assert "what is this?" not in request


async def test_a_thread_that_is_at_work_does_not_go_back(tmp_path):
    cut = chat_answer(Text("The beginning. " * 20, 8)).keep(9, Stall())
    async with FakeOpenAI([chat_answer(Text("one")), cut, chat_answer(Text("three"))]) as api:
        thread = new()
        async with talking(tmp_path, api) as ann, ann.events(thread) as events:
            message = await ann.say("hello", thread)
            await events.until("settled", id=message)
            running = await ann.say("and now?", thread)
            await events.until("draft", id=running)
            _, answer = await again(ann, thread, message, "hello")
            assert (answer.status_code, "at work" in answer.json()["error"]) == (409, True)
            await ann.say("/stop", thread)
            await events.until("settled", id=running, outcome="stopped")
            version, answer = await again(ann, thread, running, "and now?")
            await events.until("settled", id=version, outcome="answered")
            assert "The beginning" not in json.dumps(api.requests[-1].json["messages"])


async def test_a_press_that_comes_twice_is_one_version_and_a_command_is_none(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        message = await ann.say("hello", thread)
        await events.until("settled", id=message)
        _, answer = await again(ann, thread, message, "/stop")
        assert (answer.status_code, "command" in answer.json()["error"]) == (422, True)
        version, _ = await again(ann, thread, message, "hello")
        _, answer = await again(ann, thread, message, "hello", message_id=version)
        assert answer.status_code == 202
        await events.until("settled", id=version, outcome="answered")
        last = await ann.say("the last", thread)
        await events.until("settled", id=last)
        assert len([e for e in events.seen if e["op"] == "post" and e["id"] == version]) == 1


async def test_nobody_goes_back_in_the_thread_of_another(tmp_path):
    async with visiting(tmp_path) as ann, Visitor(ann.site) as bob, ann.events(thread := new()) as events:
        await bob.enter("bob")
        message = await ann.say("hello", thread)
        await events.until("settled", id=message)
        async with bob.events(thread) as theirs:
            version, _ = await again(bob, thread, message, "hello")
            await theirs.until("settled", id=version, outcome="refused")
        assert [e["id"] for e in events.seen if e["op"] == "message"] == [message]


async def test_a_version_that_kill_minus_nine_cut_is_answered_once_and_the_other_stays_readable(tmp_path):
    whole = chat_answer(Text("The other answer. " * 20, 8))
    answers = [chat_answer(Text("one")), whole.keep(9, Stall()), whole]
    async with FakeOpenAI(answers) as api:
        thread = new()
        async with process_serving(tmp_path, settings(api), {}) as process, Visitor(process) as ann:
            await ann.enter()
            async with watching(ann, thread) as page:
                message = await ann.say("hello", thread)
                await page.until(lambda: page.state(message) == "answered")
                version, _ = await again(ann, thread, message, "hello")
                await page.until(lambda: page.draft(version))
                await process.restart()
                await page.until(lambda: page.state(version) == "answered")
                [post] = page.posts(version)
                assert post.count("The other answer.") == 20
                assert page.posts(message) == ["one"]
    replaced = {e["id"]: e.get("replaces") for e in page.seen if e["op"] == "message"}
    assert replaced == {message: None, version: message}
    assert "one" not in [line.rpartition("\n")[2] for line in asked(api.requests[-1])]


@needs_chromium
async def test_an_answer_is_asked_for_again_and_a_question_changed_on_the_page(tmp_path):
    texts = ["one", "two", "one, again", "three", "other"]
    async with (
        FakeOpenAI([chat_answer(Text(text)) for text in texts]) as api,
        serving_page(tmp_path, settings(api), model="local/m") as site,
        browsing(site) as page,
    ):
        answers, folded = (
            page.locator("#messages > li > .bot .post.reply"),
            page.locator("#messages > .earlier"),
        )
        await say(page, "first")
        await expect(answers).to_have_text(["one"])
        await say(page, "second")
        await expect(answers).to_have_text(["one", "two"])
        await page.get_by_role("button", name="Regenerate").first.click()
        await expect(answers).to_have_text(["one, again"])
        await expect(folded.locator(".post.reply")).to_have_text(["one", "two"])
        await say(page, "third")
        await expect(answers).to_have_text(["one, again", "three"])
        await page.get_by_role("button", name="Edit").last.click()
        await page.get_by_label("New version").fill("the third")
        await (
            page.locator("form", has=page.get_by_label("New version"))
            .get_by_role("button", name="Send")
            .click()
        )
        for _ in range(2):  # also when it is loaded again
            await expect(answers).to_have_text(["one, again", "other"])
            await expect(folded).to_have_count(2)
            await expect(folded.get_by_text("two", exact=True)).to_be_hidden()
            await folded.first.locator("summary").click()
            await expect(folded.get_by_text("two", exact=True)).to_be_visible()
            await expect(folded.get_by_role("button", name="Regenerate")).to_have_count(0)
            await page.reload()


@needs_chromium
async def test_what_cannot_be_gone_back_to_stays_where_it_is(tmp_path):
    async with (
        FakeOpenAI(lambda _: chat_answer(Text("an answer"))) as api,
        serving_page(tmp_path, settings(api), model="local/m") as site,
        browsing(site) as page,
    ):
        await say(page, "first")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await say(page, "/new")
        await expect(page.locator(".post.notice")).to_have_count(1)
        await page.get_by_role("button", name="Regenerate").click()
        await expect(page.locator(".post.notice").last).to_contain_text("I cannot go back to that message")
        await expect(page.locator(".earlier")).to_have_count(0)
        await page.reload()
        await expect(page.locator(".post.notice").last).to_contain_text("I cannot go back to that message")
        await expect(page.locator(".earlier")).to_have_count(0)
