"""Chromium, driven by Playwright: how it is started and ended. Imported when one starts.

Each look at a page has a context of its own (no cookies, cache or storage of another) with a password of its own for
the proxy, which is the only way out. Chromium's own sandbox stays on. The driver ends with its pipe, and Chromium
with the driver's: neither outlives the bot, however it died.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from playwright._impl import transport
from playwright.async_api import (
    Browser,
    BrowserType,
    CDPSession,
    Error,
    Page,
    ProxySettings,
    async_playwright,
)

from threads.store.disk import Offload

from .detect import has_own, system_browser
from .page_visit import HEIGHT, WIDTH, look_at
from .processes import kill_child, kill_group, memory, parent
from .protocol import BrowserFailed, PageFailed, PageRequest, PageView
from .proxy import Visit
from .session import OnFailure

START_S = 25.0
CLOSE_S = 1.5
"""How long a page, the browser and the driver may each take to close before they are killed."""

NO_BYPASS = "<-loopback>"
"""Not even loopback is reached around the proxy, which Chromium would do by itself."""


ARGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # names are the proxy's to resolve
    "--dns-prefetch-disable",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--no-pings",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-3d-apis",
    "--disable-gpu",
    "--disable-file-system",
    "--disable-notifications",
    "--disable-speech-api",
    "--block-new-web-contents",
    "--renderer-process-limit=4",
    "--js-flags=--max-old-space-size=512",
)

LOOSE = (
    "--disable-popup-blocking",
    "--disable-ipc-flooding-protection",
    "--enable-unsafe-swiftshader",
    "--unsafely-disable-devtools-self-xss-warnings",
)
"""What Playwright sets for tests of one's own pages, and is wrong for the pages of strangers."""


def driver_environment() -> dict[str, str]:
    """Return what Playwright's driver gets of our environment: nothing that is secret.

    The library passes on all of it and has no setting for that.
    """
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "PLAYWRIGHT_BROWSERS_PATH")
        if name in os.environ
    }
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PW_LANG_NAME": "python", **kept}


transport.get_driver_env = driver_environment  # type: ignore[attr-defined]  # private: a test sees it hold


@asynccontextmanager
async def launched(
    offload: Offload, executable: Path | None, port: int, over: OnFailure, *, sandbox: bool
) -> AsyncIterator[Chromium]:
    """Run Chromium meanwhile, as `bot.tools.browser.launch.Chromium` says."""
    starting = async_playwright()
    leader = driver = 0
    async with anyio.TemporaryDirectory(prefix="threadfast-browser-", ignore_cleanup_errors=True) as home:
        try:
            with anyio.fail_after(START_S):
                playwright = await starting.start()
                browser = await _launch(playwright.chromium, executable, home, port, sandbox=sandbox)
                session = await browser.new_browser_cdp_session()
                leader = (await _pids(session))[0]
                driver = await offload(parent, leader)
            browser.on("disconnected", lambda _: over("it died", False))
            yield Chromium(offload, browser, session, port, over)
        finally:  # each is given time to end by itself, and then it is ended
            if leader:
                await _bounded(browser.close)
                kill_group(leader)
            if await _bounded(starting.__aexit__) != "ended" and driver:
                kill_child(driver)


async def _launch(
    chromium: BrowserType, executable: Path | None, home: str, port: int, *, sandbox: bool
) -> Browser:
    executable = executable or (None if has_own() else system_browser())
    return await chromium.launch(
        executable_path=executable,
        channel=None if executable else "chromium",
        chromium_sandbox=sandbox,
        headless=True,
        artifacts_dir=home,
        args=ARGS,
        ignore_default_args=LOOSE,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"},
        proxy={"server": f"http://127.0.0.1:{port}", "bypass": NO_BYPASS},
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )


@dataclass(frozen=True)
class Chromium:
    """A `bot.tools.browser.session.Engine`."""

    offload: Offload
    browser: Browser
    session: CDPSession
    port: int
    over: OnFailure

    async def memory(self) -> int:
        return await self.offload(memory, await _pids(self.session))

    async def view(self, request: PageRequest, visit: Visit, deadline: float) -> PageView:
        try:
            async with self._page(visit) as page:
                return await look_at(page, request, visit, deadline)
        except Error as error:
            if not self.browser.is_connected():
                raise BrowserFailed("it died") from error
            raise PageFailed(error.message.splitlines()[0][:300]) from error

    @asynccontextmanager
    async def _page(self, visit: Visit) -> AsyncIterator[Page]:
        """Give a page that shares nothing with any other, and close it with all that it opened."""
        proxy: ProxySettings = {
            "server": f"http://127.0.0.1:{self.port}",
            "bypass": NO_BYPASS,
            "username": visit.name,
            "password": visit.password,
        }
        context = await self.browser.new_context(
            proxy=proxy,
            service_workers="block",
            accept_downloads=False,
            viewport={"width": WIDTH, "height": HEIGHT},
            reduced_motion="reduce",
            locale="en-US",
        )
        try:
            yield await context.new_page()
        finally:
            if (how := await _bounded(context.close)) != "ended":
                self.over(f"closing a page {how}", how == "took too long")


async def _pids(session: CDPSession) -> list[int]:
    """Return the processes of the browser, the one that leads them first."""
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return [process["id"] for process in sorted(processes, key=lambda process: process["type"] != "browser")]


async def _bounded(end: Callable[[], Awaitable[object]]) -> Literal["ended", "failed", "took too long"]:
    """Wait a little for an end, also when cancelled, and return what came of it."""
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_S):
        try:
            await end()
        except Exception:  # noqa: BLE001 - what is dead already ends in many ways; whoever asks deals with all of them
            return "failed"
        return "ended"
    return "took too long"
