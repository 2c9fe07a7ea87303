"""The `browser` tool: a page as a person would see it, as text or as a picture.

It goes on with less where it must, and says so to the person and to the model each time:

| what fails                  | what the call gives        | and then                                             |
|-----------------------------|----------------------------|------------------------------------------------------|
| it is not installed         | what `web_fetch` reads     | the same                                             |
| the browser                 | what `web_fetch` reads     | it is off for a while, see `bot.tools.browser.cooldown` |
| one page in it              | what `web_fetch` reads     | the next page is tried as ever                       |
| the picture                 | the text                   | pictures are off for a while                         |
| a model that sees none      | the text, and a file       | the same                                             |
| `web_fetch` too             | an error: go on without it |                                                      |

An address that is refused, or has no page, is the same for both: that is told as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import anyio
from pydantic import Field, JsonValue

from bot.guards.egress import Egress
from bot.ports.errors import (
    ToolBusy,
    ToolDenied,
    ToolError,
    ToolInvalidInput,
    ToolNotFound,
    ToolRateLimited,
    ToolTimeout,
)
from bot.ports.tool import Arguments, ItemError, Tool, ToolContext, ToolOutput
from bot.tools.files.write import Writer
from bot.tools.web.tool import ORIGIN, PageArguments
from threads.model import Image

from .cooldown import Outcome, Switch
from .protocol import BrowserFailed, PageFailed, PageRequest, Pages, PageView

log = logging.getLogger(__name__)

LONGEST_S = 45.0
BROWSER_SHARE = 0.75
"""Share of a call's time that the browser gets; the rest is for `web_fetch` in its place."""

MAX_REFUSED = 5

# Each of these is one short line: longer ones would be fenced as if the page had said them.
OFF = "the browser does not work at the moment, so this was read without JavaScript"
STUCK = "the page did not work in the browser, so this was read without JavaScript"
NO_PICTURE = "no picture could be taken, so this is the text"
UNSEEN = "this model sees no pictures, so here is the text; the file can be attached"

TELL_OFF = "My browser is not working, so I read web pages without JavaScript. Some may be incomplete."
TELL_STUCK = "A web page did not work in my browser, so I read it without JavaScript. It may be incomplete."
TELL_NO_PICTURE = "I could not take a picture of a web page, so I went by its text."
TELL_NOTHING = "I could not open a web page, so I went on without it."


class BrowserArguments(PageArguments):
    action: Literal["read", "screenshot"] = Field(
        default="read", description="read: its visible text and links; screenshot: a picture of it"
    )
    wait_for: str = Field(
        default="",
        max_length=500,
        description="CSS selector of what must be visible first, if that takes a while",
    )
    full_page: bool = Field(default=False, description="Picture the page below the fold too")


@dataclass(slots=True)
class Switches:
    """What is used at the moment."""

    browser: Switch = field(default_factory=Switch)
    pictures: Switch = field(default_factory=Switch)

    def may(self, which: Literal["browser", "pictures"]) -> bool:
        switch, may = getattr(self, which).asked(anyio.current_time())
        setattr(self, which, switch)
        return bool(may)

    def ended(self, which: Literal["browser", "pictures"], how: Outcome) -> None:
        setattr(self, which, getattr(self, which).ended(how, anyio.current_time()))


