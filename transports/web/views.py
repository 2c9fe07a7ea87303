"""The requests of these pages. Whoever mounts them lets only admins in.

| path                | what it shows                                                         |
|---------------------|-----------------------------------------------------------------------|
| /                   | what `status` knows: links, queue, circuits, money now, what waits     |
| /events             | the running bot's events, as server-sent events                        |
| /threads            | the threads of all platforms, newest first                             |
| /thread?id=         | one thread: its transcript, its files, and what waits there            |
| /why?message=       | what happened to a message, on a timeline                              |
| /money              | what was spent, by day, model, person and thread, against the limits   |
| /models             | retries, failovers, failures and open circuits over time               |
| /audit              | who decided what, and what the bot did by itself                       |
| /dead-letters       | messages that were set aside                                           |
| /chart/NAME.svg     | the charts of these pages                                              |

All of it is read from the store, as the commands read it. A page holds a bounded number of rows and says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, TypeVar, TypeVarTuple, get_args

import anyio.to_thread
import jinja2
from cachetools import TTLCache
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bot.budget.accounts import spent_on
from bot.budget.budgets import Policy
from bot.observe.audit import AuditKind, AuditRecord
from bot.observe.event_stream import EventStream
from bot.page import charts
from bot.page.templating import HERE, templates
from bot.page.usage_charts import usage_chart
from bot.ports.status import Status
from bot.reports.audit_trail import Filter, describe, read_audit
from bot.reports.budget_state import budgets
from bot.reports.dead_letters import dead_letters
from bot.reports.line_reader import Damage
from bot.reports.message_story import stories
from bot.reports.thread import Summary, entries, summary, tools_used, waiting
from bot.reports.transcript import Transcript, pieces
from bot.reports.usage import By, Report, period, reports
from bot.store.reader import Reader
from transports.web.circuits import KINDS, Opening, minutes_open, openings

ROWS = 200
"""Rows of a table; what is older is a filter away, or on the command line."""

MESSAGES = 200
DAYS = 30
FRESH_S = 10.0
"""How long what a page has read serves its charts too."""

SVG = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
TROUBLE = ("retry", "failover", "error")
GROUPS: tuple[By, ...] = ("day", "model", "user", "thread")

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True)
class _Trouble:
    """How often models made trouble, by day and kind, and when their circuits were open."""

    days: Mapping[str, Counter[str]]
    openings: Sequence[Opening]


@dataclass(frozen=True)
class Views:
    """``status`` returns the status of the running bot; call it on the event loop. ``mask`` hides secrets.

    ``worker`` is the name of the process, if it shares its store with others: the status is its own. ``transports``
    are the names of those that are served, to choose from.
    """

    name: str
    open_reader: Callable[[], Reader]
    status: Callable[[], Status | None]
    events: EventStream
    mask: Callable[[str], str]
    policy: Policy
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    worker: str = ""
    transports: Sequence[str] = ()

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/", self._overview),
            Route("/events", self._events),
            Route("/threads", self._threads),
            Route("/thread", self._thread),
            Route("/why", self._why),
            Route("/money", self._money),
            Route("/models", self._models),
            Route("/audit", self._audit),
            Route("/dead-letters", self._dead_letters),
            Route("/chart/money-{by}.svg", self._money_chart),
            Route("/chart/models.svg", self._models_chart),
            Route("/chart/circuits.svg", self._circuits_chart),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]

    @cached_property
    def _templates(self) -> jinja2.Environment:
        return templates(self.name, self.mask)

    def _render(self, page: str, **values: object) -> Response:
        return HTMLResponse(
            self._templates.get_template(f"{page}.html").render(page=page, worker=self.worker, **values)
        )

    @cached_property
    def _recent(self) -> TTLCache[str, Any]:
        return TTLCache(16, FRESH_S)

    async def _read_once(self, name: str, look: Callable[[Reader], T]) -> T:
        """Return what *look* finds; a page and its charts share one reading."""
        if (found := self._recent.get(name)) is None:
            found = self._recent[name] = await self._read(look)
        known: T = found
        return known

    async def _read(self, look: Callable[[Reader], T]) -> T:
        def read() -> T:
            with closing(self.open_reader()) as reader:
                return look(reader)

        return await anyio.to_thread.run_sync(read)

    async def _overview(self, _: Request) -> Response:
        return self._render("overview", status=self.status())

    async def _events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        since = int(last) if last.isascii() and last.isdecimal() and len(last) < 20 else None
        may_go_on = request.scope.get("may_go_on", lambda: True)

        async def chunks() -> AsyncIterator[str]:
            async with aclosing(self.events.read(since=since)) as batches:
                async for batch in batches:
                    if not may_go_on():
                        return
                    yield "".join(
                        f"id: {one.seq}\ndata: {self.mask(to_json(one).decode())}\n\n" for one in batch
                    )

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def _threads(self, request: Request) -> Response:
        transport = request.query_params.get("transport", "")

        def look(reader: Reader) -> tuple[list[Summary], int]:
            found = reader.threads(transport)
            return [summary(reader, thread) for thread in found[:ROWS]], len(found)

        rows, found = await self._read(look)
        return self._render("threads", rows=rows, found=found, transport=transport, names=self.transports)

    async def _thread(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "")

        def look(reader: Reader) -> dict[str, Any] | None:
            thread = next((one for one in reader.find(wanted) if wanted), None)
            if thread is None:
                return None
            shown = [*entries(reader, thread, Damage(), last=MESSAGES)]
            transcript = Transcript(
                thread.name, shown, tools_used(reader, thread), reader.files(thread), self.mask
            )
            return {
                "thread": thread.name,
                "pieces": [*pieces(transcript)],
                "files": transcript.files,
                "linked": True,
                "waiting": waiting(reader, thread.name),
                "more": reader.count(thread) > MESSAGES,
            }

        found = await self._read(look)
        return self._render("thread", **found) if found else self._missing(f"no thread “{wanted}”")

    async def _why(self, request: Request) -> Response:
        message = request.query_params.get("message", "").strip()
        thread = request.query_params.get("thread", "")
        look = partial(stories, wanted=message, thread=thread)
        found = await self._read(look) if message else []
        return self._render("why", message=message, stories=found)

    async def _money(self, request: Request) -> Response:
        since = _day(request.query_params.get("since", "")) or ""
        spent = await self._spending(since)
        today = self.now().date().isoformat()
        limits = await self._read(lambda reader: spent_on(today, budgets(reader), self.policy))
        query = f"?since={since}" if since else ""

        def chart(one: Report) -> str:
            return f"/look/chart/money-{one.by}.svg{query}"

        shown = {"reports": spent.values(), "limits": limits, "since": since, "chart": chart}
        return self._render("money", rows=ROWS, **shown)

    async def _money_chart(self, request: Request) -> Response:
        spent = await self._spending(_day(request.query_params.get("since", "")) or "")
        if (one := spent.get(request.path_params["by"])) is None:
            return self._missing("no such chart")
        return await _svg(usage_chart, one, self.mask)

    async def _spending(self, since: str) -> Mapping[str, Report]:
        """Return the spending by each group."""
        look = partial(reports, groups=GROUPS, days=period(since or None, None, self.now()))
        return {one.by: one for one in await self._read_once(f"money {since}", look)}

    async def _models(self, _: Request) -> Response:
        trouble = await self._read_once("trouble", self._trouble)
        status, now = self.status(), self.now()
        latest = [(one, one.seconds(now)) for one in trouble.openings[-ROWS:][::-1]]
        circuits = status.circuits if status else ()
        return self._render("models", days=trouble.days, circuits=circuits, openings=latest)

    async def _models_chart(self, _: Request) -> Response:
        trouble = await self._read_once("trouble", self._trouble)
        days = [trouble.days.get(day, Counter()) for day in self._month()]
        counts = {kind: [day[kind] for day in days] for kind in TROUBLE}
        return await _svg(charts.bars, "Trouble by day", self._month(), counts)

    async def _circuits_chart(self, _: Request) -> Response:
        trouble = await self._read_once("trouble", self._trouble)
        minutes = minutes_open(trouble.openings, self.now())
        shown = {
            self.mask(title): [days.get(day, 0) for day in self._month()] for title, days in minutes.items()
        }
        return await _svg(charts.bars, "Minutes that circuits were open, by day", self._month(), shown)

    def _month(self) -> list[str]:
        today = self.now().date()
        return [(today - timedelta(days=ago)).isoformat() for ago in range(DAYS, -1, -1)]

    def _trouble(self, reader: Reader) -> _Trouble:
        days: defaultdict[str, Counter[str]] = defaultdict(Counter)
        circuits = list[AuditRecord]()
        for record in read_audit(reader, Filter(self._month()[0], (*TROUBLE, *KINDS)), Damage()):
            if record.kind in KINDS:
                circuits.append(record)
            else:
                days[record.at[:10]][record.kind] += 1
        return _Trouble(dict(days), openings(circuits))

    async def _audit(self, request: Request) -> Response:
        kind, thread = (request.query_params.get(name, "") for name in ("kind", "thread"))
        since = _day(request.query_params.get("since", "")) or f"{self.now() - timedelta(days=7):%Y-%m-%d}"
        criteria = Filter(since, (kind,) if kind else (), (thread,) if thread else ())

        def look(reader: Reader) -> list[AuditRecord]:
            return [*deque(read_audit(reader, criteria, Damage()), ROWS)][::-1]

        records = [(one, describe(one)) for one in await self._read(look)]
        kinds = get_args(AuditKind)
        return self._render(
            "audit", records=records, kind=kind, thread=thread, since=since, kinds=kinds, rows=ROWS
        )

    async def _dead_letters(self, _: Request) -> Response:
        letters = await self._read(lambda reader: dead_letters(reader)[-ROWS:][::-1])
        return self._render("dead_letters", letters=letters)

    def _missing(self, what: str) -> Response:
        return HTMLResponse(self._templates.get_template("missing.html").render(page="", what=what), 404)


async def _svg(draw: Callable[[*Arguments], bytes], *args: *Arguments) -> Response:
    drawn = await anyio.to_thread.run_sync(draw, *args)
    return Response(drawn, media_type="image/svg+xml", headers=SVG)


def _day(text: str) -> str | None:
    """Return a day as the reports take it, None for anything else."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        return None
