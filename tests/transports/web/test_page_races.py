"""The page where answers come late, not at all or cut, and where its person is faster than they are."""

from __future__ import annotations

import uuid

import anyio
import pytest
from playwright.async_api import expect

from tests.transports.web.chromium import HIDDEN, browsing, holding, in_one_chromium, look_away, say
from tests.transports.web.site import serving_page
from threads.model import Outgoing, ThreadId

pytestmark = in_one_chromium

ASKS = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
QUEUE = {**ASKS, "busy": "queue"}
MESSAGES = "**/api/messages"
PHONE = {"width": 360, "height": 700}


def thread_of(page) -> ThreadId:
    return ThreadId("web", "", "you", page.url.partition("#")[2])


async def begin(page, text="hello"):
    """Say something in a new thread, and wait for the answer."""
    await page.get_by_role("button", name="New thread").click()
    await say(page, text)
    await expect(page.locator(".post.reply")).to_have_count(1)


async def busy(page):
    """Begin a turn that waits for its person."""
    await say(page, "write notes.md x")
    await expect(page.locator(".post.notice")).to_be_visible()


def waiting(page, text):
    """Return the message with this text that waits behind a turn."""
    return page.locator("#messages > li", has_text=text)


async def fail(route):
    await route.fulfill(status=503, body="too many requests are open; try again in a moment\n")


# --- the list of threads


@pytest.mark.parametrize("answer", [{"status": 503, "body": "no"}, {"status": 200, "body": '{"threa'}])
async def test_a_list_that_could_not_be_loaded_is_asked_for_again(tmp_path, answer):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page)
        await page.goto("about:blank")

        async def first(route):
            await route.fulfill(**answer)

        await page.route("**/api/threads", first)
        await page.goto(site.url)
        await page.wait_for_selector("#text:not([readonly])")
        await say(page, "another")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await page.unroute("**/api/threads")
        await expect(page.locator("#list a")).to_have_text(["another", "hello"])


# --- sending


