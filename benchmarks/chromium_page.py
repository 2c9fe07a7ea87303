"""The page in a real Chromium: `python -m benchmarks.chromium_page`. It needs what the tests need, and a Chromium.

| figure                         | how                                                                         |
|--------------------------------|-----------------------------------------------------------------------------|
| a thread of 300 messages opens | from the navigation to the last message in sight                            |
| frames of a streaming answer   | 20,000 lines in Markdown; the time between frames while they come           |
| first text                     | from the first piece of the model's answer to its letters on the page       |
| memory                         | of the page's script, after each tenth of a long stream                     |

With `--minutes` it only streams answers for so long, one after the other at the pace of a model, and shows at each
tenth what the page and the bot hold. With `--film FOLDER` it keeps pictures of an answer that comes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from dataclasses import replace
from itertools import chain
from pathlib import Path

import anyio
from playwright.async_api import Page

from tests.fakes.http import Reply, Wait
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.serving import compatible
from tests.transports.web.chromium import browsing
from tests.transports.web.site import Site, Visitor, serving_page
from threads.background import background_tasks
from threads.model import Taken, TextDelta, ThreadId, TurnStarted

THREAD = ThreadId("web", "", "you", "aaaa")
MESSAGES, LINES, AT_ONCE = 300, 20_000, 10
"""Messages of a long thread, lines of a long answer, and how many of them come in one piece."""

FRAMES = """() => { window.frames_ms = []; let last = performance.now();
    const look = (now) => { frames_ms.push(now - last); last = now; requestAnimationFrame(look); };
    requestAnimationFrame(look); }"""
SHOWN = "(text) => document.querySelector('#messages')?.textContent.includes(text)"
BLOCKS = (
    "Some words with **bold**, `code` and a [link](https://example.org), then some more of them.\n\n",
    "- an item of a list\n- another one\n- and a third, which is longer than the others\n\n",
    "```python\ndef area(r):\n    return 3.14 * r ** 2\n\nprint(area(2))\n```\n\n",
    "| city | people |\n|---|--:|\n| Zürich | 447,000 |\n| Cádiz | 111,000 |\n\n",
)


def answer(lines: int) -> str:
    """Return so many lines of Markdown."""
    text = "".join(BLOCKS) * (lines // 12)
    return "\n".join(text.split("\n")[:lines])


async def until_shown(page: Page, text: str) -> float:
    """Return when the page has shown a text, on the clock of `time.perf_counter`."""
    with anyio.fail_after(120):
        while not await page.evaluate(SHOWN, text):
            await anyio.sleep(0.005)
    return time.perf_counter()


async def talk(site: Site) -> None:
    """Have 300 messages answered in one thread."""
    async with Visitor(site) as ann:
        await ann.enter()
        async with ann.events("bbbb") as events:
            for number in range(MESSAGES):
                message = await ann.say(f"question {number}", "bbbb")
                await events.until("settled", id=message)


async def open_thread(site: Site, page: Page) -> float:
    """Return the seconds until the last of its messages is there."""
    await page.goto(f"{site.url}/#bbbb")
    began = time.perf_counter()
    await page.reload()
    return await until_shown(page, f"question {MESSAGES - 1}") - began


async def stream(site: Site, page: Page, lines: int) -> list[float]:
    """Stream an answer of so many lines; return the milliseconds of each frame meanwhile."""
    for event in (Taken("a question", "you"), TurnStarted("a question", "you")):
        site.web.show(THREAD, "long", event)
    began = time.perf_counter()
    site.web.show(THREAD, "long", TextDelta("The first words. "))
    first_s = await until_shown(page, "The first words.") - began
    await page.evaluate(FRAMES)
    pieces = answer(lines).split("\n")
    for at in range(0, len(pieces), AT_ONCE):
        site.web.show(THREAD, "long", TextDelta("\n".join(pieces[at : at + AT_ONCE]) + "\n"))
        await anyio.sleep(0.005)
        if at % (lines // 10) == 0:
            heap = await page.evaluate("performance.memory.usedJSHeapSize")
            print(f"  {at:7,} lines: {heap / 1e6:.0f} MB of the script")
    site.web.show(THREAD, "long", TextDelta("\n\nthe very end"))
    await until_shown(page, "the very end")
    print(f"first text after {first_s * 1000:.0f} ms")
    return list(await page.evaluate("frames_ms"))


class Paced:
    """A model that writes answers of 60 lines, a piece every *pause_s* seconds."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._held = deque[anyio.Event]()

    def reply(self, _: object) -> Reply:
        whole = chat_answer(Text(answer(60), 60))
        held = [anyio.Event() for _ in whole.steps]
        self._held.extend(held)
        return replace(whole, steps=tuple(chain(*zip(map(Wait, held), whole.steps, strict=True))))

    async def run(self) -> None:
        while True:
            await anyio.sleep(self._pause_s)
            if self._held:
                self._held.popleft().set()


