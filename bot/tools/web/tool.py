"""The `web_fetch` tool: a web page as text, in parts."""

from __future__ import annotations

import glob
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import ClassVar, Literal

import anyio
from cachetools import LRUCache
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
from bot.ports.tool import Arguments, ItemError, ToolContext, ToolOutput
from threads.model import ThreadId
from threads.store.thread_files import Documents

from .http_client import HttpClient, Response

PART = 20_000
"""Characters of a page that are returned at once."""

MAX_TEXT = 1_000_000
"""Characters of one page that can be asked for."""

MAX_CACHED = 4_000_000
"""Characters of all the pages in the cache."""

AT_ONCE = 16
"""Pages fetched at once, for all threads: each may take 5 MB."""

LONGEST_S = 60.0
FETCH_SHARE = 0.75
"""Share of a call's time for the server; the rest is for reading the page."""

ORIGIN = "web page"
UNREADABLE = ("image/", "video/", "audio/", "font/", "model/")
ELSEWHERE = "Try another source."
_PLAIN = re.compile(r"[^a-z0-9/.+-].*", re.DOTALL)


class PageArguments(Arguments):
    url: str = Field(max_length=MAX_URL, description="Address of the page, http or https")

    def subject(self) -> str:
        """Return the address as it is requested, or as it is if it is refused."""
        try:
            return str(parse_url(self.url))
        except ToolDenied:
            return self.url

    def always(self) -> str:
        """Return a pattern for the whole site."""
        try:
            return f"{glob.escape(parse_url(self.url).origin)}/*"
        except ToolDenied:
            return glob.escape(self.url)


class FetchArguments(PageArguments):
    offset: int = Field(default=0, ge=0, description="Character to start at, as `next_offset` said")


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page as text; ``url`` is its address after redirects."""

    url: str
    title: str
    text: str
    errors: tuple[ItemError, ...] = ()


def _page_cache() -> LRUCache[ThreadId, tuple[Url, FetchedPage]]:
    """Return a cache of the last page of each thread, so that reading on in it fetches nothing."""
    return LRUCache(MAX_CACHED, getsizeof=lambda entry: len(entry[1].text))


@dataclass(frozen=True)
class WebFetch:
    http: HttpClient
    documents: Documents
    pages: LRUCache[ThreadId, tuple[Url, FetchedPage]] = field(default_factory=_page_cache)
    slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))
    name: ClassVar[str] = "web_fetch"
    description: ClassVar[str] = (
        f"Read a public web page or document as text, up to {PART} characters at a time. It fetches by GET, "
        "follows redirects within a site and names those to another in `moved_to`, and runs no scripts."
    )
    risk: ClassVar[Literal["net"]] = "net"
    arguments: ClassVar[type[Arguments]] = FetchArguments

    async def __call__(self, arguments: FetchArguments, context: ToolContext) -> JsonValue | ToolOutput:
        url = parse_url(arguments.url)
        cached_url, page = self.pages.get(context.thread, (None, None))
        if page is None or cached_url != url or not arguments.offset:
            fetched = await self._fetch(url, context)
            if isinstance(fetched, str):
                return ToolOutput(
                    {"url": str(url), "moved_to": fetched, "next": "Fetch that."}, origin=ORIGIN
                )
            page = fetched
            self.pages[context.thread] = url, page
        return _part(page, arguments.offset)

    async def _fetch(self, url: Url, context: ToolContext) -> FetchedPage | str:
        """Return the page, or where it moved to."""
        deadline = min(context.deadline, anyio.current_time() + LONGEST_S)
        with anyio.CancelScope(deadline=deadline):
            async with self._slot(deadline):
                now = anyio.current_time()
                response = await self.http.get(str(url), now + (deadline - now) * FETCH_SHARE)
                return str(response.moved) if response.moved else await self._read(response)
        raise ToolTimeout(f"{url.host} took too long.", suggestion=ELSEWHERE)

    @asynccontextmanager
    async def _slot(self, deadline: float) -> AsyncIterator[None]:
        """Wait for one of `AT_ONCE` slots, for half of the time at most."""
        with anyio.move_on_after((deadline - anyio.current_time()) / 2) as wait:
            await self.slots.acquire()
        if wait.cancelled_caught:
            raise ToolBusy("Too many pages are being read.", suggestion="Try again in a moment.")
        try:
            yield
        finally:
            self.slots.release()

    async def _read(self, answer: Response) -> FetchedPage:
        _check(answer)
        name = answer.url.target.partition("?")[0].rsplit("/", 1)[1]
        data, answer.data = bytes(answer.data), b""
        read = await self.documents.text_of(data, answer.media_type, name, site=True)
        address = str(answer.url)
        if not read.text:
            raise ToolError(
                f"The page at {answer.url.host} has no text to read: {read.problem or 'it is empty.'}",
                suggestion=ELSEWHERE,
            )
        long = f"only the first {MAX_TEXT} characters of it are kept." if len(read.text) > MAX_TEXT else ""
        errors = [ItemError(address, "unknown", why) for why in (read.problem, long) if why]
        if answer.missing:
            errors.append(answer.missing)
        return FetchedPage(address, read.title, read.text[:MAX_TEXT], tuple(errors))


def _part(page: FetchedPage, offset: int) -> ToolOutput:
    if offset and offset >= len(page.text):
        raise ToolInvalidInput(
            f"The page has {len(page.text)} characters.", suggestion="Give a smaller offset, or none."
        )
    end = offset + PART
    result: dict[str, JsonValue] = {"url": page.url, "title": page.title, "text": page.text[offset:end]}
    if end < len(page.text):
        result |= {"next_offset": end, "length": len(page.text)}
    return ToolOutput(result, page.errors, origin=ORIGIN)


def _check(answer: Response) -> None:
    """Raise the error for a response that is not a readable page."""
    host = answer.url.host
    if not 200 <= answer.status < 300:
        raise http_failure(host, answer.status, answer.retry_after)
    if answer.kind.startswith(UNREADABLE):
        size = f"{answer.length} bytes" if answer.length else "unknown size"
        raise ToolError(
            f"The page at {host} is not text but {_PLAIN.sub('', answer.kind)[:60]}, {size}.",
            suggestion=ELSEWHERE,
        )


def http_failure(host: str, status: int, retry_after: str = "") -> ToolError:
    """Return the error that an HTTP status is, which is no success."""
    match status:
        case 401 | 402 | 403 | 407 | 451:
            return ToolDenied(f"{host} does not let this page be read ({status}).", suggestion=ELSEWHERE)
        case 404 | 410:
            return ToolNotFound(f"{host} has no such page ({status}).", suggestion="Check the address.")
        case 429 | 503 if status == 429 or retry_after:
            said = _retry_suggestion(retry_after.strip())
            return ToolRateLimited(f"{host} limits requests ({status}).", suggestion=said)
        case _:
            return ToolError(f"{host} answered with {status}.", suggestion=ELSEWHERE)


def _retry_suggestion(after: str) -> str:
    """Return what to do about a server's Retry-After: seconds, or a date (RFC 9110, 10.2.3)."""
    if after.isdigit():
        return f"Do not ask again for {int(after)} s."
    try:
        return f"Do not ask again before {parsedate_to_datetime(after).isoformat()}."
    except (ValueError, OverflowError):
        return "Do not ask again for a while."