async def test_messages_that_could_not_be_sent_come_back_in_their_order(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        async with holding(page, MESSAGES, fail) as held:
            await say(page, "first")
            await held.asked.wait()
            await say(page, "second")
            await page.fill("#text", "third")
            held.free.set()
            await expect(page.locator("#text")).to_have_value("first\nsecond\nthird")
        await page.keyboard.press("Enter")
        await expect(page.locator(".person .text")).to_have_text(["first\nsecond\nthird"])


async def test_what_could_not_be_sent_comes_back_in_its_own_thread(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "one")
        async with holding(page, MESSAGES, fail) as held:
            await say(page, "secret of one")
            await held.asked.wait()
            await page.get_by_role("button", name="New thread").click()
            await page.fill("#text", "for the other")
            held.free.set()
            await expect(page.locator("#fault")).not_to_be_empty()
        await expect(page.locator("#text")).to_have_value("for the other")
        await page.locator("#list a", has_text="one").click()
        await expect(page.locator("#text")).to_have_value("secret of one")


async def test_the_first_message_of_a_thread_that_was_left_can_be_found_and_sent_again(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        async with holding(page, MESSAGES, fail) as held:
            await say(page, "lost words")
            await held.asked.wait()
            await page.get_by_role("button", name="New thread").click()
            held.free.set()
            await page.locator("#list a", has_text="lost words").click()
        await expect(page.locator("#text")).to_have_value("lost words")
        await page.keyboard.press("Enter")
        await expect(page.locator(".post.reply")).to_have_count(1)


async def test_a_thread_that_is_opened_while_another_s_first_message_is_sent_keeps_its_address(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "one")
        address = page.url
        await page.get_by_role("button", name="New thread").click()
        async with holding(page, MESSAGES) as held:
            await say(page, "two")
            await held.asked.wait()
            await page.go_back()
            await expect(page.locator(".person .text")).to_have_text(["one"])
            held.free.set()
            await expect(page.locator("#list a", has_text="two")).to_be_visible()
        assert page.url == address
        await page.go_forward()
        await expect(page.locator(".person .text")).to_have_text(["two"])


async def test_what_is_written_in_one_thread_is_not_sent_in_another(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "one")
        await begin(page, "two")
        await page.fill("#text", "half a thought for two")
        await page.locator("#list a", has_text="one").click()
        await expect(page.locator("#text")).to_have_value("")
        await page.locator("#list a", has_text="two").click()
        await expect(page.locator("#text")).to_have_value("half a thought for two")


async def test_a_session_that_ends_while_words_are_in_the_field_takes_none(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        other = await page.context.new_page()
        await other.goto(site.url)
        await page.fill("#text", "long words")
        await other.get_by_role("button", name="Sign out").click()
        await other.wait_for_url("**/enter")
        await page.keyboard.press("Enter")
        await expect(page.locator("#fault")).to_contain_text("session is over")
        await expect(page.locator("#text")).to_have_value("long words")
        await page.fill("#text", "")
        await page.evaluate("source.close(); reopen(source)")
        await page.wait_for_url("**/enter")


async def test_who_could_not_be_signed_out_is_told_so_and_stays(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.route("**/api/leave", fail)
        left = []
        page.on(
            "request", lambda request: left.append(request.url) if request.url.endswith("/enter") else None
        )
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("#fault")).to_contain_text("Try again")
        await page.evaluate("fetch('/api/threads')")
        assert left == []


# --- edits


async def test_an_edit_that_came_too_late_is_a_message_to_be(tmp_path):
    async with serving_page(tmp_path, QUEUE) as site, browsing(site) as page:
        await busy(page)
        await say(page, "draft")
        await waiting(page, "draft").get_by_role("button", name="Edit").click()
        await page.get_by_role("button", name="Allow once").click()
        await expect(page.locator(".post.reply")).to_have_count(2)
        await say(page, "final")
        await expect(page.locator("#fault")).to_contain_text("begun")
        await expect(page.locator("#text")).to_have_value("final")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".person .text").last).to_have_text("final")


async def test_an_edit_leaves_what_was_half_written_alone(tmp_path):
    async with serving_page(tmp_path, QUEUE) as site, browsing(site, viewport=PHONE) as page:
        await busy(page)
        await say(page, "draft")
        edit = waiting(page, "draft").get_by_role("button", name="Edit")
        await edit.wait_for()
        await page.fill("#text", "half a thought")
        await edit.click()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#text")).to_have_value("half a thought")
        await edit.click()
        await say(page, "final")
        await expect(page.locator(".person .text").last).to_have_text("final")
        await expect(page.locator("#text")).to_have_value("half a thought")


async def test_an_edit_is_saved_in_its_own_thread(tmp_path):
    async with serving_page(tmp_path, QUEUE) as site, browsing(site) as page:
        await begin(page, "one")
        await page.get_by_role("button", name="New thread").click()
        await busy(page)
        await say(page, "draft")
        await waiting(page, "draft").get_by_role("button", name="Edit").click()
        await page.locator("#list a", has_text="one").click()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        await page.locator("#list a", has_text="write notes.md").click()
        await page.fill("#text", "final")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".person .text").last).to_have_text("final")


async def test_a_second_press_of_delete_is_no_fault(tmp_path):
    async with serving_page(tmp_path, QUEUE) as site, browsing(site) as page:
        await busy(page)
        await say(page, "oops")
        asked, deleted = [], anyio.Event()

        async def late(route):
            asked.append(route)
            if len(asked) > 1:
                await deleted.wait()
            await route.continue_()

        await page.route("**/api/delete", late)
        await waiting(page, "oops").get_by_role("button", name="Delete").dblclick()
        await expect(waiting(page, "oops")).to_contain_text("Deleted.")
        deleted.set()
        await page.unroute_all(behavior="wait")
        assert len(asked) == 1
        await expect(page.locator("#fault")).to_be_empty()


async def test_the_stop_of_one_thread_is_not_on_the_next(tmp_path):
    async with serving_page(tmp_path, ASKS) as site, browsing(site) as page:
        await busy(page)
        await expect(page.locator("#stop")).to_be_visible()
        async with holding(page, "**/api/events*"):
            await page.get_by_role("button", name="New thread").click()
            await expect(page.locator("#stop")).to_be_hidden()


# --- files