@dataclass(frozen=True)
class Browser:
    """*fetch* is `web_fetch`, None where people have not enabled it. *missing* says why there is no browser at all.

    *disable_browser* and *disable_screenshots* are the settings `degradation.*_on_error`: without them a failure is
    the model's to deal with.
    """

    pages: Pages
    egress: Egress
    writer: Writer
    fetch: Tool | None
    missing: str = ""
    disable_browser: bool = True
    disable_screenshots: bool = True
    switches: Switches = field(default_factory=Switches)
    name: ClassVar[str] = "browser"
    description: ClassVar[str] = (
        "Open a public web page in a browser: its visible text, or a picture of it. For pages that need JavaScript; "
        "web_fetch is faster for all others. Nothing can be clicked, and nobody is logged in."
    )
    risk: ClassVar[Literal["net"]] = "net"
    arguments: ClassVar[type[Arguments]] = BrowserArguments

    async def __call__(self, arguments: Arguments, place: ToolContext) -> JsonValue | ToolOutput:
        assert isinstance(arguments, BrowserArguments)
        url = str(self.egress.check(arguments.url))
        now = anyio.current_time()
        left = min(place.deadline - now, LONGEST_S)
        place = replace(place, deadline=now + left)
        if self.missing and not self.disable_browser:
            raise ToolDenied(self.missing, suggestion="Go on without it, and say so.")
        if self.missing or not self.switches.may("browser"):
            return await self._without(url, place, OFF, TELL_OFF)
        pictured = arguments.action == "screenshot" and self.switches.may("pictures")
        request = PageRequest(url, arguments.wait_for, pictured, arguments.full_page)
        try:
            seen = await self._seen(request, now + left * BROWSER_SHARE)
        except BrowserFailed as error:
            log.warning("browser.failed: %s", error)
            if not self.disable_browser:
                raise ToolError("The browser failed.", suggestion="Try web_fetch.") from error
            return await self._without(url, place, OFF, TELL_OFF)
        except PageFailed as error:
            if not self.disable_browser:
                raise ToolTimeout(
                    f"The page could not be read: {error}.", suggestion="Try web_fetch."
                ) from error
            return await self._without(url, place, STUCK, TELL_STUCK)
        return await self._shown(seen, place) if arguments.action == "screenshot" else _read(seen)

    async def _seen(self, request: PageRequest, deadline: float) -> PageView:
        """See the page, and set the switches by how that went."""
        how: Outcome = "given up"
        taken: Outcome = "given up"
        try:
            seen = await self.pages.view(request, deadline)
            how, taken = "worked", "worked" if seen.picture else "failed"
        except BrowserFailed:
            how = "failed" if self.disable_browser else "given up"
            raise
        except (PageFailed, ToolError):
            how = "worked"
            raise
        finally:
            self.switches.ended("browser", how)
            if request.picture:
                self.switches.ended("pictures", taken if self.disable_screenshots else "given up")
        return seen

    async def _without(self, url: str, place: ToolContext, degraded: str, tell: str) -> ToolOutput:
        """Read the page by `web_fetch`; raises `ToolError` if that does not work either."""
        if self.fetch is None:
            place.note(TELL_NOTHING)
            raise ToolError(f"No page could be opened: {degraded.partition(',')[0]}.", suggestion=_GO_ON)
        place.note(tell)
        try:
            read = await self.fetch(self.fetch.arguments.model_validate({"url": url}), place)
        except (ToolBusy, ToolDenied, ToolInvalidInput, ToolNotFound, ToolRateLimited):
            raise
        except ToolError as error:
            place.note(TELL_NOTHING)
            raise ToolError(
                f"Neither the browser nor web_fetch could open the page. {error}",
                suggestion=_GO_ON,
                partial=error.partial,
                origin=error.origin,
            ) from error
        read = read if isinstance(read, ToolOutput) else ToolOutput(read, origin=ORIGIN)
        result = read.result if isinstance(read.result, dict) else {"text": read.result}
        return replace(read, result={**result, "degraded": degraded})

    async def _shown(self, seen: PageView, place: ToolContext) -> ToolOutput:
        """Keep the picture, and show it to a model that can see it."""
        if not seen.picture:
            log.warning("browser.no_picture: %s", seen.unpictured or "they are off")
            if not self.disable_screenshots:
                raise ToolError(NO_PICTURE.capitalize() + ".", partial=_read(seen).result, origin=ORIGIN)
            place.note(TELL_NO_PICTURE)
            return _read(seen, degraded=NO_PICTURE)
        name = f"screenshot-{place.stem}.jpg"
        try:
            path = await self.writer.keep_output(place.workspace, name, seen.picture, outside=True)
        except ToolError as error:
            place.note(TELL_NO_PICTURE)
            return _read(seen, degraded=f"the picture could not be kept, so this is the text. {error}")
        if not place.sees:
            return _read(seen, picture=path, degraded=UNSEEN)
        shown = _read(replace(seen, text="", links="", cut=False), picture=path)
        return replace(shown, images=(Image(path, "image/jpeg"),))


_GO_ON = "Go on without the page, and say that it could not be read."


def _read(seen: PageView, **more: JsonValue) -> ToolOutput:
    """Return what was seen, as far as there is something to say, and *more*."""
    result: dict[str, JsonValue] = {
        "url": seen.url,
        "title": seen.title,
        "text": seen.text,
        "links": seen.links,
    }
    if seen.status != 200:
        result["status"] = seen.status
    if seen.cut:
        result["cut"] = "The page is longer."
    result |= {"unready": seen.unready, **more}
    errors = tuple(ItemError(host, "permission", why) for host, why in seen.refused[:MAX_REFUSED])
    return ToolOutput({name: value for name, value in result.items() if value != ""}, errors, ORIGIN)
