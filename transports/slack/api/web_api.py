"""Calls of Slack's Web API: within the rate limits, and with our own errors.

The SDK encodes and sends. It never retries (its default makes two posts out of a lost answer) and never sleeps. Its
exceptions and aiohttp's hold the request with its token, so none of them is chained.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import aiohttp
import anyio
from pydantic import JsonValue
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from yarl import URL

from threads.errors import PostFailed, TransportFatal, TransportRateLimited, TransportUnavailable
from transports.shared.link.proxy import own_origin, proxy_for
from transports.slack.api.api_errors import SlackRefused, explain, may_create_post, needs_a_person
from transports.slack.api.http_session import open_session, trusted
from transports.slack.api.json_fields import string
from transports.slack.api.rate_limits import RateLimits

log = logging.getLogger(__name__)

GETS = frozenset((
    "conversations.history", "conversations.info", "conversations.replies", "files.info",
    "usergroups.list", "users.conversations", "users.info",
))  # fmt: skip
AS_JSON = ("agents.", "assistant.", "chat.")
"""These go as JSON, except ``chat.delete``; the rest as parameters, like the SDK's own methods: a server that is not
Slack may know only those forms."""

NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
"""Errors from before the request went out."""

FROM_OUTSIDE = (aiohttp.ClientError, OSError, SlackClientError)
"""Errors that are not bugs of ours; a TimeoutError is an OSError."""

MAX_LOGGED = 200
"""Refusals of live calls that are logged, by method and code."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot in its workspace: ``team``, ``user`` and ``bot_id`` are ids, ``name`` is the user's.

    ``url`` is the workspace's address on the web, with a slash at its end.
    """

    team: str
    user: str
    name: str
    bot_id: str
    scopes: frozenset[str]
    url: str = ""


class WebApi:
    """Slack's Web API with one bot token. ``client`` is for the socket, ``session`` for files only."""

    def __init__(self, client: AsyncWebClient, session: aiohttp.ClientSession, limits: RateLimits) -> None:
        self.client, self.session, self.limits = client, session, limits
        self._logged: set[tuple[str, str]] = set()
        self._refused: SlackRefused | None = None
        self._token_refused = anyio.Event()

    async def call(
        self, method: str, *, channel: str = "", urgent: bool = True, **arguments: JsonValue
    ) -> Mapping[str, JsonValue]:
        """Call *method* within the limits and return Slack's answer. Arguments that are None are left out.

        Raises `SlackRefused`, `TransportRateLimited`, `TransportUnavailable`, and no other `Exception`.
        """
        await self.limits.take(method, channel, urgent=urgent)
        return await self.ask(method, **_in_channel(channel, arguments))

    async def try_call(
        self, method: str, *, channel: str = "", **arguments: JsonValue
    ) -> Mapping[str, JsonValue] | None:
        """Call *method* if the limits have a spare call. Returns None if the call was not made or failed."""
        if not await self.limits.try_take(method, channel):
            return None
        try:
            return await self.ask(method, **_in_channel(channel, arguments))
        except SlackRefused as refused:
            self._log_once(refused)
        except PostFailed as error:
            log.debug("live.call_failed: %s", error)
        return None

    async def ask(self, method: str, **arguments: JsonValue) -> Mapping[str, JsonValue]:
        """Call *method* now, when `limits` has granted it already; else as `call`."""
        return _answer(method, await self._send(method, arguments))

    async def respond(self, url: str, content: Mapping[str, JsonValue]) -> None:
        """Answer a press or a slash command, to its person alone, at the address that came with it.

        Raises `TransportUnavailable`, and `SlackRefused` for an address that is not Slack's or takes nothing.
        """
        if not trusted(URL(url), own_origin(self.client.base_url)):
            raise SlackRefused("response_url", "untrusted_address")
        reply = {**content, "response_type": "ephemeral", "replace_original": False}
        body = {name: value for name, value in reply.items() if value is not None}
        try:
            async with self.session.post(
                url, json=body, allow_redirects=False, proxy=proxy_for(url)
            ) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportUnavailable(f"response_url: {type(error).__name__}") from None
        if status >= 500:
            raise TransportUnavailable(f"response_url: HTTP {status}")
        if status != 200:
            raise SlackRefused("response_url", f"http_{status}")

    async def identity(self) -> Identity:
        """Ask who the token belongs to. Raises `TransportFatal` for a bad one, else as `call`."""
        await self.limits.take("auth.test")
        try:
            response = await self._send("auth.test", {})
            answer = _answer("auth.test", response)
        except SlackRefused as refused:
            if needs_a_person(refused):
                raise _fatal(refused) from None
            raise
        team, user, name, bot_id = (
            string(answer, field) for field in ("team_id", "user_id", "user", "bot_id")
        )
        if not user:
            raise TransportUnavailable("auth.test: the answer names no user")
        names = response.headers.get("x-oauth-scopes", "").split(",")
        scopes = frozenset(filter(None, map(str.strip, names)))
        return Identity(team or "workspace", user, name, bot_id, scopes, string(answer, "url"))

    async def ping(self) -> None:
        """Ask for a sign of life. Raises `PostFailed`."""
        await self.ask("api.test")

    async def until_refused(self) -> NoReturn:
        """Wait until Slack does not accept the bot token any more, then raise `TransportFatal`."""
        await self._token_refused.wait()
        assert self._refused is not None
        raise _fatal(self._refused)

    async def _send(self, method: str, arguments: Mapping[str, JsonValue]) -> AsyncSlackResponse:
        failed: PostFailed
        try:
            return await self._api_call(method, {k: v for k, v in arguments.items() if v is not None})
        except SlackApiError as error:
            failed = explained(method, error)
        except Exception as error:  # the boundary of a transport: whatever broke, the call failed
            if not isinstance(error, FROM_OUTSIDE):
                log.exception("platform.broke: %s: the call broke on our side", method)
            sent = not isinstance(error, NEVER_SENT)
            failed = TransportUnavailable(
                f"{method}: {type(error).__name__}", maybe_posted=sent and may_create_post(method)
            )
        self._note(failed, method, arguments)
        raise failed  # outside the handler, so that the error with the token is not its context

    async def _api_call(self, method: str, arguments: dict[str, JsonValue]) -> AsyncSlackResponse:
        verb = "GET" if method in GETS else "POST"
        if verb == "POST" and method != "chat.delete" and method.startswith(AS_JSON):
            return await self.client.api_call(method, json=arguments)
        params = {name: _parameter(value) for name, value in arguments.items()}
        return await self.client.api_call(method, http_verb=verb, params=params)

    def _note(self, failed: PostFailed, method: str, arguments: Mapping[str, JsonValue]) -> None:
        match failed:
            case TransportRateLimited(retry_after=float(seconds)):
                channel = arguments.get("channel")
                self.limits.pause(method, seconds, channel if isinstance(channel, str) else "")
                log.warning("platform.paused: %s, for %.0f s", failed, seconds)
            case SlackRefused(kind="token"):
                self._refused = failed
                self._token_refused.set()
            case _:
                pass

    def _log_once(self, refused: SlackRefused) -> None:
        if (seen := (refused.method, refused.error)) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(seen)
            log.warning("live.refused: Slack refused a live call, which is said once: %s", refused)


