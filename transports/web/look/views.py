"""The requests of these pages. Whoever mounts them lets only admins in.

| path                | what it shows                                                         |
|---------------------|-----------------------------------------------------------------------|
| /                   | is it well, what is wrong, the turns of today and of the last days     |
| /events             | the running bot's events, as server-sent events                        |
| /turns              | turns, by day, outcome, code, model, thread and person                 |
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, TypeVar, get_args

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
from bot.observe.event_lines import EventLine
from bot.observe.event_stream import EventStream
from bot.page import charts
from bot.page.templating import HERE, templates
from bot.page.usage_charts import usage_chart
from bot.ports.status import Spend, Status
from bot.reports.audit_trail import Filter, describe, read_audit
from bot.reports.budget_state import budgets
from bot.reports.dead_letters import dead_letters
from bot.reports.line_reader import Damage
from bot.reports.message_story import stories
from bot.reports.safe_text import line
from bot.reports.thread import Summary, entries, journal, summaries, tools_used, waiting
from bot.reports.usage import By, Report, period, reports
from bot.store.reader import Reader, WorkerRow
from threads.journal.records import Received
from threads.model import ThreadId, WallClock, with_quoted
from transports.web.look.circuits import KINDS, Opening, minutes_open, openings
from transports.web.look.summary import LIMITS, Trouble, grade, headline, troubles, used_share
from transports.web.look.turns import ANY_FAILURE, FIELDS, DayOfTurns, Recent, Turn, Turns, seconds_between
from transports.web.thread_list import ThreadNote

ROWS = 100
"""Rows of a table; what is older is a filter away, or on the command line."""

MESSAGES = 200
DAYS = 30
FRESH_S = 10.0
"""How long what a page has read serves its charts too."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SVG = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
TROUBLE = ("retry", "failover", "error")
GROUPS: tuple[By, ...] = ("day", "model", "user", "thread")
LONGEST_NAME = 26
"""Characters of a title beside a bar."""

CHOICES = 100
"""Values of one kind that turns can be chosen by."""

