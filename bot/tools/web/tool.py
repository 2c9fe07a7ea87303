"""Reading the web: a page as text, in parts."""

from __future__ import annotations

import glob
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import ClassVar, Literal, Protocol

import anyio
from pydantic import Field, JsonValue

from bot.guards.urls import MAX_URL, Url, parse_url
from bot.ports.errors import (
    ToolBusy,
    ToolDenied,
    ToolError,
    ToolInvalidInput,
    ToolNotFound,
    ToolRateLimited,
    ToolTimeout,
)
from bot.ports.tool import Arguments, ItemError, Place, Returned
from threads.model import ThreadId
from threads.store.attachments import Extracted

from .http_client import HttpClient
from .response import Response

PART = 20_000
"""Characters of a page that are returned at once."""

MAX_TEXT = 1_000_000
"""Characters of one page that can be asked for."""

MAX_KEPT = 4_000_000
"""Characters of all the pages that are kept for reading on."""

AT_ONCE = 16
"""Pages fetched at once, for all threads: each may hold 5 MB."""

LONGEST_S = 60.0
FETCH_SHARE = 0.75
"""Share of a call's time that the server gets; the rest is for reading what it sent."""

ORIGIN = "web page"
UNREADABLE = ("image/", "video/", "audio/", "font/", "model/")
ELSEWHERE = "Try another source."
_PLAIN = re.compile(r"[^a-z0-9/.+-].*", re.DOTALL)


class Documents(Protocol):
    """Whatever makes text of files: `bot.documents.reader`."""

    async def text_of(self, data: bytes, media_type: str, name: str = "") -> Extracted: ...


class PageArguments(Arguments):
    url: str = Field(max_length=MAX_URL, description="Address of the page, http or https")

    def subject(self) -> str:
        """Return the address as it will be asked for; one that will be refused as it is."""
        try:
            return str(parse_url(self.url))
        except ToolDenied:
            return self.url

    def always(self) -> str:
        """Return that all of its site is meant."""
        try:
            return f"{glob.escape(parse_url(self.url).origin)}/*"
        except ToolDenied:
            return glob.escape(self.url)


