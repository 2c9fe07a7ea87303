"""The turns that run, on the admins' page, in a real Chromium."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.transports.web.chromium import browsing, look_away, needs_chromium
from tests.transports.web.site import serving_page

pytestmark = [pytest.mark.anyio, needs_chromium]


def settle(site, message):
    ids = {"thread_id": "web::you:t", "message_id": message, "correlation_id": message}
    site.events.settled("web", "answered", 1.0, ids)


async def test_a_link_keeps_the_focus_while_the_seconds_pass(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        settle(site, "m1")
        await page.goto(f"{site.url}/look/")
        why = page.locator("#turns a", has_text="why")
        await why.focus()
        await page.evaluate("show()")  # as each second
        await expect(why).to_be_focused()
        settle(site, "m2")
        await expect(page.locator("#turns tr")).to_have_count(2)


async def test_a_browser_that_gave_up_is_connected_again(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        await page.route("**/look/events", lambda route: route.fulfill(status=502, body="no"))
        await page.goto(f"{site.url}/look/")
        await expect(page.locator("#reconnecting")).to_contain_text("reconnecting")
        await page.unroute_all()
        settle(site, "m1")
        await expect(page.locator("#turns")).to_contain_text("answered")
        await expect(page.locator("#reconnecting")).to_have_text("")


async def test_turns_of_a_process_that_is_gone_do_not_run_on(tmp_path):
    async with serving_page(tmp_path) as site:
        port = site.web.address.port
        async with browsing(site) as page:
            settle(site, "m1")
            await page.goto(f"{site.url}/look/")
            await expect(page.locator("#turns")).to_contain_text("answered")
            await site.stop()
            async with serving_page(tmp_path, port=port):
                await expect(page.locator("#turns")).to_contain_text("Nothing has run", timeout=20_000)


async def test_a_tab_that_nobody_sees_takes_no_connection(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        for _ in range(7):
            behind = await page.context.new_page()
            await behind.goto(f"{site.url}/look/")
            await look_away(behind)
        await page.reload()
        await page.wait_for_selector("#text:not([readonly])")
        await expect(page.locator("#link")).to_have_text("")
        assert await page.evaluate("fetch('/api/threads').then((answer) => answer.status)") == 200
