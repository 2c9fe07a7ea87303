"""The `browser` tool: a page as a person would see it, as text or as a picture.

If something fails it goes on with less, and says so to the person and to the model each time:

| what fails                     | what the call returns      | and then                                            |
|--------------------------------|----------------------------|-----------------------------------------------------|
| no browser is installed        | what `web_fetch` reads     | the same                                            |
| the browser                    | what `web_fetch` reads     | it is off for a while, see `Cooldown`               |
| one page in it                 | what `web_fetch` reads     | the next page is tried as usual                     |
| the picture                    | the text                   | pictures are off for a while                        |
| the model takes no pictures    | the text, and a file       | the same                                            |
| `web_fetch` too                | an error: go on without it |                                                     |

An address that is refused, or has no page, is an error as it is: `web_fetch` would find the same. So is a page whose
HTTP status is an error; its text is the partial result.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import anyio
from pydantic import Field, JsonValue

from bot.guards.egress import Egress
from bot.guards.urls import parse_url
from bot.ports.errors import ToolDenied, ToolError, ToolTimeout
from bot.ports.tool import Arguments, ItemError, Tool, ToolContext, ToolOutput
from bot.tools.files.write import Writer
from bot.tools.web.tool import ORIGIN, PageArguments, http_failure
from threads.model import Image

from .session import BrowserFailed, PageFailed, PageRequest, PageView, SharedBrowser

log = logging.getLogger(__name__)

LONGEST_S = 45.0
BROWSER_SHARE = 0.75
"""Share of a call's time for the browser; the rest is for `web_fetch` in its place."""

COOLDOWN_S = 600.0
"""Seconds that a feature is off after it failed."""

TRY_S = 45.0
"""Seconds that the first call after that has, before another call may try."""

MAX_REFUSED = 5

# Each of these is one short line: longer ones would be fenced like text of the page.
OFF = "the browser does not work at the moment, so this was read without JavaScript"
STUCK = "the page did not work in the browser, so this was read without JavaScript"
NO_PICTURE = "no picture could be taken, so this is the text"
UNSEEN = "this model sees no pictures, so here is the text; the file can be attached"

TELL_OFF = "My browser is not working, so I read web pages without JavaScript. Some may be incomplete."
TELL_STUCK = "A web page did not work in my browser, so I read it without JavaScript. It may be incomplete."
TELL_NO_PICTURE = "I could not take a picture of a web page, so I went by its text."
TELL_NOTHING = "I could not open a web page, so I went on without it."


@dataclass(slots=True)
class Cooldown:
    """A feature is off until ``off_until``, in seconds of the callers' clock; 0 means that it works.

    When the time is over, one call tries the feature. The other calls do without until its outcome is known.
    """

    off_until: float = 0.0

    def allows(self, now: float) -> bool:
        """Return whether the call that asks may use the feature."""
        if now < self.off_until:
            return False
        if self.off_until:
            self.off_until = now + TRY_S
        return True

    def fail(self, now: float) -> None:
        """Turn the feature off: a call that was allowed failed."""
        self.off_until = now + COOLDOWN_S

    def reset(self) -> None:
        """Turn the feature on: a call that was allowed worked."""
        self.off_until = 0.0


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


