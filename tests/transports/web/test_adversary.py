"""What others may try with the page's address: none of it gets through."""

from __future__ import annotations

import json
import uuid
from contextlib import AsyncExitStack

import anyio
import httpx2
import pytest

from tests.patience import WITHIN_S
from tests.transports.web.site import Visitor, visiting
from transports.web.guard import HEADERS
from transports.web.routes import TOKEN

CHANGES = ["messages", "edit", "again", "delete", "feedback", "files", "leave"]
ORIGINS = [
    "",
    "null",
    "http://evil.example",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1:1",
    "http://127.0.0.1.evil.example:{port}",
    "http://localhost.evil.example:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "http://user@127.0.0.1:{port}",
    "http://127.0.0.1:{port}/",
]
HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1.evil.example:{port}",
    "localhost",
    "127.0.0.1:{port}@evil.example",
    "0.0.0.0:{port}",
    "[::ffff:127.0.0.1]:{port}",
]
PATHS = [
    "/static/../routes.py",
    "/static/..%2froutes.py",
    "/static/%2e%2e/routes.py",
    "/static//etc/passwd",
    "/look/static/../views.py",
    "/files/t/..%2f..%2fweb.json",
    "/files/t/%2e%2e%2fweb.json",
    "/files/..%2f..%2f..%2fweb.json/x",
    "/files/t/a~0123456789abcdef0123~..%2f..%2f..%2fweb.json",
    "/files/%2e%2e/m~0123456789abcdef0123~x",
    "/files/t/m~0123456789abcdef0123~x%00.txt",
]
BODIES = [
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b'{"id": 1}',
    json.dumps({"id": "x", "thread": "t", "text": "hi"}).encode(),
    json.dumps({"id": "a" * 8, "thread": "../x", "text": "hi"}).encode(),
    json.dumps({"id": "a" * 8, "thread": "a:b:c", "text": "hi"}).encode(),
    json.dumps({"id": "a" * 8, "thread": "t", "text": "hi", "author": "admin"}).encode(),
    json.dumps(
        {"id": "a" * 8, "thread": "t", "text": "hi", "files": [{"id": "../../x", "name": "x"}]}
    ).encode(),
    json.dumps({"id": "a" * 8, "thread": "t", "text": "x" * 200_001}).encode(),
    b'{"id": ' + b"[" * 100_000 + b"}",
]


def port(ann: Visitor) -> int:
    return ann.site.web.address.port


def cookie(ann: Visitor) -> str:
    name = ann.site.web.address.cookie
    return f"{name}={ann.cookies[name]}"


@pytest.fixture(scope="module")
async def ann(tmp_path_factory):
    async with visiting(tmp_path_factory.mktemp("data")) as visitor:
        yield visitor


async def unchanged(ann: Visitor) -> bool:
    return (await ann.get("/api/threads")).json() == {"threads": []}


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("origin", ORIGINS[:4])
async def test_a_request_from_another_origin_changes_nothing(ann, path, origin):
    headers = {"Origin": origin.format(port=port(ann))}
    assert (await ann.post(f"/api/{path}", json={}, headers=headers)).status_code == 403
    assert await unchanged(ann)


@pytest.mark.parametrize("origin", ORIGINS)
async def test_no_other_origin_is_ours(ann, origin):
    body = {"id": str(uuid.uuid4()), "thread": "t", "text": "hi"}
    headers = {"Origin": origin.format(port=port(ann))}
    assert (await ann.post("/api/messages", json=body, headers=headers)).status_code == 403


async def test_a_request_without_an_origin_changes_nothing(ann):
    request = ann.build_request("POST", "/api/messages", json={})
    del request.headers["origin"]
    assert (await ann.send(request)).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
async def test_a_browser_that_says_it_comes_from_elsewhere_is_believed(ann, site):
    answer = await ann.post("/api/messages", json={}, headers={"Sec-Fetch-Site": site})
    assert answer.status_code == 403


@pytest.mark.parametrize("host", HOSTS)
async def test_another_host_name_leads_nowhere(ann, host):
    answer = await ann.get("/", headers={"Host": host.format(port=port(ann))})
    assert answer.status_code == 421


async def test_two_host_names_lead_nowhere(ann):
    own = f"127.0.0.1:{port(ann)}"
    raw = f"GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n".encode()
    assert b" 200 " not in (await talk(port(ann), raw)).split(b"\r\n")[0]