async def test_a_message_waits_for_its_file(tmp_path):
    async with serving_page(tmp_path / "data") as site, browsing(site) as page:
        (tmp_path / "a.txt").write_text("buy milk")
        async with holding(page, "**/api/files*") as held:
            await page.set_input_files("#file", tmp_path / "a.txt")
            await held.asked.wait()
            await say(page, "hello")
            await page.get_by_role("button", name="New thread").click()
            held.free.set()
            await page.locator("#list a", has_text="hello").click()
        await expect(page.locator(".person .files")).to_contain_text("a.txt (8B)")
        await page.get_by_role("button", name="New thread").click()
        await expect(page.locator("#files li")).to_have_count(0)


async def test_several_files_are_all_attached(tmp_path):
    async with serving_page(tmp_path / "data") as site, browsing(site) as page:
        names = ["a.txt", "b.txt", "c.txt"]
        for name in names:
            (tmp_path / name).write_text(name)
        await page.set_input_files("#file", [tmp_path / name for name in names])
        await expect(page.locator("#files li")).to_have_count(3)
        await say(page, "hello")
        await expect(page.locator(".person .files li")).to_have_count(3)


async def test_a_file_that_fails_leaves_the_text_and_the_other_files(tmp_path):
    async with serving_page(tmp_path / "data") as site, browsing(site) as page:
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).write_text(name)
        async with holding(page, "**/api/files?name=b.txt", fail) as held:
            await page.set_input_files("#file", [tmp_path / "a.txt", tmp_path / "b.txt"])
            await held.asked.wait()
            await say(page, "hello")
            held.free.set()
            await expect(page.locator("#fault")).to_contain_text("Try again")
        await expect(page.locator("#text")).to_have_value("hello")
        await expect(page.locator("#files li")).to_contain_text(["a.txt"])


async def test_words_that_are_dropped_are_left_to_the_browser(tmp_path):
    drop = """() => {
        const data = new DataTransfer();
        data.setData("text/plain", "words");
        return document.getElementById("text").dispatchEvent(
            new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""
    async with serving_page(tmp_path) as site, browsing(site) as page:
        assert await page.evaluate(drop)


# --- addresses and tabs


async def test_the_link_to_the_field_stays_in_the_thread(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page)
        address = page.url
        await page.locator(".skip").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#text")).to_be_focused()
        assert page.url == address
        await expect(page.locator(".post.reply")).to_have_count(1)


async def test_the_list_on_a_phone_closes_by_a_press_on_the_open_thread(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site, viewport=PHONE) as page:
        await say(page, "one")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await page.locator("#menu").click()
        await page.locator("#list a").click()
        await expect(page.locator("#threads")).to_be_hidden()


async def test_tabs_that_are_opened_behind_take_no_connection(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        for _ in range(7):
            behind = await page.context.new_page()
            await behind.add_init_script(HIDDEN % "true")
            await behind.goto(site.url)
            await behind.wait_for_selector("#text:not([readonly])")
        await say(page, "hello")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await look_away(behind, away=False)
        await expect(behind.locator("#list a")).to_have_text("hello")


async def test_a_tab_that_is_hidden_while_the_bot_is_away_asks_for_nothing(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.route("**/api/events*", fail)
        await page.evaluate("open('')")
        await expect(page.locator("#link")).to_contain_text("Reconnecting")
        await look_away(page)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        await page.evaluate("reopen(source)")  # as its timer does
        assert asked == []
        await page.unroute_all()
        await look_away(page, away=False)
        await expect(page.locator("#link")).to_have_text("")


async def test_a_tab_that_comes_back_goes_on_where_it_was(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page)
        await page.locator("#messages > li").evaluate("element => { element.dataset.same = 'yes' }")
        await look_away(page)
        await say(page, "while away")
        await look_away(page, away=False)
        await expect(page.locator(".post.reply")).to_have_count(2)
        await expect(page.locator("#messages > li[data-same]")).to_have_count(1)


async def test_a_notice_that_answers_nothing_is_shown_alone(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page)
        await site.web.post(Outgoing(thread_of(page), str(uuid.uuid4()), "left out", "notice"))
        await expect(page.locator(".post.notice")).to_have_text("left out")
        await expect(page.locator(".person:visible")).to_have_count(1)
        await expect(page.locator("#stop")).to_be_hidden()
