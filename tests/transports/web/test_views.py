"""The pages to look at, over folders as the bot writes them."""

from __future__ import annotations

import html
import os
import re
from dataclasses import replace
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
from bot.store.reader import WorkerRow
from tests.bot.cli.data_folders import DAY, at, exchange, write_audit, write_records, write_thread
from threads.journal.records import Received, record_adapter
from threads.model import Author, UsageCounted
from transports.web.look.views import Views

SECRET = "sk-live-0123456789abcdef0123"
PAGES = ["/", "/turns", "/threads", "/thread?id=x", "/why", "/money", "/models", "/audit", "/dead-letters"]
STATUS = Status(
    7, "1", "2026-11-25T10:00:00+00:00", 5.0, True, False, "/data", "offline/demo",
    transports=(TransportStatus("slack", "connected", "", 1.0),),
    circuits=(CircuitStatus("a/b", "open", "<i>rate limited</i>", 3),),
    spend=(Spend("day", 1.5, 0.25, 50.0), Spend("month", 1.5, 0.0, None)),
    troubles=(f"the key {SECRET} is refused",),
)  # fmt: skip


@pytest.fixture
def look_at(tmp_path):
    """Return a function that opens the pages of a worker, on a day."""

    def look_at(worker="", day="1970-01-02", open_reader=partial(FileReader, tmp_path), workers=tuple):
        views = Views(
            "thread<b>fast",
            open_reader,
            lambda: STATUS,
            EventStream(),
            Masker([SECRET]),
            Policy.of(Budget()),
            lambda: datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC),
            worker,
            workers=workers,
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


def write(data, root, *entries):
    """Write a thread that was changed when its last line says."""
    log = write_thread(data, root, *entries) / "log.jsonl"
    changed_at = datetime.fromisoformat(entries[-1].at).timestamp()
    os.utime(log, (changed_at, changed_at))


def slow():
    said, reply, end = exchange(5, "slow one")
    return said, reply, replace(end, at=at(50), spent=UsageCounted("a/b", 1200, 0.5, 0.0))


def failed(n, code, **more):
    return exchange(n, f"question {n}", outcome="failed", code=code, **more)


def links(page, path):
    """Return the addresses on a page that begin so."""
    return [html.unescape(one) for one in re.findall(r'href="([^"]+)"', page) if one.startswith(path)]


async def test_the_summary_says_first_what_is_wrong_and_its_numbers_lead_to_the_turns_behind_them(
    look_at, tmp_path
):
    write(
        tmp_path,
        "1.1",
        *exchange(1, "the <b>first</b> words"),
        *failed(2, "timeout"),
        *failed(3, "rate_limited"),
    )
    look = look_at(day=DAY)
    page = (await look.get("/")).text
    assert page.index("Not well") < page.index("2 of 3 turns failed today") < page.index("Turns today")
    assert "The circuit of a/b is open: &lt;i&gt;rate limited&lt;/i&gt;; 3 calls wait" in page
    [address] = {one for one in links(page, "/look/turns") if "code=timeout" in one}
    behind = (await look.get(address.removeprefix("/look"))).text
    assert "question 2" in behind
    assert "question 3" not in behind
    assert "the &lt;b&gt;first" in behind
    [why] = links(behind, "/look/why?message")
    assert "It failed" in (await look.get(why.removeprefix("/look"))).text


async def test_the_summary_of_a_store_that_is_away_says_so(look_at):
    def away():
        raise ConnectionError("the database does not answer")

    page = (await look_at("host:1", open_reader=away).get("/")).text
    assert page.index("Not well") < page.index("the database does not answer")


async def test_the_summary_counts_the_workers_and_names_those_that_are_gone(look_at):
    rows = [WorkerRow("host:1", "1", True, 0.5, 3), WorkerRow("host:2", "1", False, 61.0, 0)]
    page = (await look_at("host:1", workers=lambda: rows).get("/")).text
    assert "1 of 2 alive" in page
    assert "Worker host:2 is gone" in page


