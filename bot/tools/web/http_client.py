"""Fetches web pages. The HTTP library is imported, and certificates are read, for the first one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bot.guards.egress import Egress
from bot.guards.urls import Url
from bot.ports.tool import ItemError
from threads.store.disk import Offload


@dataclass(slots=True)
class Response:
    """What a server answered. ``data`` is decompressed; ``missing`` says why it is only the beginning, if it is.

    ``moved`` is the page's address if that is on another site: a call of its own, for rules and permissions go by
    address.
    """

    url: Url
    status: int = 0
    media_type: str = ""
    length: int | None = None
    retry_after: str = ""
    location: str = ""
    data: bytes | bytearray = b""
    missing: ItemError | None = None
    moved: Url | None = None

    @property
    def kind(self) -> str:
        """Return the media type without its parameters, or ""."""
        return self.media_type.partition(";")[0].strip().lower()

    @property
    def is_text(self) -> bool:
        """Return whether the beginning is of use without the end."""
        return self.kind.startswith("text/") or self.kind.endswith(
            ("html", "xml", "json", "yaml", "javascript")
        )


class HttpClient:
    def __init__(self, egress: Egress, offload: Offload, *, agent: str = "threadfast") -> None:
        self._egress, self._offload = egress, offload
        self._agent = f"{re.sub('[^A-Za-z0-9._-]+', '-', agent)[:40] or 'bot'} (chat bot; web_fetch)"
        self._get: Callable[[Url, float], Awaitable[Response]] | None = None

    async def get(self, url: str, deadline: float) -> Response:
        """See `bot.tools.web.get.get`."""
        checked = self._egress.check(url)
        if self._get is None:
            self._get = await self._offload(self._open)
        return await self._get(checked, deadline)

    def _open(self) -> Callable[[Url, float], Awaitable[Response]]:
        import httpx2  # noqa: PLC0415

        from . import get as pages  # noqa: PLC0415

        return partial(pages.get, self._egress, httpx2.create_ssl_context(), self._agent)
