"""The bot's account at Discord's REST API, through which every call goes.

It lives as long as the transport, so its rate limits outlive the gateway's. The library waits for buckets, sleeps
through 429, and retries 500, 502, 504 and 524 (five times, 25 s in all), but not 503 or a cut connection. Each call
runs to its end, whoever waits (`UncancelledCalls`), and fails with one of our errors. None of them is chained: the
library's errors hold the request with its token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn, TypeVar

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportRateLimited, TransportUnavailable
from transports.discord.api.api_errors import FROM_OUTSIDE, Banned, DiscordRefused, bad_token, explain
from transports.discord.api.invalid_requests import InvalidRequests
from transports.discord.api.payloads import Count, uncounted
from transports.discord.api.sdk import Client, InteractionCalls
from transports.discord.api.uncancelled_calls import UncancelledCalls
from transports.discord.api.values import Me

log = logging.getLogger(__name__)

T = TypeVar("T")

URGENT_WITHIN_S, COSMETIC_WITHIN_S = 40.0, 15.0
"""An urgent call has time for all of the library's retries."""
LOGIN_WITHIN_S = 60.0
CLOSE_WITHIN_S = 3.0
CROWDED_S = 1.0

GLOBAL_PER_S, GLOBAL_BURST = 35.0, 10.0
"""A bot may make 50 calls in any second (docs.discord.com, "Rate Limits"), whichever of its processes makes them.

Logging in is not counted here.
"""

TakeGlobal = Callable[[], Awaitable[float]]
"""Takes one of the calls that all processes may make, and returns the seconds until it may be made."""


class BotAccount:
    """``me`` is set by `login`; the gateway shares ``invalid_requests``.

    Other processes may make calls for the same bot; then ``take_global`` counts them together, and
    ``ensure_ownership`` is awaited right before each post or edit.
    """

    me: Me
    take_global: TakeGlobal | None = None
    ensure_ownership: Callable[[], Awaitable[None]] | None = None
    count_unread: Count = staticmethod(uncounted)

    def __init__(self, api_url: str, token: str, tasks: TaskGroup) -> None:
        self._api_url, self._token = api_url, token
        self.invalid_requests = InvalidRequests()
        self._interaction_calls = InteractionCalls(api_url)
        self._calls = UncancelledCalls(tasks, self._explained)
        self._client: Client | None = None
        self._token_refused = anyio.Event()

    @property
    def trouble(self) -> str:
        """Why calls are held back now, for operators; blank if they are not."""
        return self.invalid_requests.trouble(anyio.current_time())

    async def login(self) -> Me:
        """Log in, and return who the token belongs to. Raises `TransportFatal` for a bad token, else as a call."""
        self._admit("login", urgent=True)
        client = Client(self._api_url, self._api_url, self.invalid_requests)
        work = partial(client.login, self._token)
        try:
            await self._calls.make("login", work, within=LOGIN_WITHIN_S)
        except BaseException as error:
            await _close(client)
            if isinstance(error, DiscordRefused) and error.kind == "token":
                raise bad_token() from None
            raise
        if self._client:
            await _close(self._client)
        self._client = client
        assert client.user
        self.me = Me(str(client.user.id), client.user.name, str(client.application_id))
        return self.me

    async def until_refused(self) -> NoReturn:
        """Wait until Discord does not accept the token any more, then raise `TransportFatal`."""
        await self._token_refused.wait()
        raise bad_token()

    @property
    def _library(self) -> Client:
        if self._client is None:
            raise TransportUnavailable("not logged in to Discord yet")
        return self._client

    async def _ask(
        self,
        call: str,
        work: Callable[[], Awaitable[T]],
        *,
        line: str = "",
        urgent: bool = True,
        within: float | None = None,
        posts: bool = False,
        opens: bool = False,
    ) -> T:
        self._admit(call, urgent=urgent)
        if self.take_global:
            await anyio.sleep(await self.take_global())
        if (posts or call == "edit") and self.ensure_ownership:
            await self.ensure_ownership()
        within = within or (URGENT_WITHIN_S if urgent else COSMETIC_WITHIN_S)
        return await self._calls.make(
            call, work, line=line, urgent=urgent, within=within, posts=posts, opens=opens
        )

    def _admit(self, call: str, *, urgent: bool) -> None:
        """Raise `TransportRateLimited` for a call that would do harm, or that has no room."""
        if wait := self.invalid_requests.wait(anyio.current_time(), urgent=urgent):
            raise TransportRateLimited(f"{call}: held back: {self.trouble}", retry_after=wait)
        if not urgent and self._calls.full:
            raise TransportRateLimited(f"{call}: too much is under way", retry_after=CROWDED_S)

    def _explained(self, call: str, error: Exception, sent: bool) -> PostFailed:
        """Return our error for the library's, and note what it means for other calls."""
        if isinstance(error, PostFailed):
            return error
        if not isinstance(error, FROM_OUTSIDE):
            log.error("platform.broke: %s: the call broke on our side", call, exc_info=error)
        failed = explain(call, error, maybe_posted=sent and call == "send")
        match failed:
            case Banned():
                failed.retry_after = self.invalid_requests.banned(anyio.current_time())
                log.error("platform.paused: %s: nothing is asked for %.0f s", failed, failed.retry_after)
            case DiscordRefused(kind="token"):
                self._token_refused.set()
            case _:
                pass
        return failed

    async def close(self) -> None:
        """Let open calls end, and close the connections."""
        with anyio.CancelScope(shield=True):
            await self._calls.close(CLOSE_WITHIN_S)
            if self._client:
                await _close(self._client)


async def _close(client: Client) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_WITHIN_S):
        await client.close()