@pytest.mark.parametrize("path", CHANGES)
async def test_a_request_without_the_token_changes_nothing(ann, path):
    for token in (b"", b"0" * 64, b"\xe9"):
        headers = {TOKEN.encode(): token}
        assert (await ann.post(f"/api/{path}", json={}, headers=headers)).status_code == 403


async def test_a_token_of_another_session_is_refused(ann):
    async with Visitor(ann.site) as bob:
        await bob.enter("bob")
        headers = {TOKEN: bob.headers[TOKEN]}
        assert (await ann.post("/api/messages", json={}, headers=headers)).status_code == 403


@pytest.mark.parametrize("path", ["/api/threads", "/api/events?thread=t", "/files/t/x"])
@pytest.mark.parametrize("cookie", ["", "x", "0" * 43, "../web.json"])
async def test_without_a_session_nothing_is_read(ann, path, cookie):
    async with httpx2.AsyncClient(
        base_url=ann.site.url, cookies={ann.site.web.address.cookie: cookie}
    ) as stranger:
        assert (await stranger.get(path)).status_code == 401
        assert (await stranger.get("/look/")).status_code == 403
        page = await stranger.get("/")
        assert (page.status_code, page.headers["location"]) == (303, "/enter")


async def test_a_link_opens_one_page_and_never_a_second(ann):
    link = ann.site.link()
    async with httpx2.AsyncClient(base_url=ann.site.url, headers={"Origin": ann.site.url}) as browser:
        answers = [await browser.post("/api/enter", json={"link": link}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 403]


async def test_of_two_who_use_a_link_at_once_one_gets_in(ann):
    link, codes = ann.site.link(), []

    async def enter() -> None:
        async with httpx2.AsyncClient(base_url=ann.site.url, headers={"Origin": ann.site.url}) as browser:
            codes.append((await browser.post("/api/enter", json={"link": link})).status_code)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(enter)
    assert sorted(codes) == [200, *[403] * 7]


async def test_the_cookie_is_kept_from_scripts_and_other_sites(ann):
    async with httpx2.AsyncClient(base_url=ann.site.url, headers={"Origin": ann.site.url}) as browser:
        answer = await browser.post("/api/enter", json={"link": ann.site.link()})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize("path", ["/", "/enter", "/static/page.js", "/look/", "/api/threads", "/nothing"])
async def test_every_answer_forbids_what_is_not_ours(ann, path):
    answer = await ann.get(path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_leads_out_of_its_folder(ann, path):
    raw = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\nCookie: {cookie(ann)}\r\n"
    answer = await talk(port(ann), f"{raw}Connection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in {b"400", b"404"}, answer[:300]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_an_odd_body_is_a_fault_of_its_sender(ann, body):
    answer = await ann.post("/api/messages", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {409, 422}
    assert "error" in answer.json()
    assert await unchanged(ann)


async def test_a_form_of_another_page_is_no_json(ann):
    answer = await ann.post("/api/messages", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_no_other_method_does_anything(ann, method):
    assert (await ann.request(method, "/api/messages")).status_code == 405


@pytest.mark.parametrize("length", ["1000001", "99999999999999999999", "-1", "1e9", "٣"])
async def test_a_body_that_is_too_long_is_refused_before_it_is_read(ann, length):
    raw = f"POST /api/messages HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\nOrigin: {ann.site.url}\r\n"
    answer = await talk(port(ann), f"{raw}Content-Length: {length}\r\n\r\n".encode(), until=b"\r\n")
    assert answer.split(b" ")[1] in {b"413", b"400"}


@pytest.mark.parametrize(("path", "most"), [("messages", 1_000_000), ("files?name=big.bin", 20_000_000)])
async def test_a_body_in_chunks_that_does_not_end_is_cut_and_leaves_nothing(ann, path, most):
    head = (
        f"POST /api/{path} HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\nOrigin: {ann.site.url}\r\n"
        f"Content-Type: application/json\r\nCookie: {cookie(ann)}\r\n"
        f"{TOKEN}: {ann.headers[TOKEN]}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    sent = 0
    with anyio.fail_after(WITHIN_S):
        async with await anyio.connect_tcp("127.0.0.1", port(ann)) as stream:
            try:
                await stream.send(head.encode())
                while sent < most * 3:
                    await stream.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                    sent += 65_536
            except anyio.BrokenResourceError:
                pass
    assert most < sent < most * 3
    left = [file for file in ann.site.web._talk.files._sent.rglob("*") if file.is_file()]
    assert left == []


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>.txt", "../../etc/cron.d/x", "a\x00b", "\u202egpj.exe", "CON", ""]
)
async def test_the_name_of_a_file_is_never_a_path(ann, name):
    sent = (await ann.post("/api/files", params={"name": name}, content=b"x")).json()
    assert "/" not in sent["name"]
    assert "<" not in sent["name"]
    assert "\u202e" not in sent["name"]


async def test_a_connection_that_says_nothing_ends(ann, monkeypatch):
    monkeypatch.setattr("transports.web.server.REQUEST_S", 0.1)
    with anyio.fail_after(WITHIN_S):
        assert await talk(port(ann), b"GET / HTTP/1.1\r\nHost: x") == b""


async def test_silent_connections_never_keep_a_person_out(ann, monkeypatch):
    monkeypatch.setattr("transports.web.server.MOST_CONNECTIONS", 5)
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port(ann)))
            for _ in range(20)
        ]
        await streams[-1].send(b"GET / HTTP/1.1\r\nHost: x")
        with anyio.fail_after(5):
            async with ann.events(str(uuid.uuid4())) as events:
                await events.until("snapshot")
                assert (await ann.get("/api/threads")).status_code == 200
                with pytest.raises(anyio.EndOfStream):
                    await streams[0].receive()
                more = [
                    await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port(ann)))
                    for _ in range(20)
                ]
                await ann.say("hello", thread := str(uuid.uuid4()))
                assert more and thread
                await events.until("list")


