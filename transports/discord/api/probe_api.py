"""REST calls for checks, each made once: the library would sleep through limits and retry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import aiohttp
import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from transports.shared.checks import WITHIN_S, describe_failure
from transports.shared.link.proxy import proxy_for
from transports.shared.retry import retry_seconds

MOST_BYTES = 2_000_000


class BadToken(TransportRejected):
    """401: Discord does not know the token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer: its JSON, or None, and its Date header."""

    body: JsonValue
    date: str | None

    @property
    def fields(self) -> Mapping[str, JsonValue]:
        return self.body if isinstance(self.body, dict) else {}


class Api:
    def __init__(self, session: aiohttp.ClientSession, base: str, token: str) -> None:
        self._session, self._base, self._token = session, base.rstrip("/"), token.strip()

    async def ask(
        self, path: str, method: Literal["GET", "POST", "DELETE"] = "GET", json: JsonValue = None
    ) -> Answer | PostFailed:
        """Make one call. Every failure comes back; nothing is raised but a cancellation."""
        headers = {
            "Authorization": f"Bot {self._token}",
            "User-Agent": f"DiscordBot (threadfast, {version('threadfast')})",
        }
        url = self._base + path
        try:
            with anyio.fail_after(WITHIN_S):
                async with self._session.request(
                    method,
                    url,
                    json=json,
                    headers=headers,
                    proxy=proxy_for(url),
                    allow_redirects=False,
                ) as answer:
                    body = b""
                    while not answer.content.at_eof() and len(body) < MOST_BYTES:
                        body += await answer.content.read(MOST_BYTES)
        except TimeoutError:
            return TransportUnavailable(f"{method} {path}: no answer within {WITHIN_S:.0f} s")
        except Exception as error:  # noqa: BLE001  the boundary of a check: every failure is a finding
            return TransportUnavailable(f"{method} {path}: {describe_failure(error)}")
        return _read(f"{method} {path}", answer, body)


def _read(call: str, answer: aiohttp.ClientResponse, body: bytes) -> Answer | PostFailed:
    try:
        content: JsonValue = json.loads(body) if body else None
    except ValueError:
        content = None
    fields = content if isinstance(content, dict) else {}
    match answer.status:
        case 200 | 204 if content is not None or answer.status == 204:
            return Answer(content, answer.headers.get("Date"))
        case 429 if "Via" not in answer.headers or not fields:
            return TransportUnavailable(
                f"{call}: Cloudflare has shut out this address for too many bad calls"
            )
        case 429:
            wait = fields.get("retry_after", answer.headers.get("Retry-After"))
            return TransportRateLimited(f"{call}: rate limited", retry_after=retry_seconds(str(wait)))
        case 401:
            return BadToken("Discord does not know this token")
        case 400 | 403 | 404 if fields:
            return TransportRejected(f"{call}: {fields.get('message')} ({fields.get('code')})")
        case status:
            return TransportUnavailable(f"{call}: status {status} and no answer of Discord's")
