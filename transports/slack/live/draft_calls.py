"""The calls of one draft: after everything urgent in the workspace, and none once the draft is over.

A call that waits for its turn can be cancelled. A call that is being made cannot, and is waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed
from transports.slack.api.web_api import WebApi

NEW_MESSAGE_METHODS = frozenset({"chat.postMessage", "chat.startStream"})

END_WITHIN_S = 10.0
"""How long the end of a draft waits for a call that is being made; after that its result is unknown."""


class DraftCalls:
    def __init__(self, web: WebApi) -> None:
        self.over = False
        self.lost = False
        """Whether Slack may show a message whose ts is unknown."""
        self._web = web
        self._scope = anyio.CancelScope()
        self._calling = False
        self._finished: anyio.Event | None = None

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run *work*, which makes its calls through here, until it is done or the draft is over."""
        self._finished = anyio.Event()
        try:
            with self._scope:
                await work()
        finally:
            self._finished.set()

    async def end(self) -> None:
        """Make no further call; return when none is being made."""
        self.over = True
        self._scope.deadline = anyio.current_time() + (END_WITHIN_S if self._calling else 0)
        if self._finished:
            await self._finished.wait()

    async def call(self, method: str, channel: str, **arguments: JsonValue) -> Mapping[str, JsonValue]:
        """Make the call when it is its turn. Raises as `WebApi.call`."""
        await self._web.limits.take(method, channel, urgent=False)
        return await self._ask(method, channel, arguments)

    async def try_call(
        self, method: str, channel: str, **arguments: JsonValue
    ) -> Mapping[str, JsonValue] | None:
        """Make the call if the rate limit has a spare one, else return None. Raises as `WebApi.call`."""
        await anyio.lowlevel.checkpoint()  # the draft may be over
        if not await self._web.limits.try_take(method, channel):
            return None
        return await self._ask(method, channel, arguments)

    async def _ask(
        self, method: str, channel: str, arguments: Mapping[str, JsonValue]
    ) -> Mapping[str, JsonValue]:
        await anyio.lowlevel.checkpoint_if_cancelled()  # or the call would go out and its answer be lost
        self._calling, may_be_lost = True, method in NEW_MESSAGE_METHODS
        try:
            answer = await self._web.ask(method, channel=channel, **arguments)
            may_be_lost = False
        except PostFailed as error:
            may_be_lost = may_be_lost and error.maybe_posted
            raise
        else:
            return answer
        finally:
            self.lost = self.lost or may_be_lost
            self._calling = False
            if self.over:
                self._scope.cancel()