ODD = {
    "both": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks in HTTP/1.0": b"Transfer-Encoding: chunked\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "another coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "a folded line": b"X: a\r\n Content-Length: 5\r\n\r\n",
    "a folded coding": b"Transfer-Encoding:\r\n chunked\r\n\r\n",
    "a bare line feed": b"Content-Length: 5\n\r\n",
    "a space before the colon": b"Content-Length : 5\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\n",
}


@pytest.mark.parametrize("kind", ODD)
async def test_a_request_whose_end_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(ann, kind):
    version = "1.0" if "1.0" in kind else "1.1"
    head = f"POST /api/leave HTTP/{version}\r\nHost: 127.0.0.1:{port(ann)}\r\nOrigin: {ann.site.url}\r\n"
    hidden = f"GET /enter HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\n\r\n"
    with anyio.fail_after(5):
        answer = await talk(port(ann), head.encode() + ODD[kind] + b"0\r\n\r\n" + hidden.encode())
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_comes_drop_by_drop_ends(ann, monkeypatch):
    monkeypatch.setattr("transports.web.guard.CHUNK_S", 0.1)
    raw = f"POST /api/enter HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\nOrigin: {ann.site.url}\r\n"
    head = f"{raw}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode()
    with anyio.fail_after(WITHIN_S):
        assert b" 408 " in await talk(port(ann), head, until=b"\r\n")


async def test_a_flood_of_event_streams_is_refused_and_the_page_still_answers(ann, monkeypatch):
    monkeypatch.setattr("transports.web.guard.MOST_REQUESTS", 5)
    async with ann.events("t"), ann.events("t"), ann.events("t"), ann.events("t"), ann.events("t"):
        assert (await ann.get("/api/threads")).status_code == 503
    monkeypatch.undo()
    with anyio.fail_after(WITHIN_S):
        while (await ann.get("/api/threads")).status_code == 503:
            await anyio.lowlevel.checkpoint()


async def test_a_head_that_is_too_long_is_refused(ann):
    raw = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port(ann)}\r\nX: {'x' * 1_000_000}\r\n\r\n"
    assert (await talk(port(ann), raw.encode())).split(b" ")[1:2] in ([b"400"], [b"431"], [])


async def talk(port: int, raw: bytes, until: bytes = b"") -> bytes:
    """Send bytes to the page, and return what comes back until it hangs up."""
    answer = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        try:
            await stream.send(raw)
            while not until or until not in answer:
                answer += await stream.receive()
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            pass
    return answer
