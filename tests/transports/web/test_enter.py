"""The page that a one-time link opens, when the bot does not answer as it should."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.transports.web.chromium import browsing, in_one_chromium
from tests.transports.web.site import serving_page

pytestmark = in_one_chromium


@pytest.mark.parametrize("fate", ["lost", "503", "502 of a proxy"])
async def test_a_link_that_could_not_be_used_is_tried_again_by_a_press(tmp_path, fate):
    answers = {
        "503": {"status": 503, "json": {"error": "I cannot save to my disk right now."}},
        "502 of a proxy": {"status": 502, "body": "<html>"},
    }
    async with serving_page(tmp_path) as site, browsing(site) as page:
        other = await (await page.context.browser.new_context()).new_page()
        await other.route(
            "**/api/enter", lambda route: route.fulfill(**answers[fate]) if fate in answers else route.abort()
        )
        await other.goto(f"{site.url}/enter#{site.link()}")
        await expect(other.locator("#go")).to_be_visible()
        await other.unroute("**/api/enter")
        await other.locator("#go").click()
        await other.wait_for_selector("#text")


async def test_another_link_in_the_same_tab_is_taken(tmp_path):
    async with serving_page(tmp_path) as site, browsing(site) as page:
        other = await (await page.context.browser.new_context()).new_page()
        await other.goto(f"{site.url}/enter#old")
        await expect(other.locator("#word")).to_contain_text("used already")
        await other.goto(f"{site.url}/enter#{site.link()}")
        await other.get_by_role("button", name="Open it").click()
        await other.wait_for_selector("#text")
