"""The list of threads in a real Chromium, as a person uses it."""

from __future__ import annotations

import os
import re
import time

import pytest
from playwright.async_api import expect

from tests.transports.web.chromium import browsing, in_one_chromium, say
from tests.transports.web.site import serving_page
from transports.web import feed, talk, thread_list

pytestmark = in_one_chromium

SHARE = """() => {
  navigator.canShare = () => true;
  navigator.share = async ({ files: [file] }) => { document.body.dataset.shared = await file.text(); };
}"""
PHONE = {"width": 390, "height": 800}


async def begin(page, *texts: str) -> None:
    """Say these texts in a new thread, and wait for the answers."""
    await page.evaluate("open('')")
    for number, text in enumerate(texts, 1):
        await say(page, text)
        await expect(page.locator("li[data-state=answered]")).to_have_count(number)


def row(page, title):
    return page.locator("#list li", has_text=title)


async def choose(page, title, action) -> None:
    """Open the menu of a thread, and take one of its actions."""
    await row(page, title).hover()
    await row(page, title).get_by_role("button").click()
    await page.locator("#actions button", has_text=re.compile(f"^{action}$")).click()


async def test_a_thread_is_named_pinned_and_archived_by_its_menu_and_every_tab_shows_it(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        tab = await page.context.new_page()
        await tab.goto(site.url)
        for text in ("one", "two"):
            await begin(page, text)
        await choose(page, "one", "Rename")
        await expect(page.locator("#list input")).to_be_focused()
        await page.keyboard.type("First of all")
        await page.keyboard.press("Enter")
        for each in (page, tab):
            await expect(each.locator("#list a")).to_have_text(["two", "First of all"])
        await expect(row(page, "First of all").locator("a")).to_be_focused()
        await choose(page, "First of all", "Pin")
        for each in (page, tab):
            await expect(each.locator("#list a")).to_have_text(["First of all", "two"])
            await expect(each.locator("#list .group")).to_have_text(["Pinned", "Today"])
        await choose(page, "two", "Archive")
        await expect(tab.locator("#list a")).to_have_text(["First of all"])
        await tab.get_by_role("button", name="Archive").click()
        await expect(tab.locator("#list a")).to_have_text(["two"])
        await choose(tab, "two", "Take out of the archive")
        await expect(tab.locator("#found")).to_have_text("In the archive: 0.")
        await expect(tab.locator("#told")).to_contain_text("Back in the list. Undo")
        await expect(page.locator("#list a")).to_have_text(["First of all", "two"])
        await tab.close()


async def test_a_deleted_thread_is_gone_everywhere_and_comes_back_by_undo(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "hello")
        address = page.url
        tab = await page.context.new_page()
        await tab.goto(address)
        await expect(tab.locator(".post.reply")).to_have_count(1)
        await choose(page, "hello", "Delete")
        await expect(page.locator("#told")).to_contain_text("Deleted. Undo")
        for each in (page, tab):
            await expect(each.locator("#list a")).to_have_count(0)
            await expect(each.locator("#welcome")).to_be_visible()
            assert "#" not in each.url
        await expect(tab.locator("#told")).to_contain_text("This thread was deleted. Undo")
        await tab.goto(address)
        await tab.reload()
        await expect(tab.locator("#told")).to_contain_text("This thread was deleted. Undo")
        await tab.get_by_role("button", name="Undo").click()
        await expect(page.locator("#list a")).to_have_text(["hello"])
        await page.locator("#list a").click()
        await expect(page.locator(".post.reply")).to_have_count(1)
        await tab.close()


async def test_a_search_shows_the_line_and_opens_the_thread_there(tmp_path, monkeypatch):
    monkeypatch.setattr(talk, "LAST_MESSAGES", 2)
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "first", "the Quince is ripe", "third", "fourth", "fifth")
        await begin(page, "elsewhere")
        await site.stop()
        async with serving_page(tmp_path, port=site.web.address.port):
            await page.reload()
            await page.fill("#search", "quince")
            await expect(page.locator("#list mark")).to_have_text("Quince")
            await expect(page.locator("#found")).to_have_text("Found: 1.")
            await page.locator("#list a").click()
            found = page.locator("#messages > li", has_text="the Quince is ripe")
            await expect(found).to_be_focused()
            await expect(page.locator("#list a .words")).to_have_text("first")
            await page.fill("#search", "")
            await expect(page.locator("#list a")).to_have_text(["elsewhere", "first"])


