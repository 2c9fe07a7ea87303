"""Chromium, driven by Playwright: how it starts and ends. Imported when one starts.

Each view of a page has its own context (no cookies, cache or storage of another) and its own password for the proxy,
which is the only way out. Chromium's sandbox stays on. The driver ends with its pipe, and Chromium with the driver's:
neither outlives the bot, however that dies.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
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

from .launch import has_own, system_browser
from .page_visit import HEIGHT, WIDTH, view_page
from .proxy import Visit
from .session import BrowserFailed, OnFailure, PageFailed, PageRequest, PageView

START_S = 25.0
CLOSE_S = 1.5
"""Seconds that a page, the browser and the driver each have to close before they are killed."""

NO_BYPASS = "<-loopback>"
"""Send loopback through the proxy too; by itself Chromium would not."""


ARGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # only the proxy resolves names
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

DROPPED_ARGS = (
    "--disable-popup-blocking",
    "--disable-ipc-flooding-protection",
    "--enable-unsafe-swiftshader",
    "--unsafely-disable-devtools-self-xss-warnings",
)
"""Playwright sets these for tests of one's own pages; they are wrong for the pages of strangers."""


INHERITED = ("PATH", "HOME", "TMPDIR", "PLAYWRIGHT_BROWSERS_PATH")
"""The variables of our environment that Playwright's driver gets."""


@contextmanager
def bare_driver_environment() -> Generator[None]:
    """Start Playwright's driver without the secrets in our environment.

    The library passes on all of it and has no argument for that. Its private function is replaced only while a driver
    starts; to change `os.environ` instead would reach every program that starts in the meantime.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "PW_LANG_NAME": "python", **inherited}
    original = transport.get_driver_env  # type: ignore[attr-defined]
    transport.get_driver_env = environment.copy  # type: ignore[attr-defined]
    try:
        yield
    finally:
        transport.get_driver_env = original  # type: ignore[attr-defined]


@asynccontextmanager
async def run_chromium(
    offload: Offload, port: int, on_failure: OnFailure, *, sandbox: bool
) -> AsyncIterator[ChromiumEngine]:
    """Run Chromium for the block, see `bot.extensions.browser.launch.launch_chromium`."""
    manager = async_playwright()
    leader = driver = 0
    async with anyio.TemporaryDirectory(prefix="threadfast-browser-", ignore_cleanup_errors=True) as home:
        try:
            with anyio.fail_after(START_S):
                with bare_driver_environment():
                    playwright = await manager.start()
                browser = await _launch(playwright.chromium, home, port, sandbox=sandbox)
                session = await browser.new_browser_cdp_session()
                leader = (await _pids(session))[0]
                driver = await offload(_parent, leader)
            browser.on("disconnected", lambda _: on_failure(BrowserFailed("it died")))
            yield ChromiumEngine(offload, browser, session, port, on_failure)
        finally:  # each has time to end by itself before it is killed
            if leader:
                await _close_in_time(browser.close)
                _kill_group(leader)
            if await _close_in_time(manager.__aexit__) != "ended" and _parent(driver) == os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(driver, signal.SIGKILL)


async def _launch(chromium: BrowserType, home: str, port: int, *, sandbox: bool) -> Browser:
    executable = None if has_own() else system_browser()
    return await chromium.launch(
        executable_path=executable,
        channel=None if executable else "chromium",
        chromium_sandbox=sandbox,
        headless=True,
        artifacts_dir=home,
        args=ARGS,
        ignore_default_args=DROPPED_ARGS,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"},
        proxy={"server": f"http://127.0.0.1:{port}", "bypass": NO_BYPASS},
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )


@dataclass(frozen=True)
class ChromiumEngine:
    """A `bot.extensions.browser.session.Engine`."""

    offload: Offload
    browser: Browser
    session: CDPSession
    port: int
    on_failure: OnFailure

    async def memory(self) -> int:
        return await self.offload(_memory, await _pids(self.session))

    async def view(self, request: PageRequest, visit: Visit, deadline: float) -> PageView:
        try:
            async with self._page(visit) as page:
                return await view_page(page, request, visit, deadline)
        except Error as error:
            if not self.browser.is_connected():
                raise BrowserFailed("it died") from error
            raise PageFailed(error.message.splitlines()[0][:300]) from error

    @asynccontextmanager
    async def _page(self, visit: Visit) -> AsyncIterator[Page]:
        """Yield a page that shares nothing with any other, and close it with all that it opened."""
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
            if (how := await _close_in_time(context.close)) != "ended":
                failure = PageFailed if how == "took too long" else BrowserFailed
                self.on_failure(failure(f"closing a page {how}"))


async def _pids(session: CDPSession) -> list[int]:
    """Return the processes of the browser, their leader first."""
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    return [process["id"] for process in sorted(processes, key=lambda process: process["type"] != "browser")]


async def _close_in_time(
    close: Callable[[], Awaitable[object]],
) -> Literal["ended", "failed", "took too long"]:
    """Close something within `CLOSE_S`, also when cancelled, and return the outcome."""
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_S):
        try:
            await close()
        except Exception:  # noqa: BLE001 - what is dead fails in many ways; the caller handles all of them
            return "failed"
        return "ended"
    return "took too long"


def _memory(pids: Iterable[int]) -> int:
    """Return the bytes that the processes have for themselves, without their program's own files."""
    fields = [_status(pid).get(name, "0 kB") for pid in pids for name in ("RssAnon", "RssShmem")]
    return 1024 * sum(int(field.split()[0]) for field in fields)


def _parent(pid: int) -> int:
    """Return the process that started *pid*, or 0 if unknown."""
    return int(_status(pid).get("PPid", "0"))


def _kill_group(pid: int) -> None:
    """Kill *pid* and all that it leads, if it still runs. Never this process's own group."""
    with suppress(ProcessLookupError, PermissionError):
        if (group := os.getpgid(pid)) != os.getpgid(0):
            os.killpg(group, signal.SIGKILL)


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:  # it is gone, or this system has no /proc
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
