"""What operators read about transports that are down: each outage once, each recovery once, no flapping. Pure.

| a transport is         | and is seen                            | it is then                    |
|------------------------|----------------------------------------|-------------------------------|
| up                     | disconnected                           | down                          |
| down                   | connected                              | back                          |
| back, for `STEADY_S`   | disconnected                           | down, for one outage more     |
| back, for less         | anything but connected                 | down: it is the same outage   |
| any                    | stopped by what only a person can fix  | stopped                       |

| a transport is         | what there is to tell                  | when it was told              |
|------------------------|----------------------------------------|-------------------------------|
| down                   | that it is down, once                  | the next is `AGAIN_AFTER_S` off |
| back, for `STEADY_S`   | that it is back                        | it is up                      |
| the same, never told of | both in one line, no sooner than a going | it is up; as for a going  |
| stopped                | that it is, and why                    | nothing more                  |

News that cannot be posted wait: if the channel was down too, people read afterwards how long the transport was down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bot import wording
from bot.ports.status import UP

STEADY_S = 5.0
"""Seconds: a link that was up for less has not come back. The supervisor counts it as failed as well."""

AGAIN_AFTER_S = 600.0
"""Seconds between two reports of outages of the same transport."""


@dataclass(slots=True)
class _Outage:
    """``count`` outages. The first began at ``since`` and the last at ``last``. They ended at ``until``, or go on."""

    since: datetime
    last: datetime
    until: datetime | None = None
    count: int = 1
    up_at: float = 0.0
    told: bool = False

    def steady(self, now: float) -> bool:
        return self.until is not None and now - self.up_at >= STEADY_S


@dataclass(slots=True)
class _Link:
    name: str
    state: str = ""
    fault: str = ""
    outage: _Outage | None = None
    quiet_until: float = -math.inf

    def see(self, state: str, at: datetime, now: float) -> None:
        self.state, outage = state, self.outage
        if outage is None:
            self.outage = _Outage(at, at) if state == "disconnected" else None
        elif state in UP:
            if outage.until is None:
                outage.until, outage.up_at = at, now
        elif outage.until is not None and not outage.steady(now):
            outage.until = None
        elif outage.until is not None and state == "disconnected":
            outage.until, outage.last, outage.count = None, at, outage.count + 1

    def text(self, now: float) -> str:
        """Return the text of the report, blank if there is none."""
        outage = self.outage
        if self.fault:
            return wording.transport_stopped(self.name, self.fault)
        if outage is None or (not outage.told and now < self.quiet_until):
            return ""
        if outage.until is None:
            return "" if outage.told else wording.transport_down(self.name, outage.since)
        if self.state not in UP or not outage.steady(now):
            return ""
        return wording.transport_back(self.name, outage.since, outage.until, outage.count, told=outage.told)

    def told(self, news: News, now: float) -> None:
        """Note that it was reported, or cannot be. The transport may have changed again meanwhile."""
        outage = self.outage
        if news.fault:
            self.fault = ""
        elif outage is not None:
            if not outage.told:
                self.quiet_until = now + AGAIN_AFTER_S
            outage.told = True
            if news.back:
                self.outage = _Outage(outage.last, outage.last) if outage.until is None else None


@dataclass(frozen=True, slots=True)
class News:
    """A report about a transport. ``back``: it is connected again. ``fault``: a person has to act."""

    transport: str
    text: str
    back: bool
    fault: bool


@dataclass(slots=True)
class Outages:
    """The transports of one bot, by name. Times are seconds of one clock, except those that people read."""

    _links: dict[str, _Link] = field(default_factory=dict)

    def see(self, name: str, state: str, at: datetime, now: float) -> None:
        """Note the state of a transport at the time *at*."""
        self._link(name).see(state, at, now)

    def stopped(self, name: str, fault: str) -> None:
        """Note that a transport has stopped until a person acts."""
        self._link(name).fault = fault

    def news(self, now: float) -> Iterator[News]:
        """Return the reports, at most one for each transport."""
        for link in self._links.values():
            if text := link.text(now):
                back = link.outage is not None and link.outage.until is not None
                yield News(link.name, text, back, bool(link.fault))

    def told(self, news: News, now: float) -> None:
        """Note that it was reported, or cannot be."""
        self._link(news.transport).told(news, now)

    def _link(self, name: str) -> _Link:
        return self._links.setdefault(name, _Link(name))
