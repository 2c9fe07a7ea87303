"""The way to web pages, which costs nothing until the first one is asked for."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from bot.guards.egress import Egress
from bot.guards.urls import Url
from threads.store.disk import Offload

from .response import Response

if TYPE_CHECKING:
    import ssl


class HttpClient:
    """Fetches pages. What it needs is imported, and the certificates are read, at the first one."""

    def __init__(
        self,
        egress: Egress,
        offload: Offload,
        *,
        agent: str = "threadfast",
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._egress, self._offload, self._tls = egress, offload, tls
        self._agent = f"{re.sub('[^A-Za-z0-9._-]+', '-', agent)[:40] or 'bot'} (chat bot; web_fetch)"
        self._get: Callable[[Url, float], Awaitable[Response]] | None = None

    async def get(self, url: str, deadline: float) -> Response:
        """See `bot.tools.web.get.get`."""
        checked = self._egress.check(url)
        if self._get is None:
            self._get = await self._offload(self._open)
        return await self._get(checked, deadline)

    def _open(self) -> Callable[[Url, float], Awaitable[Response]]:
        import httpcore2  # noqa: PLC0415

        from . import get as pages  # noqa: PLC0415

        tls = (self._tls or httpcore2.default_ssl_context)()
        return partial(pages.get, self._egress, tls, self._agent)