OUTCOMES: Mapping[str, str] = {
    "answered": "#2f8f76", "merged": "#4f9fb5", "failed": "#c0504d", "dead_letter": "#b5579a",
    "undelivered": "#8a6bd1", "refused": "#c9772c", "stopped": "#7f8a87", "withdrawn": "#7d8a2e",
}  # fmt: skip
"""The colours of outcomes in a chart."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Trouble:
    """How often models made trouble, by day and kind, and when their circuits were open."""

    days: Mapping[str, Counter[str]]
    openings: Sequence[Opening]


async def no_notes(_: str) -> Mapping[str, ThreadNote]:
    """Return that nothing is said of any thread."""
    return {}


@dataclass(frozen=True)
class Views:
    """``status`` returns the status of the running bot; call it on the event loop. ``mask`` hides secrets.

    ``worker`` is the name of the process, if it shares its store with others: the status is its own. ``transports``
    are the names of those that are served, to choose from. ``workers`` reads those of a shared store, and may raise
    OSError. ``notes`` returns what a person of the page says of their threads, by their roots.
    """

    name: str
    open_reader: Callable[[], Reader]
    status: Callable[[], Status | None]
    events: EventStream
    mask: Callable[[str], str]
    policy: Policy
    now: WallClock = lambda: datetime.now(UTC)
    worker: str = ""
    transports: Sequence[str] = ()
    workers: Callable[[], Sequence[WorkerRow]] = tuple
    notes: Callable[[str], Awaitable[Mapping[str, ThreadNote]]] = no_notes

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/", self._overview),
            Route("/events", self._events),
            Route("/turns", self._turns_page),
            Route("/threads", self._threads),
            Route("/thread", self._thread),
            Route("/why", self._why),
            Route("/money", self._money),
            Route("/models", self._models),
            Route("/audit", self._audit),
            Route("/dead-letters", self._dead_letters),
            Route("/chart/money-{by}.svg", self._money_chart),
            Route("/chart/days-{what}.svg", self._days_chart),
            Route("/chart/models.svg", self._models_chart),
            Route("/chart/circuits.svg", self._circuits_chart),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]

    @cached_property
    def _templates(self) -> jinja2.Environment:
        made = templates(self.name, self.mask)
        made.filters["grade"] = grade
        made.filters["said"] = lambda entry: with_quoted(entry.text, entry.quoted)
        made.filters["seconds_after"] = seconds_between
        return made

    @cached_property
    def _turns(self) -> Turns:
        return Turns(self.mask)

    def forget(self, thread: str) -> None:
        """Drop what is remembered of a thread."""
        self._turns.forget(thread)

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
        status, today = self.status(), self.now().date().isoformat()
        recent, limits, fault = Recent(), list[Spend](), list[Trouble]()
        workers: Sequence[WorkerRow] = ()
        try:
            recent = await self._recent_turns()
            limits = [*status.spend] if status and not self.worker else await self._limits(today)
            workers = await anyio.to_thread.run_sync(self.workers)
        except OSError as error:
            fault = [Trouble(f"The store cannot be read: {error}")]
        limits = [one for one in limits if one.scope == "day" or one.limit or one.spent]
        of_today = recent.days.get(today, DayOfTurns())
        found = fault + troubles(status, of_today, limits, workers, today)
        return self._render(
            "overview",
            status=status,
            headline=headline(status, found),
            troubles=found,
            today=of_today,
            day=today,
            limits=[(LIMITS.get(one.scope, one.scope), one, used_share(one)) for one in limits],
            workers=workers,
            recent=recent,
        )

    async def _recent_turns(self) -> Recent:
        since = datetime.fromisoformat(self._month()[0]).replace(tzinfo=UTC)
        return await self._read_once("turns", lambda reader: self._turns.recent(reader, since))

    async def _limits(self, day: str) -> list[Spend]:
        return await self._read_once("limits", lambda reader: spent_on(day, budgets(reader), self.policy))

    async def _days_chart(self, request: Request) -> Response:
        found, month = await self._recent_turns(), self._month()
        days = [found.days.get(day, DayOfTurns()) for day in month]
        match request.path_params["what"]:
            case "turns":
                counts = {one: [day.outcomes[one] for day in days] for one in OUTCOMES}
                shown = {one: values for one, values in counts.items() if any(values)}
                draw = partial(charts.over_time, series=shown, colours=[OUTCOMES[one] for one in shown])
            case "tokens":
                draw = partial(charts.over_time, series={"tokens": [day.tokens for day in days]})
            case "time":
                took = {f"p{share}": [day.took(share / 100) for day in days] for share in (50, 95)}
                draw = partial(charts.over_time, series=took, kind="Line", unit=" s")
            case "spent":
                draw = partial(charts.over_time, series={"USD": [day.usd for day in days]}, unit="$")
            case _:
                return self._missing("no such chart")
        return await _svg(partial(draw, [*map(_short, month)], narrow=_narrow(request)))

    async def _turns_page(self, request: Request) -> Response:
        wanted = {name: request.query_params.get(name, "") for name in FIELDS}
        slowest = request.query_params.get("order") == "slowest"
        recent = await self._recent_turns()
        if wanted["thread"]:
            recent = await self._read(partial(self._of_one_thread, wanted=wanted["thread"]))
        found = [one for one in recent.turns if one.matches(wanted)]
        if slowest:
            found.sort(key=lambda one: -one.seconds)
        titles = await self._titles(one.thread for one in found[:ROWS])
        choices = {name: _choices(recent.turns, name) for name in ("code", "model", "author")}
        return self._render(
            "turns",
            turns=found[:ROWS],
            found=found,
            wanted=wanted,
            slowest=slowest,
            titles=titles,
            choices={"outcome": [*OUTCOMES, ANY_FAILURE], **choices},
            recent=recent,
        )

    def _of_one_thread(self, reader: Reader, wanted: str) -> Recent:
        found = [turn for one in reader.find(wanted)[:1] for turn in self._turns.of_thread(reader, one)]
        return Recent(found[::-1])

    async def _titles(self, threads: Iterable[str]) -> Mapping[str, str]:
        """Return the titles of threads: what their person or a model says, or the first words."""
        names = {name for name in threads if name.count(":") > 2}  # a damaged record may name anything
        titles = await anyio.to_thread.run_sync(self._turns.titles, self.open_reader, names)
        for name in names:
            thread = ThreadId.parse(name)
            if thread.transport == "web" and (note := (await self.notes(thread.channel)).get(thread.root)):
                titles[name] = self.mask(note.title) or titles.get(name, "")
        return titles

    async def _events(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        since = int(last) if last.isascii() and last.isdecimal() and len(last) < 20 else None
        may_go_on = request.scope.get("may_go_on", lambda: True)

        async def chunks() -> AsyncIterator[str]:
            async with aclosing(self.events.read(since=since)) as batches:
                async for batch in batches:
                    if not may_go_on():
                        return
                    titles: Mapping[str, str] = {}
                    with suppress(OSError):  # the turns go on without their titles
                        named = (one.thread_id for one in batch if one.kind in ("turn", "settled"))
                        titles = await self._titles(named)
                    yield "".join(map(partial(self._event, titles), batch))

        return StreamingResponse(chunks(), media_type="text/event-stream")

    def _event(self, titles: Mapping[str, str], event: EventLine) -> str:
        shown = {**event.model_dump(), "title": titles.get(event.thread_id, "")}
        return f"id: {event.seq}\ndata: {self.mask(to_json(shown).decode())}\n\n"

    async def _threads(self, request: Request) -> Response:
        transport = request.query_params.get("transport", "")

        def look(reader: Reader) -> tuple[list[Summary], int]:
            found = reader.threads(transport)
            return [*summaries(reader, found[:ROWS])], len(found)

        rows, found = await self._read(look)
        titles = await self._titles(one.thread for one in rows)
        shown = {"rows": rows, "found": found, "titles": titles}
        return self._render("threads", transport=transport, names=self.transports, **shown)

    async def _thread(self, request: Request) -> Response:
        wanted = request.query_params.get("id", "")

        def look(reader: Reader) -> dict[str, Any] | None:
            thread = next((one for one in reader.find(wanted) if wanted), None)
            if thread is None:
                return None
            return {
                "thread_id": thread.name,
                "entries": [*entries(reader, thread, Damage(), last=MESSAGES)],
                "used": tools_used(reader, thread),
                "files": reader.files(thread),
                "waiting": waiting(reader, thread.name),
                "people": _people(reader, thread.name),
                "more": reader.count(thread) > MESSAGES,
            }

        if (found := await self._read(look)) is None:
            return self._missing(f"no thread “{wanted}”")
        return self._render("thread", titles=await self._titles([found["thread_id"]]), **found)

    async def _why(self, request: Request) -> Response:
        message = request.query_params.get("message", "").strip()
        thread = request.query_params.get("thread", "")
        look = partial(stories, wanted=message, thread=thread)
        found = await self._read(look) if message else []
        titles = await self._titles(one.thread for one in found)
        return self._render("why", message=message, stories=found, titles=titles)

    async def _money(self, request: Request) -> Response:
        since = _day(request.query_params.get("since", "")) or ""
        spent = await self._spending(since)
        limits = await self._limits(self.now().date().isoformat())

        def drawn(one: Report) -> str:
            return f"/look/chart/money-{one.by}.svg?since={since}"

        titles = await self._titles(one.name for one in spent["thread"].lines[:ROWS])
        shown = {"reports": spent.values(), "limits": limits, "limit_names": LIMITS, "drawn": drawn}
        return self._render("money", rows=ROWS, linked=True, since=since, titles=titles, **shown)

    async def _money_chart(self, request: Request) -> Response:
        spent = await self._spending(_day(request.query_params.get("since", "")) or "")
        if (one := spent.get(request.path_params["by"])) is None:
            return self._missing("no such chart")
        names = dict[str, str]()
        if one.by == "day":
            names = {day.name: _short(day.name) for day in one.lines}
        elif one.by == "thread":
            titles = await self._titles(thread.name for thread in one.lines[:ROWS])
            names = {name: line(title, LONGEST_NAME) for name, title in titles.items()}
        named = replace(one, lines=[replace(had, name=names.get(had.name, had.name)) for had in one.lines])
        return await _svg(partial(usage_chart, named, self.mask, narrow=_narrow(request)))

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

    async def _models_chart(self, request: Request) -> Response:
        trouble = await self._read_once("trouble", self._trouble)
        days = [trouble.days.get(day, Counter()) for day in self._month()]
        counts = {kind: [day[kind] for day in days] for kind in TROUBLE}
        return await _svg(
            partial(charts.over_time, [*map(_short, self._month())], counts, narrow=_narrow(request))
        )

    async def _circuits_chart(self, request: Request) -> Response:
        trouble = await self._read_once("trouble", self._trouble)
        minutes = minutes_open(trouble.openings, self.now())
        shown = {
            self.mask(title): [days.get(day, 0) for day in self._month()] for title, days in minutes.items()
        }
        return await _svg(
            partial(charts.over_time, [*map(_short, self._month())], shown, narrow=_narrow(request))
        )

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
        titles = await self._titles([thread, *(one.thread_id for one, _ in records)])
        wanted = {"kind": kind, "threaded": thread, "since": since}
        shown = {"records": records, "kinds": get_args(AuditKind), "rows": ROWS, "titles": titles}
        return self._render("audit", **wanted, **shown)

    async def _dead_letters(self, _: Request) -> Response:
        letters = await self._read(lambda reader: dead_letters(reader)[-ROWS:][::-1])
        titles = await self._titles(one.thread_id for one in letters)
        return self._render("dead_letters", letters=letters, titles=titles)

    def _missing(self, what: str) -> Response:
        return HTMLResponse(self._templates.get_template("missing.html").render(page="", what=what), 404)


def _people(reader: Reader, thread: str) -> dict[str, str]:
    """Return the names of those who wrote in a thread of late, by their ids: a log has no names."""
    said = [one for one in journal(reader, Damage(), (thread,), thread) if isinstance(one, Received)]
    return {one.author.id: one.author.name for one in said if one.thread_id == thread and one.author.name}


async def _svg(draw: Callable[[], bytes]) -> Response:
    drawn = await anyio.to_thread.run_sync(draw)
    return Response(drawn, media_type="image/svg+xml", headers=SVG)


def _narrow(request: Request) -> bool:
    return "narrow" in request.query_params


def _short(day: str) -> str:
    """Return a day as a chart has room for it."""
    return f"{int(day[8:])} {MONTHS[int(day[5:7]) - 1]}"


def _choices(turns: Iterable[Turn], name: str) -> list[str]:
    """Return the values that turns have of one field, the most frequent first."""
    counted = Counter(getattr(turn, name) for turn in turns)
    return [value for value, _ in counted.most_common(CHOICES) if value]


def _day(text: str) -> str | None:
    """Return a day as the reports take it, None for anything else."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        return None
