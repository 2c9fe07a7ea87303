"""Who may do what with a request, beside what the adversary tries."""

from __future__ import annotations

import uuid
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.patience import WITHIN_S
from tests.transports.web.alone import transport
from tests.transports.web.site import OWNER, Visitor, serving_page, visiting
from transports.web import talk
from transports.web.address import Address


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (Address("127.0.0.1", 7777), "threadfast-7777"),
        (Address("127.0.0.1", 7778), "threadfast-7778"),
        (Address("127.0.0.1", 7777, "https://bot.example"), "__Host-threadfast-443"),
        (Address("127.0.0.1", 7778, "https://bot.example"), "__Host-threadfast-443"),
    ],
)
def test_two_pages_of_one_host_name_have_each_their_cookie_and_workers_behind_one_proxy_the_same(
    address, name
):
    assert address.cookie == name


async def test_a_link_for_somebody_else_needs_a_second_word_and_is_not_used_up(tmp_path):
    async with visiting(tmp_path) as ann:
        link = ann.site.link("mallory")
        answer = await ann.post("/api/enter", json={"link": link})
        assert (answer.status_code, OWNER in answer.text, "mallory" in answer.text) == (409, True, True)
        assert (await ann.get("/api/threads")).status_code == 200
        assert (await ann.post("/api/enter", json={"link": link, "sure": True})).status_code == 200


@pytest.mark.parametrize(("site", "asks"), [("cross-site", True), ("same-site", True), ("none", False)])
async def test_a_link_that_another_page_opened_is_not_used_by_itself(tmp_path, site, asks):
    async with serving_page(tmp_path) as page, httpx2.AsyncClient(base_url=page.url) as browser:
        text = (await browser.get("/enter", headers={"Sec-Fetch-Site": site})).text
        assert ("data-asks" in text) is asks


async def test_the_session_of_a_person_who_was_removed_reads_nothing_more(tmp_path):
    fields = {"access": {"admins": [OWNER], "users": ["bob"]}}
    async with visiting(tmp_path, fields) as ann, Visitor(ann.site) as bob:
        await bob.enter("bob")
        assert (await bob.get("/api/threads")).status_code == 200
        name, port = ann.site.web.address.cookie, ann.site.web.address.port
        cookie = bob.cookies[name]
    removed = {"access": {"admins": [OWNER], "users": []}}
    async with (
        serving_page(tmp_path, removed, port=port) as site,
        httpx2.AsyncClient(base_url=site.url, cookies={name: cookie}) as browser,
    ):
        for path in ("/api/threads", "/api/events?thread=t", "/files/t/x"):
            assert (await browser.get(path)).status_code == 401
        assert (await browser.get("/")).headers["location"] == "/enter"
        assert "bob may not use this bot" in (await browser.get("/enter")).text


async def test_a_person_has_a_bounded_number_of_streams_and_others_have_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(talk, "MOST_STREAMS", 2)
    async with visiting(tmp_path) as ann, Visitor(ann.site) as bob:
        await bob.enter("bob")
        async with ann.events("t") as one, ann.events("t") as two:
            for events in (one, two):
                await events.until("list")
            assert (await ann.get("/api/events", params={"thread": "t"})).status_code == 429
            async with bob.events("t") as events:
                await events.until("list")
        with anyio.fail_after(WITHIN_S):
            while True:
                async with ann.stream("GET", "/api/events", params={"thread": "t"}) as answer:
                    if answer.status_code == 200:
                        break


@pytest.mark.parametrize("thread", ["a:b", "../x", "x" * 101, "a b", "%00"])
async def test_a_thread_that_cannot_be_is_not_looked_for(tmp_path, thread):
    async with visiting(tmp_path) as ann:
        assert (await ann.get("/api/events", params={"thread": thread})).status_code == 404
        assert not ann.site.web._talk._feeds.known


class Broken:
    async def threads(self, *_):
        raise OSError(5, "Input/output error")

    async def past(self, *_):
        raise OSError(5, "Input/output error")


async def test_a_store_that_cannot_be_read_is_said_and_asked_again(tmp_path, caplog):
    from tests.transports.settling import beside  # noqa: PLC0415
    from tests.transports.web.test_server import Alone, sink  # noqa: PLC0415

    web = transport(tmp_path, history=Broken())
    async with beside(lambda: web.serve(sink)):
        await web.reconnected()
        async with Visitor(Alone(web)) as ann:
            await ann.enter()
            answer = await ann.get("/api/threads")
            assert (answer.status_code, "store" in answer.json()["error"]) == (503, True)
            stream = await ann.get("/api/events", params={"thread": str(uuid.uuid4())})
            assert stream.text.startswith("retry:")
    assert "web.not_read" in caplog.text
    assert "Traceback" not in caplog.text


def test_the_scripts_of_the_page_stay_small():
    scripts = [
        one for folder in ("transports/web/static", "bot/page/static") for one in Path(folder).glob("*.js")
    ]
    assert sum(one.stat().st_size for one in scripts) < 60_000
