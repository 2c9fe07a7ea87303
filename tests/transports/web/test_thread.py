"""A thread on the page, as the events of its stream change it. The events are told by the transport itself."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from tests.transports.web.chromium import browsing, in_one_chromium, say
from tests.transports.web.site import serving_page
from threads.model import (
    Outgoing,
    Resumed,
    Taken,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    UsageCounted,
    Waiting,
)

pytestmark = in_one_chromium

THREAD = ThreadId("web", "", "you", "aaaa")
AT_END = "() => { const log = document.getElementById('log'); return log.scrollHeight - log.scrollTop - log.clientHeight < 5 }"


class Told:
    """A page of one thread, and what the bot tells of it."""

    def __init__(self, site, page) -> None:
        self.site, self.page = site, page

    def tell(self, *events, message="m1"):
        for event in events:
            self.site.web.show(THREAD, message, event)

    async def answer(self, text="an answer", message="m1", *, said="hi", model="local/m"):
        key = f"web::you:{message}"
        self.tell(Taken(said, "you"), TurnStarted(said, "you"), message=message)
        await self.site.web.post(Outgoing(THREAD, key, text, "reply", message))
        used = [UsageCounted(model, 10, 0.0, None)] if model else []
        self.tell(*used, TurnSettled("answered"), message=message)

    def snapshot(self):
        self.site.web._talk._feeds.of(str(THREAD)).ring.reset()


@asynccontextmanager
async def reading(tmp_path, **context):
    async with serving_page(tmp_path) as site, browsing(site, **context) as page:
        await page.goto(f"{site.url}/#aaaa")
        await page.wait_for_selector("#text:not([readonly])")
        yield Told(site, page), page


async def test_a_reset_takes_the_text_since_the_last_tool_back(tmp_path):
    async with reading(tmp_path) as (bot, page):
        tool = ToolStarted("read_file", call_id="c"), ToolFinished("read_file", ok=True, call_id="c")
        bot.tell(
            Taken("hi", "you"),
            TextDelta("I look."),
            *tool,
            TextDelta("wrong"),
            TextReset(),
            TextDelta("right"),
        )
        await expect(page.locator(".draft > *")).to_have_text(["I look.", "right"])
        bot.snapshot()
        await expect(page.locator(".draft > *")).to_have_text(["I look.", "right"])


async def test_finished_blocks_stay_the_same_elements_to_the_end_of_the_answer(tmp_path):
    text = "# Plan\n\nFirst **this**.\n\n- a\n- b\n\n```py\nx = 1\n```\n\nThe end."
    async with reading(tmp_path) as (bot, page):
        bot.tell(Taken("hi", "you"), TurnStarted("hi", "you"), TextDelta(text[:20]))
        await expect(page.locator(".draft h3")).to_be_visible()
        await page.evaluate("document.querySelector('.draft h3').mark = 'kept'")
        for at in range(20, len(text), 3):
            bot.tell(TextDelta(text[at : at + 3]))
        await expect(page.locator(".draft")).to_contain_text("The end.")
        before = await page.locator(".draft .markdown").inner_html()
        await bot.site.web.post(Outgoing(THREAD, "web::you:m1", text, "reply", "m1"))
        await expect(page.locator(".post.reply")).to_contain_text("The end.")
        assert await page.locator(".post .markdown").inner_html() == before
        assert await page.evaluate("document.querySelector('.post h3').mark") == "kept"


async def test_a_verdict_stays_given_when_the_outcome_is_told_again(tmp_path):
    async with reading(tmp_path) as (bot, page):
        await bot.answer()
        await page.get_by_role("button", name="Good answer").click()
        await expect(page.locator(".feedback")).to_have_text("Thank you.")
        bot.tell(TurnSettled("answered"), TurnStarted("hi", "you"))
        bot.tell(Taken("next", "you"), message="m2")
        await expect(page.locator(".person .text", has_text="next")).to_be_visible()
        await expect(page.locator(".feedback")).to_have_text("Thank you.")


async def test_only_what_a_model_has_written_is_judged(tmp_path):
    async with reading(tmp_path) as (bot, page):
        wrote = [("hi", "offline/demo"), ("/compact", "local/m"), ("/help", ""), ("hi", "local/m")]
        for number, (said, model) in enumerate(wrote):
            await bot.answer(message=f"m{number}", said=said, model=model)
        await expect(page.locator(".post.reply")).to_have_count(4)
        await expect(page.locator("#m-m3 .feedback")).to_be_visible()
        await expect(page.locator(".feedback")).to_have_count(1)


CHANGES = """() => {
    window.changes = [];
    const told = ({ target }) => target.closest("[aria-hidden]") ? "" : target.className;
    new MutationObserver((all) => changes.push(...all.map(told)))
        .observe(document.querySelector("#messages"), { subtree: true, childList: true });
}"""


async def test_a_screen_reader_is_told_of_the_state_once_and_not_of_each_word(tmp_path):
    async with reading(tmp_path) as (bot, page):
        bot.tell(Taken("hi", "you"), TurnStarted("hi", "you"), TextDelta("a"))
        await expect(page.locator(".draft")).to_have_text("a")
        await page.evaluate(CHANGES)
        for number in range(5):
            bot.tell(TextDelta(f" {number}"))
        await expect(page.locator(".draft")).to_have_text("a 0 1 2 3 4")
        assert "meta" not in await page.evaluate("changes")


async def test_a_screen_reader_is_not_told_the_seconds_of_a_wait(tmp_path):
    async with reading(tmp_path) as (bot, page):
        bot.tell(Taken("hi", "you"), Waiting("busy", 600, 1, 3))
        await expect(page.locator(".wait")).to_contain_text("Waiting: busy, 1 of 3, trying again in")
        await page.evaluate(CHANGES)
        await page.evaluate("thread.tick()")
        assert "wait" not in await page.evaluate("changes")
        bot.tell(Resumed())
        await expect(page.locator(".wait")).to_have_text("")


async def test_who_reads_above_stays_there_when_all_is_shown_anew(tmp_path):
    async with reading(tmp_path) as (bot, page):
        for number in range(5):
            await bot.answer("\n\n".join(["long"] * 30), message=f"m{number}")
        await expect(page.locator(".post.reply")).to_have_count(5)
        await page.evaluate("document.getElementById('log').scrollTop = 500")
        await page.locator("#messages > li").first.evaluate("element => { element.dataset.old = 'yes' }")
        bot.snapshot()
        await expect(page.locator("[data-old]")).to_have_count(0)
        assert await page.evaluate("document.getElementById('log').scrollTop") == 500


@pytest.mark.parametrize("room", ["a long draft", "the keyboard of a phone"])
async def test_the_end_stays_in_sight_when_there_is_less_room(tmp_path, room):
    async with reading(tmp_path, viewport={"width": 500, "height": 800}) as (bot, page):
        await bot.answer("\n\n".join(["long"] * 50))
        await page.wait_for_function(AT_END)
        if room == "a long draft":
            await page.fill("#text", "line\n" * 11)
        else:
            await page.set_viewport_size({"width": 500, "height": 450})
        await page.wait_for_function(AT_END)
        bot.tell(Taken("hi", "you"), TextDelta("\n\n".join(["more"] * 30)), message="m2")
        await expect(page.locator(".draft").last).to_contain_text("more")
        await page.wait_for_function(AT_END)


async def test_who_sends_sees_what_was_sent(tmp_path):
    async with reading(tmp_path) as (bot, page):
        await bot.answer("\n\n".join(["long"] * 60))
        await expect(page.locator(".post.reply")).to_have_count(1)
        await page.evaluate("document.getElementById('log').scrollTop = 0")
        await say(page, "my own words")
        await expect(page.locator(".person .text", has_text="my own words")).to_be_in_viewport()
