"""One view of one page through Playwright: load it within its time, read it, take a picture.

The expression that reads runs in a world of its own (`Page.createIsolatedWorld`): the page's scripts cannot change
what its built-ins do, so its limits hold. Only what a person would see is read. Text within open shadow roots and
frames of the same origin comes after the text around them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace

import anyio
from playwright.async_api import Error, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout
from pydantic import ValidationError

from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput

from .proxy import Visit
from .session import PageFailed, PageRequest, PageView

WIDTH, HEIGHT, MAX_HEIGHT = 1280, 800, 3200
"""CSS pixels of the screen, and the height of the longest picture."""

SETTLE_S = 4.0
"""Seconds that a loaded page has to come to rest: half a second without a request."""

LOAD_SHARE = 0.7
"""Share of a visit's time for loading; the rest is for reading."""

QUALITY, MAX_PICTURE = 80, 4_000_000
"""Quality of the JPEG, and its most bytes."""

PICTURE_S = 8.0
READS, READ_AGAIN_S = 3, 0.5
JPEG = b"\xff\xd8\xff"

MAX_TEXT = 100_000
"""Characters of text; far more than a model is shown at once, the rest goes into a file it can page."""

MAX_LINKS = 80
_LIMITS = json.dumps({"text": MAX_TEXT, "links": MAX_LINKS})

_READ = """
(() => {
  const limits = %s, parts = [];
  let room = limits.text, cut = false;
  const take = (text) => {
    text = (text || "").trim();
    if (!text) return;
    cut = cut || text.length > room;
    parts.push(text.slice(0, room));
    room -= Math.min(room, text.length);
  };
  const shown = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true});
  const read = (root) => {
    if (root.body) take(shown(root.body) ? root.body.innerText : "");
    else for (const child of root.children) if (shown(child)) take(child.innerText);
    for (const element of root.querySelectorAll("*")) {
      if (room <= 0) return;
      if (!element.shadowRoot && element.localName !== "iframe") continue;
      if (!shown(element)) continue;
      if (element.shadowRoot) read(element.shadowRoot);
      else if (element.contentDocument) read(element.contentDocument);
    }
  };
  read(document);
  const links = new Map();
  for (const link of document.links) {
    if (links.size >= limits.links) break;
    const name = (link.innerText || "").trim().replace(/\\s+/g, " ").slice(0, 100);
    const address = String(link.href).split("#")[0].slice(0, 500);
    if (name && /^https?:/.test(address) && !links.has(address) && shown(link)) links.set(address, name);
  }
  return {
    url: location.href.slice(0, 4000), title: document.title.slice(0, 300), text: parts.join("\\n\\n"), cut,
    links: [...links].map(([address, name]) => name + " <" + address + ">").join("\\n"),
    height: document.documentElement.scrollHeight,
  };
})()
"""

_NO_SELECTOR = re.compile(r"while parsing|Unknown engine|is not a valid selector|Malformed selector")
_NET_ERROR = re.compile(r"ERR_[A-Z0-9_]+")


async def view_page(page: Page, request: PageRequest, visit: Visit, deadline: float) -> PageView:
    status, unready = await _load(page, request, visit, deadline)
    view = await _read(page)
    if not view.url.startswith(("http://", "https://")):
        raise _unloaded(visit, "it led nowhere")
    view = replace(
        view,
        status=status,
        unready=unready or ("It was too large to be loaded whole." if visit.left < 0 else ""),
        refused=tuple((host, str(e)) for host, e in visit.problems.items() if isinstance(e, ToolDenied)),
    )
    return await _with_picture(page, view, request) if request.picture else view


async def _load(page: Page, request: PageRequest, visit: Visit, deadline: float) -> tuple[int, str]:
    """Load the page within its time; return HTTP's status, and what did not happen in time.

    Raises `ToolError` for an address without a page, and `PageFailed` for one that sent nothing yet.
    """
    until = anyio.current_time() + (deadline - anyio.current_time()) * LOAD_SHARE
    status = 0
    try:
        response = await page.goto(request.url, wait_until="commit", timeout=_ms(until))
        status = response.status if response else 0
        await page.wait_for_load_state("domcontentloaded", timeout=_ms(until))
        if request.wait_for:
            await page.wait_for_selector(request.wait_for, state="visible", timeout=_ms(until))
    except PlaywrightTimeout:
        if page.url == "about:blank":
            raise PageFailed("its server sent nothing in time") from None
        return (
            status,
            f"{request.wait_for!r} did not appear." if request.wait_for else "It did not load completely.",
        )
    except Error as error:
        raise _fault(error.message, request, visit) from error
    with suppress(PlaywrightTimeout):
        await page.wait_for_load_state("networkidle", timeout=min(_ms(until), SETTLE_S * 1000))
    return status, ""


def _fault(message: str, request: PageRequest, visit: Visit) -> Exception:
    """Return the error for a page that did not load: the fault of the address, the selector or the page."""
    if "Download is starting" in message or "net::ERR_ABORTED" in message:
        return ToolInvalidInput("The address is a file, not a page.", suggestion="Try web_fetch.")
    if found := _NET_ERROR.search(message):
        return _unloaded(visit, found[0])
    if request.wait_for and _NO_SELECTOR.search(message):
        return ToolInvalidInput("wait_for is not a CSS selector.", suggestion="Use a CSS selector.")
    return PageFailed(message.splitlines()[0][:300])


def _unloaded(visit: Visit, why: str) -> ToolError:
    """Return the proxy's last error: no page was there yet that could have asked for another host."""
    if visit.problems:
        return next(reversed(visit.problems.values()))
    return ToolError(f"The page could not be loaded ({why}).", suggestion="Try another source.")


async def _read(page: Page) -> PageView:
    """Read the page in a world that its scripts cannot reach; again if it moved on meanwhile."""
    session = await page.context.new_cdp_session(page)
    frame = (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
    for _ in range(READS):
        try:
            world = await session.send("Page.createIsolatedWorld", {"frameId": frame})
            result = await session.send(
                "Runtime.evaluate",
                {
                    "expression": _READ % _LIMITS,
                    "contextId": world["executionContextId"],
                    "returnByValue": True,
                },
            )
            return PageView(**result["result"]["value"])
        except Error as error:
            if "context" not in error.message:
                raise
        except (KeyError, TypeError, ValidationError):
            pass  # it moved on while it was read
        await anyio.sleep(READ_AGAIN_S)
    raise PageFailed("it could not be read")


async def _with_picture(page: Page, view: PageView, request: PageRequest) -> PageView:
    """Add a picture: the screen, or the whole page as far as a picture goes."""
    try:
        if request.full_page:
            height = int(max(HEIGHT, min(view.height, MAX_HEIGHT)))
            await page.set_viewport_size({"width": WIDTH, "height": height})
        picture = await page.screenshot(
            type="jpeg", quality=QUALITY, animations="disabled", timeout=PICTURE_S * 1000
        )
    except Error as error:
        return replace(view, unpictured=error.message.splitlines()[0][:300])
    if not picture.startswith(JPEG) or len(picture) > MAX_PICTURE:
        return replace(view, unpictured=f"not a usable JPEG ({len(picture)} bytes)")
    return replace(view, picture=picture)


def _ms(until: float) -> float:
    """Return the milliseconds that are left, at least 1: Playwright takes 0 for no limit."""
    return max(1.0, (until - anyio.current_time()) * 1000)
