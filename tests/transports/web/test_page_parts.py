"""What people are used to from chat pages, in a real Chromium."""

from __future__ import annotations

import io

from PIL import Image
from playwright.async_api import expect

from tests.fakes.http import Stall
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.serving import compatible
from tests.transports.web.chromium import browsing, in_one_chromium, look_away, say
from tests.transports.web.site import serving_page

pytestmark = in_one_chromium

ASKS = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SMALL = """() => [...document.querySelectorAll('button, select, a, summary, [role=option]')]
    .filter((one) => one.checkVisibility() && !one.matches('.skip, p a, .visually-hidden'))
    .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
    .filter(([, box]) => box.height < 43.9 || box.width < 43.9).map(([html]) => html)"""

TOLD = """() => { window.shown = []; window.Notification = class {
    static permission = 'granted';
    static requestPermission = async () => 'granted';
    constructor(...all) { shown.push(all); }
}; }"""


def picture_of(kind: str) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(made, kind)
    return made.getvalue()


def answering(api, **more):
    return {"providers": compatible("local", api.base_url), "model": "local/m", **more}


async def until(page, condition: str) -> None:
    """Wait for a condition of the page's script."""
    look = f"const look = () => {condition} ? done() : requestAnimationFrame(look); look();"
    await page.evaluate(f"() => new Promise((done) => {{ {look} }})")


async def test_a_picture_that_a_person_sends_is_shown_small_and_what_only_looks_like_one_is_not(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        sent = {"red.png": picture_of("png"), "red.webp": picture_of("webp"), "evil.png": b"<svg onload=x>"}
        files = [{"name": name, "mimeType": "image/png", "buffer": data} for name, data in sent.items()]
        await page.set_input_files("#file", files)
        await expect(page.locator("#files canvas")).to_have_count(2)
        await expect(page.locator("#files progress")).to_have_count(0)
        await say(page, "what is this?")
        shown = page.locator(".person .picture img")
        await expect(shown).to_have_count(2)
        await expect(page.locator(".post.reply")).to_be_visible()
        await page.reload()
        await expect(shown).to_have_count(2)
        assert await shown.first.evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 40
        answer = await page.request.get(await shown.first.evaluate("(one) => one.src"))
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["content-type"] in ("image/png", "image/webp")


async def test_an_answer_is_copied_as_it_was_written_and_its_code_has_colours(tmp_path):
    written = "Use **this**:\n\n```py\nx = 1  # one\n```"
    async with (
        FakeOpenAI([chat_answer(Text(written))]) as api,
        serving_page(tmp_path, answering(api), model="local/m") as site,
        browsing(site, permissions=["clipboard-read", "clipboard-write"]) as page,
    ):
        await say(page, "how?")
        await expect(page.locator("figure.code .c")).to_have_text("# one")
        await page.get_by_role("button", name="Copy answer").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == written


async def test_the_model_is_seen_and_chosen_before_the_first_message(tmp_path):
    async with FakeOpenAI([chat_answer(Text("hi"))]) as api:
        fields = answering(api, models={"local/big": {"context_window": 200_000, "efforts": ["low", "high"]}})
        async with serving_page(tmp_path, fields, model="local/m") as site, browsing(site) as page:
            await expect(page.locator("#model")).to_have_value("local/m")
            await expect(page.locator("#model option").last).to_have_text("local/big · 200K tokens · free")
            await page.select_option("#model", "local/big")
            await page.select_option("#effort", "high")
            await say(page, "hello")
            await expect(page.locator("#messages .meta").last).to_contain_text("local/big")
            await expect(page.locator("#messages > li")).to_have_count(1)
            await page.reload()
            await expect(page.locator("#model")).to_have_value("local/big")
            await expect(page.locator("#effort")).to_have_value("high")
            assert api.requests[-1].json["model"] == "big"


async def test_on_a_phone_enter_begins_a_line_and_every_target_is_large_enough(tmp_path):
    async with serving_page(tmp_path, ASKS) as site, browsing(site, **PHONE) as page:
        await page.fill("#text", "one")
        before = await page.locator("#text").evaluate("(one) => one.clientHeight")
        await page.keyboard.press("Enter")
        await page.keyboard.type("two")
        await expect(page.locator("#text")).to_have_value("one\ntwo")
        assert await page.locator("#text").evaluate("(one) => one.clientHeight") > before
        assert await page.evaluate(SMALL) == []
        await page.fill("#text", "write notes.md x")
        await page.get_by_role("button", name="Send").tap()
        await page.get_by_role("button", name="Allow once").tap()
        await expect(page.locator(".post.reply")).to_be_visible()
        await page.fill("#text", "/")
        await page.locator("#menu").tap()
        assert await page.evaluate(SMALL) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= 390")


async def test_keys_open_their_list_change_the_light_and_stop_an_answer(tmp_path):
    cut = chat_answer(Text("The beginning. " * 20, 8)).keep(9, Stall())
    async with (
        FakeOpenAI([cut]) as api,
        serving_page(tmp_path, answering(api), model="local/m") as site,
        browsing(site) as page,
    ):
        await say(page, "hello")
        await expect(page.locator(".draft")).to_contain_text("The beginning.")
        await page.locator("#log").press("?")
        await expect(page.locator("#shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#shortcuts")).to_be_hidden()
        await page.locator("#log").press("t")
        await page.locator("#text").press("Escape")
        await expect(page.locator(".stopped")).to_contain_text("The beginning.")
        await page.reload()
        assert await page.evaluate("document.documentElement.dataset.theme") == "light"


async def test_a_question_is_in_the_title_and_a_notification_of_the_browser(tmp_path):
    async with serving_page(tmp_path, ASKS) as site, browsing(site, permissions=["notifications"]) as page:
        await page.evaluate(TOLD)
        await page.get_by_role("button", name="Notify me of questions").click()
        await expect(page.locator("#notify")).to_have_attribute("aria-pressed", "true")
        await until(page, "listens")
        await say(page, "write notes.md x")
        await expect(page.locator(".post.asks")).to_be_visible()
        assert await page.title() == "(1) threadfast"
        await page.get_by_role("button", name="Deny").click()
        await expect(page.locator(".post .decision")).to_have_text("Declined by you.")
        await expect(page).to_have_title("threadfast")
        await page.fill("#text", "write other.md x")
        await look_away(page)
        await page.locator("#composer").evaluate("(form) => form.requestSubmit()")
        await until(page, "shown.length === 1")
