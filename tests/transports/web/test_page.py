"""The page in a real Chromium, as a person uses it."""

from __future__ import annotations

import re

import anyio
import pytest
from playwright.async_api import expect

from tests.fakes.openai import FakeOpenAI, Text, chat_answer, fault
from tests.serving import compatible
from tests.transports.web.chromium import browsing, holding, in_one_chromium, look_away, say
from tests.transports.web.site import serving_page

pytestmark = in_one_chromium

ASKS = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}


async def test_a_person_writes_and_reads_the_answer(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await expect(page.locator("#welcome")).to_contain_text("Write a message")
        await say(page, "hello")
        await expect(page.locator(".post.reply").first).to_contain_text("offline/demo")
        await expect(page.locator("#welcome")).to_be_hidden()
        await expect(page.locator("#list a")).to_have_text("hello")
        await expect(page.locator("#text")).to_have_value("")
        await expect(page.locator("#messages .meta").last).to_contain_text("offline/demo")


async def test_a_list_that_arrives_late_does_not_hide_a_thread_that_began_meanwhile(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        answered, asked = anyio.Event(), anyio.Event()

        async def late(route):
            answer = await route.fetch()
            asked.set()
            await answered.wait()
            await route.fulfill(response=answer)

        await page.route("**/api/threads", late)
        await page.reload()
        await asked.wait()
        await page.wait_for_selector("#text:not([readonly])")
        await say(page, "hello")
        await expect(page.locator("#list a")).to_have_text("hello")
        async with page.expect_response("**/api/threads"):
            answered.set()
        await page.unroute_all(behavior="wait")
        await expect(page.locator(".post.reply").first).to_contain_text("offline/demo")
        await expect(page.locator("#list a")).to_have_text("hello")


async def test_what_is_written_while_a_message_is_on_its_way_is_sent_after_it(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        async with holding(page, "**/api/messages") as held:
            await say(page, "first")
            await held.asked.wait()
            await say(page, "second")
        await expect(page.locator(".person .text")).to_have_text(["first", "second"])
        await expect(page.locator("#text")).to_have_value("")


async def test_what_could_not_be_sent_is_in_the_field_again_and_is_sent_once(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.route("**/api/messages", lambda route: route.abort())
        await say(page, "first")
        await expect(page.locator("#fault")).to_contain_text("cannot be reached")
        await expect(page.locator("#text")).to_have_value("first")
        await page.unroute("**/api/messages")
        await page.keyboard.press("Enter")
        await expect(page.locator(".person .text")).to_have_text(["first"])


async def test_the_link_is_not_in_the_address_afterwards_and_works_once(tmp_path):
    async with serving_page(tmp_path) as site:
        link = site.link()
        async with browsing(site) as page:
            assert "#" not in page.url
            other = await page.context.browser.new_context()
            stranger = await other.new_page()
            await stranger.goto(f"{site.url}/enter#{link}")
            await stranger.wait_for_selector("#text")
            third = await (await page.context.browser.new_context()).new_page()
            await third.goto(f"{site.url}/enter#{link}")
            await expect(third.locator("#word")).to_contain_text("used already")


async def test_model_text_is_never_markup(tmp_path):
    evil = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> [x](javascript:alert(1)) **bold**"
    async with FakeOpenAI([chat_answer(Text(evil))]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with serving_page(tmp_path, fields, model="local/m") as site, browsing(site) as page:
            await say(page, "<b>me</b>")
            await expect(page.locator(".post strong")).to_have_text("bold")
            await expect(page.locator(".person .text")).to_have_text("<b>me</b>")
            assert (
                await page.locator("#messages img, #messages script, #messages [href^=javascript]").count()
                == 0
            )
            assert await page.title() == "threadfast"


async def test_a_question_shows_the_exact_arguments_and_a_button_answers_it(tmp_path):
    async with serving_page(tmp_path, ASKS) as site, browsing(site) as page:
        await say(page, "write notes.md buy <b>milk</b>")
        question = page.locator(".post.notice")
        await expect(question).to_contain_text("buy <b>milk</b>")
        await question.get_by_role("button", name="Allow once").click()
        await expect(page.locator(".post.reply").first).to_contain_text("Wrote")
        await expect(page.locator(".choices button")).to_have_count(0)
        assert await page.evaluate("document.activeElement.id.startsWith('m-')")
        card = page.locator("details.tool")
        await card.locator("summary").click()
        await expect(card).to_contain_text('"success": true')
        shown = await page.locator("#messages").inner_text()
        await page.reload()
        await expect(page.locator(".post.reply")).to_contain_text("Wrote")
        await card.locator("summary").click()
        assert await page.locator("#messages").inner_text() == shown
        await expect(page.locator(".person .text")).to_have_text(["write notes.md buy <b>milk</b>"])


async def test_an_answer_after_a_wait_leaves_no_sign_of_it(tmp_path):
    limited = fault(429, "rate_limit_exceeded", retry_after="1")
    async with FakeOpenAI([limited, chat_answer(Text("Good day"))]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with serving_page(tmp_path, fields, model="local/m") as site, browsing(site) as page:
            await say(page, "hello")
            await expect(page.locator(".post.reply")).to_have_text("Good day")
            await expect(page.locator(".wait")).to_have_text("")
            await expect(page.locator(".draft")).to_have_text("")


async def test_a_waiting_message_is_edited_and_another_deleted(tmp_path):
    async with serving_page(tmp_path, {**ASKS, "busy": "queue"}) as site, browsing(site) as page:
        await say(page, "write notes.md x")
        await expect(page.locator(".post.notice")).to_be_visible()
        await say(page, "draft")
        await say(page, "oops")
        await page.locator("li", has_text="oops").get_by_role("button", name="Delete").click()
        await expect(page.locator("li", has_text="oops")).to_contain_text("Deleted.")
        await page.locator("li", has_text="draft").get_by_role("button", name="Edit").click()
        await page.fill("#text", "final words")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".person .text", has_text="final words")).to_be_visible()
        await page.get_by_role("button", name="Deny").click()
        await expect(page.locator("li", has_text="final words").locator(".post.reply")).to_contain_text(
            "final words"
        )


async def test_stop_ends_what_runs_and_gives_back_what_waits(tmp_path):
    async with serving_page(tmp_path, {**ASKS, "busy": "queue"}) as site, browsing(site) as page:
        await say(page, "write notes.md x")
        await expect(page.locator(".post.notice")).to_be_visible()
        await say(page, "a thought")
        await say(page, "and another")
        await expect(page.locator(".person", has_text="and another")).to_contain_text("waits")
        await page.fill("#text", "begun")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("li[data-state=stopped]")).to_have_count(3)
        await expect(page.locator("#stop")).to_be_hidden()
        await expect(page.locator("#told")).to_have_text("Stopped, and dropped 2 waiting messages.")
        kept = "and another\na thought\nbegun"
        await expect(page.locator("#text")).to_have_value(kept)
        await expect(page.locator("#text")).to_be_focused()
        await page.reload()
        await expect(page.locator("li[data-state=stopped]")).to_have_count(3)
        await expect(page.locator("#text")).to_have_value(kept)
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/enter")
        assert await page.evaluate(
            "sessionStorage.length === 0 || !JSON.stringify({...sessionStorage}).includes('begun')"
        )


async def test_earlier_messages_are_loaded_by_a_press(tmp_path, monkeypatch):
    monkeypatch.setattr("transports.web.talk.LAST_MESSAGES", 2)
    async with serving_page(tmp_path) as site, browsing(site) as page:
        texts = ["one", "two", "three", "four", "five"]
        for text in texts:
            await say(page, text)
            await expect(page.locator("li[data-state=answered] .person .text", has_text=text)).to_be_visible()
        await site.stop()
        async with serving_page(tmp_path, port=site.web.address.port):
            await page.reload()
            for left in (3, 1):
                more = page.get_by_role("button", name=f"Load earlier messages ({left} more)")
                await more.click()
            await expect(page.locator("#earlier")).to_be_hidden()
            await expect(page.locator(".person .text")).to_have_text(texts)


async def test_a_file_is_attached_and_one_of_the_bot_is_downloaded(tmp_path):
    async with serving_page(tmp_path / "data") as site, browsing(site) as page:
        (tmp_path / "a.txt").write_text("buy milk")
        await page.set_input_files("#file", tmp_path / "a.txt")
        await expect(page.locator("#files li")).to_contain_text("a.txt")
        await say(page, "hello")
        await expect(page.locator(".person .files")).to_contain_text("a.txt (8B)")
        await page.get_by_role("button", name="New thread").click()
        await say(page, "write out.md <script>1</script>")
        await expect(page.locator(".post.reply")).to_contain_text("Wrote")
        await say(page, "attach out.md")
        async with page.expect_download() as downloading:
            await page.get_by_role("link", name="out.md (").click()
        download = await downloading.value
        expected = ("out.md", "<script>1</script>")
        assert (download.suggested_filename, (await download.path()).read_text()) == expected


async def test_two_tabs_show_the_same_thread(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await say(page, "from the first tab")
        await expect(page.locator(".post.reply")).to_have_count(1)
        other = await page.context.new_page()
        await other.goto(page.url)
        await expect(other.locator(".post.reply")).to_have_count(1)
        await say(other, "from the second tab")
        await expect(page.locator(".person .text", has_text="from the second tab")).to_be_visible()
        await expect(page.locator(".post.reply")).to_have_count(2)


async def test_the_keyboard_alone_is_enough(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.keyboard.type("/st")
        await expect(page.locator("#completions [aria-selected=true]")).to_contain_text("/stop")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.locator("#text")).to_have_value("/status")
        await expect(page.locator(".post")).to_have_count(0)
        await page.keyboard.press("Enter")
        await expect(page.locator(".post.notice, .post.reply")).to_contain_text("Idle")
        await page.keyboard.type("/he")
        await expect(page.locator("#completions")).to_contain_text("/help")
        await page.keyboard.press("Escape")
        await expect(page.locator("#completions")).to_be_hidden()
        await expect(page.locator("#text")).to_have_value("/he")
        await page.keyboard.type("l")
        await page.keyboard.press("Tab")
        await expect(page.locator("#text")).to_have_value("/help")
        await page.locator("#text").fill("")
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        await page.keyboard.press("Enter")
        await expect(page.locator(".person .text").last).to_have_text("one\ntwo")


@pytest.mark.parametrize(("scheme", "width"), [("light", 380), ("dark", 1200)])
async def test_nothing_of_the_page_is_a_barrier(tmp_path, scheme, width):
    from axe_playwright_python.async_playwright import Axe  # noqa: PLC0415

    async with serving_page(tmp_path, ASKS) as site:
        size = {"width": width, "height": 800}
        async with browsing(site, color_scheme=scheme, viewport=size, bypass_csp=True) as page:
            await say(page, "write notes.md x")
            await page.get_by_role("button", name="Allow once").click()
            await expect(page.locator(".post.reply")).to_be_visible()
            await page.fill("#text", "/")
            found = [await Axe().run(page)]
            for path in ("", "threads", "money", "audit", "models", "dead-letters"):
                await page.goto(f"{site.url}/look/{path}")
                found.append(await Axe().run(page))
            await page.goto(f"{site.url}/look/threads")
            await page.locator("tbody a").first.click()
            await page.locator(".transcript").wait_for()
            await page.wait_for_load_state()  # with its styles
            found.append(await Axe().run(page))
    assert [
        (one["id"], node["html"])
        for result in found
        for one in result.response["violations"]
        for node in one["nodes"]
    ] == []


async def test_text_that_runs_from_the_right_is_shown_so_and_code_in_it_is_not(tmp_path):
    answer = "שלום `git push` עולם\n\n- פריט\n\n> ציטוט\n\n| שם |\n|---|\n| דיסק |\n\nEnglish"
    async with FakeOpenAI([chat_answer(Text(answer))]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with serving_page(tmp_path, fields, model="local/m") as site, browsing(site) as page:
            await say(page, "hello")
            await expect(page.locator(".post.reply")).to_contain_text("English")
            shown = (
                await page.locator(".post.reply .markdown")
                .locator("> *, code, table")
                .evaluate_all("all => all.map(one => [one.tagName, getComputedStyle(one).direction])")
            )
    assert [tuple(one) for one in shown] == [
        ("P", "rtl"), ("CODE", "ltr"), ("UL", "rtl"), ("BLOCKQUOTE", "rtl"), ("DIV", "ltr"), ("TABLE", "rtl"), ("P", "ltr"),
    ]  # fmt: skip


async def test_a_narrow_page_has_no_sideways_scroll(tmp_path):
    (tmp_path / f"{'n' * 200}.txt").write_text("hi")
    async with (
        serving_page(tmp_path / "data", ASKS) as site,
        browsing(site, viewport={"width": 360, "height": 700}) as page,
    ):
        await page.set_input_files("#file", tmp_path / f"{'n' * 200}.txt")
        await say(page, f"write notes.md {'x' * 300} && rm -rf {'y' * 300}")
        await expect(page.locator(".choices button")).to_have_count(3)
        looks = await page.locator(".choices button").evaluate_all(
            "all => all.map(one => getComputedStyle(one).backgroundColor + getComputedStyle(one).color)"
        )
        assert len(set(looks)) == 3
        wider = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.className)"
        await page.get_by_role("button", name="Allow once").click()
        await expect(page.locator(".post.reply")).to_be_visible()
        await page.locator(".tool summary").click()
        assert await page.locator("#log, #messages pre, #messages > li").evaluate_all(wider) == []
        for path in ("/", "/look/", "/look/threads", "/look/money"):
            await page.goto(f"{site.url}{path}")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


async def test_the_list_on_a_phone_closes_by_escape_and_by_a_press_beside_it(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site, viewport={"width": 360, "height": 700}) as page:
        menu, threads = page.locator("#menu"), page.locator("#threads")
        await menu.click()
        await expect(threads).to_be_visible()
        await page.locator("#new").press("Escape")
        await expect(threads).to_be_hidden()
        await expect(menu).to_be_focused()
        await menu.click()
        await page.locator("main").click(position={"x": 355, "y": 200})
        await expect(threads).to_be_hidden()


async def test_why_tells_what_happened_to_a_message(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await say(page, "hello")
        await expect(page.locator(".post.reply")).to_be_visible()
        await page.goto(f"{site.url}/look/threads")
        await page.locator("tbody a").first.click()
        why = page.get_by_role("link", name="why", exact=True)
        message = re.search(r"message=([0-9a-f-]{36})", await why.get_attribute("href"))[1]
        await why.click()
        await expect(page.locator(".timeline li").last).to_contain_text("answered")
        await page.goto(f"{site.url}/look/why")
        await page.fill("[name=message]", message)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator(".timeline li").last).to_contain_text("answered")


async def test_a_link_on_another_page_is_opened_only_by_a_press(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        stranger = await (await page.context.browser.new_context()).new_page()
        await stranger.goto("data:text/html,<a id=a>open</a>")
        await stranger.evaluate(
            "link => { document.getElementById('a').href = link }", f"{site.url}/enter#{site.link()}"
        )
        await stranger.click("#a")
        await expect(stranger.locator("#word")).to_contain_text("on another page")
        await stranger.get_by_role("button", name="Open it").click()
        await stranger.wait_for_selector("#text")


async def test_a_link_of_somebody_else_says_whose_it_is(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.goto("about:blank")
        await page.goto(f"{site.url}/enter#{site.link('mallory')}")
        await expect(page.locator("#word")).to_contain_text("mallory")
        await page.get_by_role("button", name="Open it").click()
        await expect(page.locator("#text")).to_be_visible()
        await expect(page.locator("#threads")).to_contain_text("Signed in as mallory")


async def test_more_tabs_than_a_browser_has_connections_all_work(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await say(page, "hello")
        await expect(page.locator(".post.reply")).to_have_count(1)
        for _ in range(8):
            await look_away(page)
            page, before = await page.context.new_page(), page
            await page.goto(before.url)
            await expect(page.locator(".post.reply")).to_have_count(1)
        await say(page, "once more")
        await expect(page.locator(".post.reply")).to_have_count(2)
        await look_away(page)
        await look_away(before, away=False)
        await expect(before.locator(".post.reply")).to_have_count(2)


async def test_a_second_press_of_send_after_a_lost_answer_is_no_second_message(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:

        async def lose(route):
            await route.fetch()
            await route.abort()

        await page.route("**/api/messages", lose)
        await say(page, "hello")
        await expect(page.locator("#fault")).to_contain_text("Your text is still here")
        await page.unroute("**/api/messages")
        await page.keyboard.press("Enter")
        await expect(page.locator("#text")).to_have_value("")
        await expect(page.locator(".post.reply")).to_have_count(1)
        await expect(page.locator(".person")).to_have_count(1)