@dataclass(frozen=True)
class Browser:
    """*fetch* is `web_fetch`, None if it is not enabled. *missing* says why there is no browser at all.

    *disable_browser* and *disable_screenshots* are the settings `degradation.*_on_error`: without them the model gets
    the failure.
    """

    pages: SharedBrowser
    egress: Egress
    writer: Writer
    fetch: Tool | None
    missing: str = ""
    disable_browser: bool = True
    disable_screenshots: bool = True
    browser_cooldown: Cooldown = field(default_factory=Cooldown)
    picture_cooldown: Cooldown = field(default_factory=Cooldown)
    name: ClassVar[str] = "browser"
    description: ClassVar[str] = (
        "Open a public web page in a browser: its visible text, or a picture of it. For pages that need JavaScript; "
        "web_fetch is faster for all others. Nothing can be clicked, and nobody is logged in."
    )
    risk: ClassVar[Literal["net"]] = "net"
    arguments: ClassVar[type[Arguments]] = BrowserArguments

    async def __call__(self, arguments: BrowserArguments, context: ToolContext) -> JsonValue | ToolOutput:
        url = str(self.egress.check(arguments.url))
        now = anyio.current_time()
        left = min(context.deadline - now, LONGEST_S)
        context = replace(context, deadline=now + left)
        if self.missing and not self.disable_browser:
            raise ToolDenied(self.missing, suggestion="Go on without it, and say so.")
        if self.missing or not self.browser_cooldown.allows(now):
            return await self._fetch_instead(url, context, OFF, TELL_OFF)
        screenshot = arguments.action == "screenshot"
        picture = screenshot and self.picture_cooldown.allows(now)
        request = PageRequest(url, arguments.wait_for, picture, arguments.full_page)
        try:
            view = await self._view(request, now + left * BROWSER_SHARE)
        except BrowserFailed as error:
            log.warning("browser.failed: %s", error)
            if not self.disable_browser:
                raise ToolError("The browser failed.", suggestion="Try web_fetch.") from error
            return await self._fetch_instead(url, context, OFF, TELL_OFF)
        except PageFailed as error:
            if not self.disable_browser:
                raise ToolTimeout(
                    f"The page could not be read: {error}.", suggestion="Try web_fetch."
                ) from error
            return await self._fetch_instead(url, context, STUCK, TELL_STUCK)
        shown = await self._with_picture(view, context) if screenshot else _text(view)
        if view.status >= 400:
            failure = http_failure(parse_url(url).host, view.status)
            failure.partial, failure.origin = shown.result, ORIGIN  # its page may say why
            raise failure
        return shown

    async def _view(self, request: PageRequest, deadline: float) -> PageView:
        """View the page, and record the outcome for the cooldowns."""
        try:
            view = await self.pages.view(request, deadline)
        except BrowserFailed:
            if self.disable_browser:
                self.browser_cooldown.fail(anyio.current_time())
            raise
        except (PageFailed, ToolError):
            self.browser_cooldown.reset()
            raise
        self.browser_cooldown.reset()
        if view.picture:
            self.picture_cooldown.reset()
        elif request.picture and self.disable_screenshots:
            self.picture_cooldown.fail(anyio.current_time())
        return view

    async def _fetch_instead(self, url: str, context: ToolContext, degraded: str, tell: str) -> ToolOutput:
        """Read the page by `web_fetch`; raises `ToolError` if that does not work either."""
        if self.fetch is None:
            context.note(TELL_NOTHING)
            raise ToolError(f"No page could be opened: {degraded.partition(',')[0]}.", suggestion=_GO_ON)
        context.note(tell)
        try:
            read = await self.fetch(self.fetch.arguments.model_validate({"url": url}), context)
        except ToolError as error:
            if type(error) not in (ToolError, ToolTimeout):
                raise  # it says what is wrong with the address, or when to try again
            context.note(TELL_NOTHING)
            raise ToolError(
                f"Neither the browser nor web_fetch could open the page. {error}",
                suggestion=_GO_ON,
                partial=error.partial,
                origin=error.origin,
            ) from error
        read = read if isinstance(read, ToolOutput) else ToolOutput(read, origin=ORIGIN)
        result = read.result if isinstance(read.result, dict) else {"text": read.result}
        return replace(read, result={**result, "degraded": degraded})

    async def _with_picture(self, view: PageView, context: ToolContext) -> ToolOutput:
        """Save the picture, and return it to a model that takes pictures."""
        if not view.picture:
            log.warning("browser.no_picture: %s", view.unpictured or "they are off")
            if not self.disable_screenshots:
                raise ToolError(NO_PICTURE.capitalize() + ".", partial=_text(view).result, origin=ORIGIN)
            context.note(TELL_NO_PICTURE)
            return _without_picture(view, NO_PICTURE)
        name = f"screenshot-{context.stem}.jpg"
        try:
            path = await self.writer.save_output(context.workspace, name, view.picture, outside=True)
        except ToolError as error:
            context.note(TELL_NO_PICTURE)
            return _without_picture(view, f"the picture could not be saved, so this is the text. {error}")
        if not context.sees:
            return _text(view, picture=path, degraded=UNSEEN)
        result = _text(replace(view, text="", links="", cut=False), picture=path)
        return replace(result, images=(Image(path, "image/jpeg"),))


_GO_ON = "Go on without the page, and say that it could not be read."


def _without_picture(view: PageView, why: str) -> ToolOutput:
    text = _text(view, degraded=why)
    return replace(text, errors=(*text.errors, ItemError("picture", "unknown", why)))


def _text(view: PageView, **more: JsonValue) -> ToolOutput:
    """Return the page as text, without empty fields, and *more*."""
    result: dict[str, JsonValue] = {
        "url": view.url,
        "title": view.title,
        "text": view.text,
        "links": view.links,
    }
    if view.cut:
        result["cut"] = "The page is longer."
    result |= more
    errors = [ItemError(host, "permission", why) for host, why in view.refused[:MAX_REFUSED]]
    if view.unready:
        errors.append(ItemError(view.url, "timeout", view.unready))
    return ToolOutput({name: value for name, value in result.items() if value != ""}, tuple(errors), ORIGIN)
