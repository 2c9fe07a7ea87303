"""Messages to the operators, in the channel that the settings name.

| what happened                                      | posted                                                    |
|----------------------------------------------------|-----------------------------------------------------------|
| no model could answer a message                    | once in `AGAIN_AFTER_S` for a kind of failure             |
| a provider declined, if the settings want it told  | once in `AGAIN_AFTER_S` for a thread                      |
| a transport went, came back, or stopped for good   | as `bot.wiring.outages` says                              |
| a changed settings.json does not count             | once for each other list of faults                        |

Of several workers that noticed the same, one posts it. A post about a message has its reference and a link to its
thread, never its words. All of it is in the log and the audit too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup
from cachetools import TTLCache

from bot import wording
from bot.config.settings import Escalation as Settings
from bot.host.storage import Claim, always
from bot.observe.live_parts import TransportLink
from bot.ports.errors import AllProvidersFailed, ContentPolicy, ModelDeclined
from bot.ports.status import UP
from bot.wiring.outages import AGAIN_AFTER_S, News, Outages
from threads.errors import PostFailed, error_fields
from threads.model import Outgoing, ThreadId, WallClock
from threads.wording import first_cause

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two checks of the transports."""

FAILED_S = 60.0
"""Seconds until a report that could not be posted is tried again. The post itself was tried several times."""

REMEMBERED = 1_000
"""Kinds of failures, and threads, that are remembered as reported."""


class Escalation:
    """Posts to ``settings.channel`` ("transport:workspace:channel"). Does nothing if that is None.

    ``link`` returns the web address of a thread, blank if it has none.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        settings: Settings,
        post: Callable[[Outgoing], Awaitable[str]],
        link: Callable[[ThreadId], str],
        now: WallClock,
        claim: Claim = always,
    ) -> None:
        self._claim = claim
        self._tasks, self._settings, self._post, self._link, self._now = tasks, settings, post, link, now
        self._thread = ThreadId.parse(f"{settings.channel}:") if settings.channel else None
        self._reported = TTLCache[str, bool](REMEMBERED, AGAIN_AFTER_S, timer=anyio.current_time)
        self._outages = Outages()
        self._reporting: set[str] = set()

    def failed(self, error: Exception, thread: ThreadId, reference: str) -> None:
        """Report why a turn failed. Returns at once."""
        kind: str
        match first_cause(error):
            case ModelDeclined():
                return  # the person who asked decided that
            case AllProvidersFailed(chain=chain) as cause:
                what, kind = wording.escalated([wording.because(m, e.code) for m, e in chain]), cause.code
            case ContentPolicy() if self._settings.content_policy:
                what, kind = wording.DECLINED_BY_PROVIDER, f"content_policy:{thread}"
            case _:
                return
        if self._thread is None or kind in self._reported:
            return
        self._reported[kind] = True
        link = self._link(thread)
        where = wording.where(link or str(thread), reference)
        self._tasks.start_soon(self._send, reference, f"{what} {where}", kind, (link,) if link else ())

    def report(self, text: str) -> None:
        """Report something about the bot itself. Returns at once."""
        if self._thread is not None:
            key = f"report:{self._now().isoformat(timespec='milliseconds')}"
            self._tasks.start_soon(self._send, key, text)

    def stopped(self, transport: str, fault: str) -> None:
        """Report that a transport has stopped until a person acts."""
        self._outages.stopped(transport, fault)

    async def watch(self, transports: Sequence[TransportLink]) -> None:
        """Report transports that go and come back, until cancelled."""
        if self._thread is None:
            return
        healthy = next((edge for edge in transports if edge.name == self._thread.transport), None)
        while True:
            at, now = self._now(), anyio.current_time()
            for edge in transports:
                self._outages.see(edge.name, edge.state, at, now)
            for news in self._outages.news(now) if healthy and healthy.state in UP else ():
                if news.transport not in self._reporting:
                    self._reporting.add(news.transport)
                    key = f"{news.transport}:{at.isoformat(timespec='seconds')}"
                    self._tasks.start_soon(self._tell, key, news)
            await anyio.sleep(LOOK_S)

    async def _tell(self, key: str, news: News) -> None:
        kind = news.text if news.fault else f"{news.transport} is {'back' if news.back else 'down'}"
        if await self._send(key, news.text, kind):
            self._outages.told(news, anyio.current_time())
        else:
            await anyio.sleep(FAILED_S)
        self._reporting.discard(news.transport)

    async def _send(self, what: str, text: str, kind: str = "", links: tuple[str, ...] = ()) -> bool:
        """Post the text, unless another worker has reported the *kind*. Returns False if another try may work."""
        assert self._thread is not None
        if kind and not await self._claim(kind, AGAIN_AFTER_S):
            return True
        try:
            await self._post(Outgoing(self._thread, f"escalation:{what}", text, "notice", links=links))
        except PostFailed as error:
            log.warning("escalation.failed: not posted: %s", error, extra=error_fields(error))
            return not error.retryable
        return True
