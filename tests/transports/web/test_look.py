"""The admins' pages in a real Chromium."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from bot.observe.audit import AuditRecord
from tests.bot.cli.data_folders import exchange, write_audit, write_thread
from tests.transports.web.chromium import browsing, in_one_chromium, say
from tests.transports.web.site import serving_page
from threads.model import UsageCounted

pytestmark = in_one_chromium

PATHS = ["", "turns", "turns?outcome=failed", "threads", "money", "models", "audit", "dead-letters", "why"]
LONG = "Plan the migration of the billing database, step by step: " + "what_can_go_wrong_" * 9

SMALL = """[...document.querySelectorAll('a[href], button, input, select, summary')].filter((one) => {
  const { left, height, width } = one.getBoundingClientRect();
  return width && left >= 0 && height < 44 && !one.closest('p');
}).map((one) => one.outerHTML)"""


def write(data, at: datetime) -> None:
    """Write a thread with an answer and a failure at this time, and what the audit has of them."""
    second = iter(range(3600))

    def moved(entry):
        moment = at + timedelta(seconds=next(second))
        return replace(entry, at=moment.isoformat(timespec="milliseconds"))

    spent = UsageCounted("anthropic/claude", 12_345, 0.5, 0.25)
    lines = [*exchange(1, LONG), *exchange(2, "and now?", outcome="failed", code="rate_limited")]
    written = [moved(replace(one, spent=spent) if one.kind == "settled" else one) for one in lines]
    log = write_thread(data, "1.1", *written) / "log.jsonl"
    os.utime(log, (time.time(), time.time()))
    details = {"event": "circuit.opened", "model": "anthropic/claude", "reason": "overloaded"}
    ids = {"thread_id": "slack:T1:C1:1.1", "message_id": "m2", "correlation_id": "00000002"}
    write_audit(
        data,
        AuditRecord(at=written[0].at, kind="circuit", details=details),
        AuditRecord(at=written[-1].at, kind="error", details={"event": "turn.failed", "reason": "no"}, **ids),
    )


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
async def test_nothing_of_these_pages_is_a_barrier_and_they_fit(tmp_path, scheme, width):
    from axe_playwright_python.async_playwright import Axe  # noqa: PLC0415

    write(tmp_path, datetime.now(UTC) - timedelta(minutes=1))
    faults = []
    size = {"width": width, "height": 844}
    async with (
        serving_page(tmp_path) as site,
        browsing(site, color_scheme=scheme, viewport=size, bypass_csp=True) as page,
    ):
        await say(page, "hello")
        await expect(page.locator(".post.reply").first).to_be_visible()
        for path in [*PATHS, "thread?id=slack:T1:C1:1.1", "why?message=m2&thread=slack:T1:C1:1.1"]:
            await page.goto(f"{site.url}/look/{path}")
            found = (await Axe().run(page)).response["violations"]
            faults += [(path, one["id"], node["html"]) for one in found for node in one["nodes"]]
            if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                faults.append((path, "wider than the window"))
            if width == 390:
                faults += [(path, "small", one) for one in await page.evaluate(SMALL)]
    assert faults == []


async def test_times_and_numbers_are_those_of_the_browser_and_days_those_of_the_bot(tmp_path):
    year = datetime.now(UTC).year
    write(tmp_path, datetime(year, 1, 1, 23, 30, tzinfo=UTC))
    person = {"locale": "de-AT", "timezone_id": "Asia/Tokyo"}
    async with serving_page(tmp_path) as site, browsing(site, **person) as page:
        await page.goto(f"{site.url}/look/turns?thread=slack:T1:C1:1.1")
        row = page.locator("tbody tr").last
        await expect(page.locator("#zone")).to_contain_text("Asia/Tokyo (GMT+9)")
        ended = row.locator("time").first
        await expect(ended).to_have_text(re.compile(r"^2\. Jän\., 08:30:02$"))
        assert f"{year}-01-01 23:30:02 UTC" in await ended.get_attribute("title")
        await expect(row).to_contain_text("12 345")
        await expect(row).to_contain_text("0,25")


async def test_without_scripts_times_are_utc_and_say_so(tmp_path):
    write(tmp_path, datetime(2026, 1, 1, 23, 30, tzinfo=UTC))
    async with serving_page(tmp_path) as site, browsing(site, timezone_id="Asia/Tokyo") as page:
        await page.route("**/local.js", lambda route: route.abort())
        await page.goto(f"{site.url}/look/turns?thread=slack:T1:C1:1.1")
        await expect(page.locator("tbody time").last).to_have_text("2026-01-01 23:30:02 UTC")


async def test_a_turn_on_the_summary_has_the_title_of_its_thread(tmp_path):
    write(tmp_path, datetime.now(UTC) - timedelta(minutes=1))
    async with serving_page(tmp_path) as site, browsing(site) as page:
        ids = {"thread_id": "slack:T1:C1:1.1", "message_id": "m1", "correlation_id": "00000001"}
        site.events.settled("slack", "answered", 1.0, ids)
        await page.goto(f"{site.url}/look/")
        await expect(page.locator("#turns th a")).to_contain_text("Plan the migration")
        await page.locator("#turns a", has_text="why").click()
        await expect(page.locator("h2.verdict")).to_have_text("It was answered.")