async def stream_for(site: Site, page: Page, api: FakeOpenAI, minutes: float) -> None:
    """Ask for one answer after the other, for so many minutes."""
    browser = await page.context.new_cdp_session(page)
    await browser.send("Performance.enable")
    async with Visitor(site) as ann:
        await ann.enter()
        began, told, answers = time.monotonic(), 0, 0
        async with ann.events("aaaa") as events:
            while (passed := (time.monotonic() - began) / 60) < minutes:
                if passed >= told * minutes / 10:
                    told += 1
                    await browser.send("HeapProfiler.collectGarbage")
                    found = (await browser.send("Performance.getMetrics"))["metrics"]
                    held = {one["name"]: one["value"] for one in found}
                    bot_mb = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
                    print(
                        f"  {passed:5.1f} min, {answers:4} answers: script {held['JSHeapUsedSize'] / 1e6:.1f} MB, "
                        f"{held['Nodes']:,.0f} nodes, bot and benchmark {bot_mb:.0f} MB",
                        flush=True,
                    )
                answers += 1
                api.requests.clear()  # each has the whole conversation
                events.seen.clear()
                await events.until("settled", id=await ann.say(f"question {answers}", "aaaa"))


async def film(site: Site, page: Page, folder: Path) -> None:
    """Keep a picture of the page every 300 ms while an answer comes, and after it."""
    folder.mkdir(parents=True, exist_ok=True)
    async with Visitor(site) as ann:
        await ann.enter()
        await ann.say("Tell me of these cities.", "aaaa")
        for number in range(20):
            await page.screenshot(path=folder / f"{number:02}.png")
            await anyio.sleep(0.3)


async def stream_at_a_pace(options: argparse.Namespace) -> None:
    model = Paced(0.05 if options.film else 0.1)
    async with FakeOpenAI(model.reply) as api, background_tasks() as tasks:
        tasks.start_soon(model.run)
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        with tempfile.TemporaryDirectory() as folder:
            async with (
                serving_page(Path(folder), fields, model="local/m") as site,
                browsing(site) as page,
            ):
                await page.goto(f"{site.url}/#aaaa")
                await (
                    film(site, page, options.film)
                    if options.film
                    else stream_for(site, page, api, options.minutes)
                )


async def main() -> None:
    asked = argparse.ArgumentParser(prog="benchmarks.chromium_page")
    asked.add_argument("--lines", type=int, default=LINES)
    asked.add_argument("--minutes", type=float)
    asked.add_argument("--film", type=Path)
    options = asked.parse_args()
    if options.minutes or options.film:
        await stream_at_a_pace(options)
        return
    lines = options.lines
    with tempfile.TemporaryDirectory() as folder:
        async with FakeOpenAI(lambda _: chat_answer(Text(answer(12)))) as api:
            fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
            async with serving_page(Path(folder), fields, model="local/m") as site:
                await talk(site)
            async with serving_page(Path(folder), fields, model="local/m") as site, browsing(site) as page:
                opened = [await open_thread(site, page) for _ in range(5)]
                print(
                    f"{MESSAGES} messages open in {statistics.median(opened):.2f} s (of {len(opened)} times)"
                )
                await page.goto(f"{site.url}/#aaaa")
                frames = await stream(site, page, lines)
    late = [one for one in frames if one > 25]
    print(
        f"{lines:,} lines in {len(frames):,} frames: median {statistics.median(frames):.1f} ms, "
        f"p95 {sorted(frames)[int(len(frames) * 0.95)]:.1f} ms, {len(late)} above 25 ms, longest {max(frames):.0f} ms"
    )


if __name__ == "__main__":
    anyio.run(main)