@asynccontextmanager
async def open_web(
    base_url: str | None, token: str, limits: RateLimits | None = None
) -> AsyncIterator[WebApi]:
    """Open the Web API at *base_url* (Slack's own if None) for the bot *token*."""
    base_url = base_url or AsyncWebClient.BASE_URL
    quiet = logging.getLogger(f"{__name__}.sdk")
    quiet.setLevel(logging.WARNING)  # at DEBUG the SDK logs what people say and the tickets of sockets
    async with open_session(base_url) as session:
        client = AsyncWebClient(
            token=token, base_url=base_url, session=session, retry_handlers=[], logger=quiet
        )
        client.proxy = proxy_for(base_url)
        yield WebApi(client, session, limits or RateLimits())


def explained(method: str, error: SlackApiError) -> PostFailed:
    """Return our error for the SDK's; the caller does not chain it."""
    match error.response:
        case AsyncSlackResponse(status_code=status, headers=headers, data=body):
            return explain(method, status, headers, body if isinstance(body, dict) else None)
        case aiohttp.ClientResponse(status=status, headers=headers):  # its body was no JSON
            return explain(method, status, headers, None)
        case _:
            return explain(method, 0, {}, None)


def _answer(method: str, response: AsyncSlackResponse) -> Mapping[str, JsonValue]:
    if isinstance(response.data, dict):
        return response.data
    raise explain(method, response.status_code, {}, None)


def _in_channel(channel: str, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return arguments | {"channel": channel} if channel else arguments


def _parameter(value: JsonValue) -> JsonValue:
    """Return *value* as a query parameter; the SDK converts booleans."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _fatal(refused: SlackRefused) -> TransportFatal:
    return TransportFatal(f"Slack does not accept the bot token: {refused}")