async def test_turns_are_chosen_by_what_they_have_and_the_slowest_come_first(look_at, tmp_path):
    write(tmp_path, "1.1", *exchange(1, "quick one"), *slow())
    write(tmp_path, "2.1", *failed(70, "timeout"))
    look = look_at(day=DAY)
    page = (await look.get("/turns?order=slowest")).text
    assert page.index("slow one") < page.index("question 70")
    assert 'data-as="seconds">45.0 s' in page
    assert 'data-as="usd">$0.00' in page
    for query, shown in [("model=a/b", 1), ("outcome=any failure", 1), ("author=U1", 3), ("day=2026-11-19", 0), ("thread=slack:T1:C1:1.1", 2)]:  # fmt: skip
        assert (await look.get(f"/turns?{query}")).text.count('<th scope="row"') == shown, query


async def test_where_there_are_more_threads_than_are_read_the_page_says_what_is_missing(
    look_at, tmp_path, monkeypatch
):
    monkeypatch.setattr("transports.web.look.turns.MOST_THREADS", 1)
    write(tmp_path, "1.1", *exchange(1, "the older"))
    write(tmp_path, "2.1", *exchange(2, "the newer"))
    look = look_at(day=DAY)
    for path in ("/", "/turns"):
        page = (await look.get(path)).text
        assert f'Before <time datetime="{DAY}T10:00:01+00:00">' in page, path
    assert ["the older" in page, "the newer" in page] == [False, True]


async def test_threads_have_titles_and_a_secret_in_one_is_not_cut_into_two(look_at, tmp_path):
    write(tmp_path, "1.1", *exchange(1, f"{'x' * 110} {SECRET} more"), *exchange(2, "later"))
    for path in (
        "/threads",
        "/turns",
        f"/audit?since={DAY}&thread=slack:T1:C1:1.1",
        "/thread?id=slack:T1:C1:1.1",
    ):
        page = (await look_at(day=DAY).get(path)).text
        assert "xxx [masked" in page, path
        assert SECRET[:6] not in page


async def test_charts_of_turns_have_numbers_without_money_and_a_note_in_its_place(look_at, tmp_path):
    write(tmp_path, "1.1", *slow(), *failed(2, "timeout"))
    look = look_at(day=DAY)
    drawn = (await look.get("/chart/days-turns.svg")).text
    assert ["answered" in drawn, "failed" in drawn, "stopped" in drawn] == [True, True, False]
    assert "p95" in (await look.get("/chart/days-time.svg?narrow")).text
    assert (await look.get("/chart/days-secret.svg")).status_code == 404
    page = (await look.get("/")).text
    assert "Nothing was charged in these days" in page
    assert "days-spent.svg" not in page


async def test_threads_lead_to_their_transcripts(look, tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1, f"<script>alert(1)</script> {SECRET}"))
    listed = (await look.get("/threads?transport=slack")).text
    assert "slack:T1:C1:1.1" in listed
    assert "</data> thread</p>" in listed
    page = (await look.get("/thread", params={"id": "slack:T1:C1:1.1"})).text
    for text in (listed, page):
        assert "&lt;script&gt;" in text
        assert "<script>" not in text
        assert SECRET not in text
    assert "There are no threads yet." in (await look.get("/threads?transport=discord")).text


async def test_a_person_of_a_thread_has_the_name_that_the_journal_knows(look, tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    received = Received(
        thread_id="slack:T1:C1:1.1", message_id="m1", author=Author("U1", "<Ada>"), text="hello", at=at(1)
    )
    write_records(tmp_path / "journal.jsonl", record_adapter(), received)
    page = (await look.get("/thread", params={"id": "slack:T1:C1:1.1"})).text
    assert '<b title="U1">&lt;Ada&gt;</b>' in page


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
    monkeypatch.setattr("transports.web.look.views.ROWS", 2)
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
    assert '1970-01-01 10:00:31 UTC</time></td><td data-label="Minutes" class="number">0.5</td>' in page
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
    cells = re.sub(r"<td[^>]*>", "<td>", page)
    assert "<td>host:1</td><td>open now</td>" in cells
    assert re.search(r"<td>host:2</td><td><time [^>]*>1970-01-01 10:00:31 UTC</time></td>", cells)
    assert "The bot, on host:2" in (await look.get("/")).text
    assert "on host:1" in (await look.get("/audit?since=1970-01-01")).text
