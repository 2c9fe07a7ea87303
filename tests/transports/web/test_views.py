"""The pages to look at, over folders as the bot writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import httpx2
import pytest
from starlette.applications import Starlette

from bot.budget.budgets import Policy
from bot.config.settings import Budget
from bot.guards.redaction import Masker
from bot.observe.audit import AuditRecord
from bot.observe.event_stream import EventStream
from bot.ports.status import CircuitStatus, Spend, Status, TransportStatus
from bot.reports.files import FileReader
from tests.bot.cli.data_folders import exchange, write_audit, write_thread
from transports.web.views import Views

SECRET = "sk-live-0123456789abcdef0123"
PAGES = ["/", "/threads", "/thread?id=x", "/why", "/money", "/models", "/audit", "/dead-letters"]
STATUS = Status(
    7, "1", "2026-11-25T10:00:00+00:00", 5.0, True, False, "/data", "offline/demo",
    transports=(TransportStatus("slack", "connected", "", 1.0),),
    circuits=(CircuitStatus("a/b", "open", "<i>rate limited</i>", 3),),
    spend=(Spend("day", 1.5, 0.25, 50.0), Spend("month", 1.5, 0.0, None)),
    troubles=(f"the key {SECRET} is refused",),
)  # fmt: skip


@pytest.fixture
def look_at(tmp_path):
    """Return a function that opens the pages of a worker."""

    def look_at(worker=""):
        views = Views(
            "thread<b>fast",
            partial(FileReader, tmp_path),
            lambda: STATUS,
            EventStream(),
            Masker([SECRET]),
            Policy.of(Budget()),
            lambda: datetime(1970, 1, 2, tzinfo=UTC),
            worker,
        )
        transport = httpx2.ASGITransport(app=Starlette(routes=views.routes()))
        return httpx2.AsyncClient(transport=transport, base_url="http://page")

    return look_at


@pytest.fixture
def look(look_at):
    return look_at()


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_of_an_empty_folder_is_whole(look, path):
    answer = await look.get(path)
    assert answer.status_code == (404 if "id=x" in path else 200)
    assert "</html>" in answer.text
    assert "thread<b>fast" not in answer.text


async def test_the_first_page_has_the_status_without_its_secrets(look):
    page = (await look.get("/")).text
    assert "offline/demo" in page
    assert "$50.00" in page
    assert "no limit" in page
    assert SECRET not in page


async def test_threads_lead_to_their_transcripts(look, tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1, f"<script>alert(1)</script> {SECRET}"))
    listed = (await look.get("/threads?transport=slack")).text
    assert "slack:T1:C1:1.1" in listed
    assert "1 thread" in listed
    page = (await look.get("/thread", params={"id": "slack:T1:C1:1.1"})).text
    for text in (listed, page):
        assert "&lt;script&gt;" in text
        assert "<script>" not in text
        assert SECRET not in text
    assert "0 threads" in (await look.get("/threads?transport=discord")).text


async def test_why_is_a_timeline(look, tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    page = (await look.get("/why", params={"message": "m1"})).text
    assert page.index("received") < page.index("settled")
    assert "It was answered." in page


@pytest.mark.parametrize(
    "path", ["/why?message=%3Cb%3E", "/thread?id=%3Cb%3E", "/audit?since=%3Cb%3E&kind=%3Cb%3E"]
)
async def test_what_is_asked_for_comes_back_as_text(look, path):
    assert "<b>" not in (await look.get(path)).text


async def test_the_audit_page_shows_the_newest_records(look, tmp_path, monkeypatch):
    monkeypatch.setattr("transports.web.views.ROWS", 2)
    records = [
        AuditRecord(at=f"1970-01-01T10:00:0{n}.000+00:00", kind="cancel", message_id=f"m{n}")
        for n in range(5)
    ]
    write_audit(tmp_path, *records)
    page = (await look.get("/audit?since=1970-01-01")).text
    assert [word in page for word in ("m4", "m3", "m2")] == [True, True, False]
    assert page.index("m4") < page.index("m3")


async def test_a_page_and_its_charts_share_one_reading_of_the_ledger(look, monkeypatch):
    read = []
    spending = FileReader.spending
    monkeypatch.setattr(
        FileReader, "spending", lambda self, *args: read.append(args) or spending(self, *args)
    )
    await look.get("/money")
    once = len(read)
    for by in ("day", "model", "user", "thread"):
        await look.get(f"/chart/money-{by}.svg")
    assert len(read) == once


@pytest.mark.parametrize("by", ["day", "model", "user", "thread"])
async def test_charts_are_pictures_that_may_do_nothing(look, by):
    answer = await look.get(f"/chart/money-{by}.svg")
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert (await look.get("/chart/money-secret.svg")).status_code == 404
    for name in ("models", "circuits"):
        assert (await look.get(f"/chart/{name}.svg")).status_code == 200


async def test_the_models_page_shows_trouble_and_open_circuits_over_time(look, tmp_path):
    def record(second, kind, **details):
        return AuditRecord(at=f"1970-01-01T10:00:{second}.000+00:00", kind=kind, details=details)

    write_audit(
        tmp_path,
        record("00", "retry"),
        record("01", "circuit", event="circuit.opened", model="a/b", reason=f"a/b: <i>{SECRET}"),
        record("31", "circuit", event="circuit.closed", model="a/b"),
    )
    page = (await look.get("/models")).text
    assert '1970-01-01 10:00:31</td><td class="number">0.5</td>' in page
    assert "&lt;i&gt;[masked]</td>" in page
    assert "a/b" in (await look.get("/chart/circuits.svg")).text
    assert "retry" in (await look.get("/chart/models.svg")).text


async def test_pages_of_several_workers_say_which_one_they_speak_of(look_at, tmp_path):
    def record(second, worker, event):
        details = {"event": event, "model": "a/b"}
        at = f"1970-01-01T10:00:{second}.000+00:00"
        return AuditRecord(at=at, kind="circuit", details=details, worker=worker)

    write_audit(
        tmp_path,
        record("01", "host:1", "circuit.opened"),
        record("02", "host:2", "circuit.opened"),
        record("31", "host:2", "circuit.closed"),
    )
    look = look_at("host:2")
    page = (await look.get("/models")).text
    assert "Circuits now, on host:2" in page
    assert '<td>host:1</td><td class="instant">open now</td>' in page
    assert '<td>host:2</td><td class="instant">1970-01-01 10:00:31</td>' in page
    assert "The bot, on host:2" in (await look.get("/")).text
    assert "on host:1" in (await look.get("/audit?since=1970-01-01")).text
