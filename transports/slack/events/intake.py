"""Events, live or from a catch-up, on their way to the sink; nothing is acknowledged before it is durable.

A channel is followed from its first message, or from the moment when the bot joins it: Slack sends that event only
with scopes that the generated manifest does not ask for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import assert_never

import anyio
from anyio.abc import TaskGroup
from cachetools import FIFOCache
from pydantic import JsonValue

from threads.errors import StoreUnavailable
from threads.model import Feedback, Inbound, Incoming, Outcome, Sink, ThreadId, WallClock
from transports.shared.backfill.catch_up import ACTIVE_WITHIN_S, MOST_ACTIVE, CatchUp, Recent
from transports.shared.backfill.marks import Marks
from transports.shared.bot_loop_guard import BotLoopGuard
from transports.shared.live.background_calls import retry_cleanup
from transports.slack.api.json_fields import part, string
from transports.slack.api.platform_search import PlatformSearch
from transports.slack.api.socket_mode import Kind
from transports.slack.api.web_api import WebApi
from transports.slack.events.asked_message import AskedMessages
from transports.slack.events.catch_up import ChannelHistory
from transports.slack.events.lookups import NAMED_WITHIN_S, Lookups
from transports.slack.events.parse_action import ButtonPress, parse_action, parse_command
from transports.slack.events.parse_event import (
    EventsDropped,
    HomeOpened,
    Joined,
    Parsed,
    SessionRenamed,
    Signal,
    message_in,
    parse_event,
    said_at,
)
from transports.slack.events.parse_message import Me
from transports.slack.events.pressed_buttons import PressedButtons
from transports.slack.live.presence import Presence
from transports.slack.manifest import Features

log = logging.getLogger(__name__)


NOTHING_MORE = Features()

MOST_SAID = 1_000
"""Messages to the bot that are known to be taken: Slack tells of a mention twice, and again if it is in doubt."""


class Intake:
    """Takes the events of one workspace. *hear* gets each line of a thread, by its id, also what is not for the bot.

    ``url`` is the address of the workspace on the web.

    A missed message older than ``max_age_s`` is stale. Missed messages are not read before ``read_from`` on the clock
    of `anyio.current_time`.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        web: WebApi,
        me: Me,
        marks: Marks,
        sink: Sink,
        presence: Presence,
        lookups: Lookups,
        buttons: PressedButtons,
        hear: Callable[[ThreadId, str], None],
        *,
        recent: Recent,
        now: WallClock,
        max_age_s: float,
        read_from: float = 0.0,
        features: Features = NOTHING_MORE,
        url: str = "",
    ) -> None:
        self._buttons = buttons
        self._lookups, self._order = lookups, anyio.Lock(fast_acquire=True)
        self._tasks, self._me, self._marks, self._sink = tasks, me, marks, sink
        self._presence, self._recent, self._hear = presence, recent, hear
        self._loop_guard = BotLoopGuard(me.bots)
        self._said: FIFOCache[str, anyio.Event] = FIFOCache(MOST_SAID)
        self.search, self._searches = PlatformSearch(web), features.search
        self._asked = AskedMessages(web, me, lookups, features, url, presence, self._deliver)
        history = ChannelHistory(
            web,
            marks,
            me,
            self._lookups,
            self._deliver,
            active_threads=self._active_threads,
            now=now,
            max_age_s=max_age_s,
            not_before=read_from,
        )
        self._catch_up = CatchUp(marks, history)
        marks.on_take_over, marks.on_store_back = self._close_gaps, self._catch_up.hurry

    def missed(self) -> None:
        """Note that messages may have been missed: no mark passes them from now on. Begin to read them."""
        self._catch_up.missed()
        self._close_gaps()

    async def take(self, kind: Kind, body: Mapping[str, JsonValue]) -> None:
        """Take one payload; when this returns, it is durable. Raises `StoreUnavailable`."""
        match kind:
            case "event":
                await self._event(body)
            case "action":
                await self._action(body)
            case "command":
                if incoming := parse_command(dict(body), self._me):
                    await self._deliver(incoming)
            case "shortcut":
                await self._asked.by_shortcut(body)
            case "other":
                log.info("intake.ignored: a payload of a kind that is not used")
            case _:
                assert_never(kind)

    async def _event(self, body: Mapping[str, JsonValue]) -> None:
        event = part(body, "event")
        if self._searches:
            self.search.note(event)
        if string(event, "type") == "reaction_added":
            await self._asked.by_reaction(event)
            return
        place = said_at(event)
        while (taking := self._said.get(place)) and not taking.is_set():
            await taking.wait()
        if not taking:
            await self._take_parsed(body, place)

    async def _take_parsed(self, body: Mapping[str, JsonValue], place: str) -> None:
        """Take an event. Others of a message to the bot wait until it is durable, or is not taken after all."""
        parsed = parse_event(dict(body), self._me, self._lookups.known)
        if parsed.odd:
            log.info("intake.ignored: nothing to do with %s", parsed.odd)
        for signal in parsed.signals:
            self._apply(signal)
        if parsed.line:
            self._hear(*parsed.line)
        if parsed.moved and self._marks.begins_late(*parsed.moved):
            self._close_gaps()
        taking = anyio.Event()
        # Of what is only overheard another event may tell that it is to the bot.
        if place and any(isinstance(one, Incoming) and one.via != "overheard" for one in parsed.inbound):
            self._said[place] = taking
        try:
            with self._marks.taking(*parsed.moved) if parsed.moved else nullcontext():
                await self._marks.note()  # or the next message there would be missed after a kill
                for event in await self._explained(body, parsed):
                    await self._deliver(event)
        except BaseException as error:
            self._said.pop(place, None)
            if isinstance(error, StoreUnavailable):
                self._close_gaps()
            raise
        finally:
            taking.set()

    async def _explained(self, body: Mapping[str, JsonValue], parsed: Parsed) -> Sequence[Inbound]:
        """Return what an event says, with the names that it leaves out, and in the order in which events came."""
        if not parsed.inbound:
            return ()
        async with self._order:
            learned = await self._lookups.explain([message_in(body)], NAMED_WITHIN_S)
        return parse_event(dict(body), self._me, self._lookups.known).inbound if learned else parsed.inbound

    async def _action(self, body: Mapping[str, JsonValue]) -> None:
        match parse_action(dict(body), self._me):
            case ButtonPress() as press:
                if await self._buttons.hand_over(press, press.click, self._deliver):
                    retire = partial(self._buttons.retire, press)
                    self._presence.soon(partial(retry_cleanup, retire, press.incoming.thread))
            case Feedback() as feedback:
                await self._deliver(feedback)
                self._presence.soon(partial(self._buttons.thank, feedback))
            case None:
                log.info("intake.ignored: a button that is not ours")

    async def _deliver(self, event: Inbound) -> Outcome | None:
        admitted = not isinstance(event, Incoming) or self._loop_guard.admits(event)
        return await self._sink(event) if admitted else None

    def _close_gaps(self) -> None:
        self._tasks.start_soon(partial(self._catch_up.run, gap=False))

    async def _active_threads(self) -> dict[str, list[str]]:
        active: dict[str, list[str]] = {}
        for thread in await self._recent(ACTIVE_WITHIN_S, MOST_ACTIVE):
            active.setdefault(thread.channel, []).append(thread.root)
        return active

    def _apply(self, signal: Signal) -> None:
        match signal:
            case SessionRenamed(thread):
                self._presence.renamed(thread)
            case HomeOpened(channel=channel):
                self._presence.soon(partial(self._presence.home_opened, channel))
            case Joined(channel=channel, at=at):
                # It may be late, after messages whose events got lost.
                self._marks.joined(channel, at or self._marks.clock())
                self._close_gaps()
            case EventsDropped():
                log.error(
                    "slack.dropping: Slack drops events of this workspace, which had more than 30,000 in an hour"
                )
                self.missed()
            case _:
                assert_never(signal)
