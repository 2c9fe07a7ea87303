"""kill -9 with the page open: it comes back by itself, and shows each answer once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest

from tests.fakes.http import Stall
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.patience import WITHIN_S, until
from tests.serving import compatible
from tests.transports.web.chromium import browsing, needs_chromium
from tests.transports.web.patient import watching
from tests.transports.web.process import ROOT, process_serving
from tests.transports.web.site import Visitor

ANSWER = "The beginning. " * 20
ASKS = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}


def cut_once(seen) -> object:
    """Answer, but stop in the middle of the first answer to a question."""
    whole = chat_answer(Text(ANSWER, 8))
    asked = json.dumps(seen.json["messages"])
    first = asked not in cut_once.asked
    cut_once.asked.add(asked)
    return whole.keep(5, Stall()) if first else whole


def answers(page, message: str) -> int:
    """Return how often the whole answer stands under a message, where nothing else does."""
    [post] = page.posts(message)
    return post.count(ANSWER.strip())


@asynccontextmanager
async def serving(tmp_path):
    cut_once.asked = set()
    async with FakeOpenAI(cut_once) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with process_serving(tmp_path, fields, {}) as process:
            yield process


@asynccontextmanager
async def offline(tmp_path):
    async with process_serving(tmp_path, {"model": "offline/demo", **ASKS}, {}) as process:
        yield process


async def test_an_answer_that_was_cut_by_kill_minus_nine_comes_once(tmp_path):
    thread = str(uuid.uuid4())
    async with serving(tmp_path) as process, Visitor(process) as ann:
        await ann.enter()
        async with watching(ann, thread) as page:
            message = await ann.say("hello", thread)
            await page.until(lambda: page.draft(message))
            await process.restart()
            await page.until(lambda: page.state(message) == "answered")
            assert answers(page, message) == 1
            again = await ann.say("hello", thread, message_id=message)
            other = await ann.say("and now?", thread)
            await page.until(lambda: page.draft(other))
            await process.restart()
            await page.until(lambda: page.state(other) == "answered")
            assert again == message
            assert [answers(page, one) for one in (message, other)] == [1, 1]
            assert page.reconnected >= 2


async def test_a_question_that_was_open_at_kill_minus_nine_is_answered_by_its_button_once(tmp_path):
    thread = str(uuid.uuid4())
    async with offline(tmp_path) as process, Visitor(process) as ann:
        await ann.enter()
        async with watching(ann, thread) as page:
            message = await ann.say("write notes.md buy milk", thread)
            await page.until(lambda: page.choices(message))
            await process.restart()
            await page.until(lambda: page.reconnected and page.choices(message))
            press = next(one for one in page.choices(message) if one.startswith("/approve"))
            await ann.say(press, thread)
            await ann.say(press, thread)
            await page.until(
                lambda: page.state(message) == "answered" and [e for e in page.seen if e["op"] == "told"]
            )
            assert list(page.messages) == [message]
            assert not page.choices(message)
            assert len(page.posts(message)) == 2  # the question, and one answer
    written = list(tmp_path.glob("data/threads/web/*/workspace/notes.md"))
    assert [path.read_text() for path in written] == ["buy milk"]


@pytest.mark.parametrize("hangs_up", [False, True], ids=["file", "sighup"])
async def test_changed_settings_count_while_it_runs_and_its_owner_stays_admin(tmp_path, hangs_up):
    async with FakeOpenAI(lambda _: chat_answer(Text("ok"))) as api:
        fields = {"data": "data", "model": "local/m", "providers": compatible("local", api.base_url)}
        async with process_serving(tmp_path, fields, {}) as process, Visitor(process) as ann:
            await ann.enter()

            def change(text):
                process.write(text)
                if hangs_up:
                    process.hang_up()

            change(json.dumps({**fields, "max_tokens": 1001, "access": {"users": ["bob"]}}))
            await until_asked_with(api, ann, 1001)
            change("{")
            await until(lambda: "settings.rejected" in (tmp_path / "log").read_text())
            await until_asked_with(api, ann, 1001)
            change(json.dumps({**fields, "max_tokens": 1002}))
            await until_asked_with(api, ann, 1002)


async def until_asked_with(api, visitor, max_tokens):
    """Write until an answer has this limit."""
    with anyio.fail_after(WITHIN_S):
        asked = None
        while asked != max_tokens:
            thread = str(uuid.uuid4())
            async with watching(visitor, thread) as page:
                message = await visitor.say("hello", thread)
                await page.until(lambda page=page, message=message: page.state(message) == "answered")
            asked = api.requests[-1].json["max_tokens"]


def command(process, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside the page; nobody reads what it prints."""
    ours, theirs = os.pipe()
    os.close(ours)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(process.folder)}
    try:
        return subprocess.run(
            [sys.executable, "-m", "bot", *words],
            cwd=process.folder,
            env=environ,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    finally:
        os.close(theirs)


async def test_a_command_whose_output_nobody_reads_ends_without_a_complaint(tmp_path):
    async with offline(tmp_path) as process, Visitor(process) as ann:
        await ann.enter()
        await ann.say("hello", str(uuid.uuid4()))  # an event
        for words in (
            "events --follow --since 0",
            "mcp list",
            f"web --port {process.port} link",
            "status",
            "check",
        ):
            done = await anyio.to_thread.run_sync(command, process, *words.split())
            assert (done.returncode, done.stderr) == (1, ""), words


async def test_a_chat_beside_the_page_is_told_how_to_talk_to_it_there(tmp_path):
    async with offline(tmp_path) as process:
        for words in (["chat"], ["ask", "hello"]):
            done = await anyio.to_thread.run_sync(command, process, *words)
            assert done.returncode == 78
            assert "It serves the page: `threadfast web link` prints a link" in done.stderr


@needs_chromium
async def test_a_browser_comes_back_by_itself_and_shows_the_answer_once(tmp_path):
    from playwright.async_api import expect  # noqa: PLC0415

    async with serving(tmp_path) as process, browsing(process) as page:
        await page.fill("#text", "hello")
        await page.keyboard.press("Enter")
        await expect(page.locator(".draft")).to_contain_text("The beginning.")
        await process.kill()
        await expect(page.locator("#link")).to_contain_text("Reconnecting")
        await page.fill("#text", "while it was away")
        await page.keyboard.press("Enter")
        await expect(page.locator("#fault")).to_contain_text("Your text is still here")
        await process.start()
        await expect(page.locator("li[data-state=answered]")).to_have_count(1)
        await expect(page.locator("#link")).to_have_text("")
        await expect(page.locator("#fault")).to_have_text("")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await expect(page.locator(".draft")).to_have_text("")
        await expect(page.locator("#text")).to_have_value("while it was away")


async def test_the_same_link_does_not_work_after_kill_minus_nine(tmp_path):
    async with offline(tmp_path) as process, Visitor(process) as ann:
        link = process.link()
        await ann.enter()
        await process.restart()
        assert (await ann.get("/api/threads")).status_code == 200
        async with Visitor(process) as other, anyio.create_task_group():
            assert (await other.post("/api/enter", json={"link": link})).status_code == 403