class FetchArguments(PageArguments):
    offset: int = Field(default=0, ge=0, description="Character to start at, as `next_offset` said")


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read: ``url`` is where it was in the end."""

    url: str
    title: str
    text: str
    errors: tuple[ItemError, ...] = ()


class PageCache:
    """The last page of each thread, so that reading on in it asks nobody again. Bounded by `MAX_KEPT`."""

    def __init__(self) -> None:
        self._pages: OrderedDict[ThreadId, tuple[Url, Page]] = OrderedDict()

    def find(self, thread: ThreadId, url: Url) -> Page | None:
        kept, page = self._pages.get(thread, (None, None))
        return page if kept == url else None

    def keep(self, thread: ThreadId, url: Url, page: Page) -> None:
        self._pages.pop(thread, None)
        self._pages[thread] = (url, page)
        held = sum(len(page.text) for _, page in self._pages.values())
        while held > MAX_KEPT:
            _, (_, oldest) = self._pages.popitem(last=False)
            held -= len(oldest.text)


@dataclass(frozen=True)
class WebFetch:
    http: HttpClient
    documents: Documents
    pages: PageCache = field(default_factory=PageCache)
    room: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))
    name: ClassVar[str] = "web_fetch"
    description: ClassVar[str] = (
        f"Read a public web page or document as text, up to {PART} characters at a time. It fetches by GET, "
        "follows redirects within a site and names those to another in `moved_to`, and runs no scripts."
    )
    risk: ClassVar[Literal["net"]] = "net"
    arguments: ClassVar[type[Arguments]] = FetchArguments

    async def __call__(self, arguments: Arguments, place: Place) -> JsonValue | Returned:
        assert isinstance(arguments, FetchArguments)
        url = parse_url(arguments.url)
        page = self.pages.find(place.thread, url) if arguments.offset else None
        if page is None:
            found = await self._fetched(url, place)
            if isinstance(found, str):
                return Returned({"url": str(url), "moved_to": found, "next": "Fetch that."}, origin=ORIGIN)
            page = found
            self.pages.keep(place.thread, url, page)
        return _part(page, arguments.offset)

    async def _fetched(self, url: Url, place: Place) -> Page | str:
        """Return the page, or where it moved to."""
        deadline = min(place.deadline, anyio.current_time() + LONGEST_S)
        with anyio.CancelScope(deadline=deadline):
            async with self._turn(deadline):
                now = anyio.current_time()
                found = await self.http.get(str(url), now + (deadline - now) * FETCH_SHARE)
                return str(found.moved) if found.moved else await self._read(found)
        raise ToolTimeout(f"{url.host} took too long.", suggestion=ELSEWHERE)

    @asynccontextmanager
    async def _turn(self, deadline: float) -> AsyncIterator[None]:
        """Wait for room, but only so long that there is time left for the page."""
        now = anyio.current_time()
        with anyio.move_on_after((deadline - now) / 2) as waited:
            await self.room.acquire()
        if waited.cancelled_caught:
            raise ToolBusy("Too many pages are being read.", suggestion="Try again in a moment.")
        try:
            yield
        finally:
            self.room.release()

    async def _read(self, answer: Response) -> Page:
        _check(answer)
        name = answer.url.target.partition("?")[0].rsplit("/", 1)[1]
        data, answer.data = bytes(answer.data), b""
        read = await self.documents.text_of(data, answer.media_type, name)
        address = str(answer.url)
        if not read.text:
            raise ToolError(
                f"The page at {answer.url.host} holds nothing to read: {read.problem or 'it is empty.'}",
                suggestion=ELSEWHERE,
            )
        long = f"only the first {MAX_TEXT} characters of it are kept." if len(read.text) > MAX_TEXT else ""
        errors = [ItemError(address, "unknown", why) for why in (read.problem, long) if why]
        if answer.missing:
            errors.append(answer.missing)
        return Page(address, read.title, read.text[:MAX_TEXT], tuple(errors))


def _part(page: Page, offset: int) -> Returned:
    if offset and offset >= len(page.text):
        raise ToolInvalidInput(
            f"The page has {len(page.text)} characters.", suggestion="Give a smaller offset, or none."
        )
    end = offset + PART
    result: dict[str, JsonValue] = {"url": page.url, "title": page.title, "text": page.text[offset:end]}
    if end < len(page.text):
        result |= {"next_offset": end, "length": len(page.text)}
    return Returned(result, page.errors, origin=ORIGIN)


def _check(answer: Response) -> None:
    """Raise the error that a page is which cannot be read, if it is one."""
    host, status = answer.url.host, answer.status
    match status:
        case 401 | 402 | 403 | 407 | 451:
            raise ToolDenied(f"{host} does not let this page be read ({status}).", suggestion=ELSEWHERE)
        case 404 | 410:
            raise ToolNotFound(f"{host} has no such page ({status}).", suggestion="Check the address.")
        case 429 | 503 if status == 429 or answer.retry_after:
            raise ToolRateLimited(f"{host} wants to be asked less ({status}).", suggestion=_wait(answer))
        case _ if not 200 <= status < 300:
            raise ToolError(f"{host} answered with {status}.", suggestion=ELSEWHERE)
    if answer.kind.startswith(UNREADABLE):
        size = f"{answer.length} bytes" if answer.length else "unknown size"
        raise ToolError(
            f"{host} has no text there but {_PLAIN.sub('', answer.kind)[:60]}, {size}.", suggestion=ELSEWHERE
        )


def _wait(answer: Response) -> str:
    """Return what to do about a server's Retry-After: seconds, or a date (RFC 9110, 10.2.3)."""
    said = answer.retry_after.strip()
    if said.isdigit():
        return f"Do not ask again for {int(said)} s."
    try:
        return f"Do not ask again before {parsedate_to_datetime(said).isoformat()}."
    except (ValueError, OverflowError):
        return "Do not ask again for a while."