async def test_threads_are_grouped_by_day_and_all_of_them_are_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(thread_list, "MOST_LISTED", 3)
    async with serving_page(tmp_path) as site, browsing(site) as page:
        for text in ("today", "yesterday", "last week", "long ago", "longest ago"):
            await begin(page, text)
        await site.stop()
    noon = time.mktime((*time.localtime()[:3], 12, 0, 0, 0, 0, -1))
    logs = {text: log for log in tmp_path.glob("threads/web/*/log.jsonl") for text in [log.read_text()]}
    for days, words in ((1, "yesterday"), (6, "last week"), (400, "long ago"), (401, "longest ago")):
        log = next(log for text, log in logs.items() if f'"text":"{words}"' in text)
        os.utime(log, (noon - days * 86_400,) * 2)
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await expect(page.locator("#list a")).to_have_text(
            ["today", "yesterday", "last week", "long ago", "longest ago"]
        )
        groups = await page.locator("#list .group").all_text_contents()
        assert groups[:3] == ["Today", "Yesterday", "Previous 7 days"]
        assert groups[3].split()[1] == str(time.localtime(noon - 400 * 86_400).tm_year)


async def test_the_menu_is_for_the_keyboard_too(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "hello")
        button = row(page, "hello").get_by_role("button")
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Rename")).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="Pin")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.locator("#actions")).to_be_hidden()
        await expect(button).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await expect(page.locator("#list input")).to_have_value("hello")
        await page.keyboard.type("other")
        await page.keyboard.press("Escape")
        await expect(page.locator("#list a")).to_have_text(["hello"])
        await expect(page.locator("#list a")).to_be_focused()


async def test_a_thread_is_saved_and_shared_as_a_file(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await begin(page, "hello")
        async with page.expect_download() as download:
            await choose(page, "hello", "Save as Markdown")
        assert (await download.value).suggested_filename == "hello.md"
        await page.evaluate(SHARE)
        await choose(page, "hello", "Share")
        await expect(page.locator("body")).to_have_attribute("data-shared", re.compile("offline/demo"))


async def test_earlier_messages_come_as_one_scrolls_up_and_the_place_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(talk, "LAST_MESSAGES", 4)
    async with serving_page(tmp_path) as site, browsing(site, viewport={"width": 600, "height": 500}) as page:
        await begin(page, *[f"{number} {'long ' * 80}" for number in range(8)])
        await site.stop()
        async with serving_page(tmp_path, port=site.web.address.port):
            await page.reload()
            await expect(page.locator("#messages > li")).to_have_count(4)
            await page.locator("#log").hover()
            while await page.locator("#messages > li").count() < 8:
                await page.mouse.wheel(0, -200)
                await page.evaluate("new Promise(requestAnimationFrame)")
            assert await page.locator("#log").evaluate("log => log.scrollTop") > 200
            await expect(page.locator("#earlier")).to_be_hidden()


async def test_a_long_talk_keeps_only_its_last_messages_on_the_page(tmp_path, monkeypatch):
    async def few(route):
        answer = await route.fetch()
        text = await answer.text()
        await route.fulfill(response=answer, body=text.replace("MOST_NEW = 150", "MOST_NEW = 3"))

    monkeypatch.setattr(talk, "LAST_MESSAGES", 4)
    monkeypatch.setattr(feed, "MOST_MESSAGES", 2)
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.route("**/page.js", few)
        await page.reload()
        messages = page.locator("#messages > li")
        for number in range(9):
            await say(page, f"question {number}")
            await expect(messages.last).to_contain_text(f"question {number}")
            await expect(messages.last).to_have_attribute("data-state", "answered")
        await expect(page.locator("#earlier")).to_be_visible()
        assert await messages.count() < 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_list_on_a_phone_is_wide_enough_for_fingers_and_no_barrier(tmp_path, scheme):
    from axe_playwright_python.async_playwright import Axe  # noqa: PLC0415

    phone = {"viewport": PHONE, "color_scheme": scheme, "bypass_csp": True}
    async with serving_page(tmp_path) as site, browsing(site, **phone) as page:
        await begin(page, f"hello {'wide ' * 20}")
        await page.locator("#menu").click()
        await page.fill("#search", "wide")
        await expect(page.locator("#list mark").first).to_be_visible()
        more = page.locator("#list li").get_by_role("button")
        box = await more.bounding_box()
        assert box["width"] >= 44 <= box["height"]
        await more.click()
        await expect(page.locator("#actions")).to_be_visible()
        for item in await page.locator("#actions button").all():
            assert (await item.bounding_box())["height"] >= 44
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = await Axe().run(page)
        await page.screenshot(path=os.environ.get("SHOT", str(tmp_path / "x.png")).replace("SCHEME", scheme))
    inside = ("#threads", "#list", "#actions", "#search", "#found", "#archive")
    assert [
        (one["id"], node["html"])
        for one in found.response["violations"]
        for node in one["nodes"]
        if any(part in str(node["target"]) for part in inside)
    ] == []
