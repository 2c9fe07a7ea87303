"""The pages over real sockets: what they say, and that nobody gets more out of them, or anything into them."""

import json
import os
import socket
import stat
from contextlib import asynccontextmanager
from types import MappingProxyType

import anyio
from anyio import to_thread

from bot.host.status_client import ask
from bot.observe import http_pages
from bot.observe.http_pages import AT_ONCE, NO_POSTS, HttpPage, encoded, pages
from bot.observe.http_server import serve_pages
from bot.ports.status import SOCKET, NoStatus, Status
from tests.bot.observe.fake_bot import FakeBot, TransportLink
from tests.patience import WITHIN_S


@asynccontextmanager
async def serving(body, data, *, port=None, others=MappingProxyType({}), posts=NO_POSTS):
    data.mkdir(parents=True, exist_ok=True)
    watchdog = body.watchdog(data)
    async with serve_pages(pages(watchdog, others), data, port, None, posts):
        yield watchdog


async def raw(connect, said):
    got = b""
    with anyio.fail_after(WITHIN_S):
        async with await connect as stream:
            await stream.send(said)
            try:
                while True:
                    got += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return got


async def get(where, path, host="localhost", method="GET"):
    connect = anyio.connect_tcp("127.0.0.1", where) if isinstance(where, int) else anyio.connect_unix(where)
    got = await raw(connect, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def test_health_and_readiness_say_why_not(tmp_path):
    body, at = FakeBot(), tmp_path / SOCKET
    async with serving(body, tmp_path):
        assert await get(at, "/healthz") == (200, "ok\n")
        assert await get(at, "/readyz") == (200, "ok\n")
        body.edges[0].state = "reconnecting"
        assert await get(at, "/healthz") == (200, "ok\n")
        assert await get(at, "/readyz") == (503, "no transport is connected: slack is reconnecting\n")
        body.edges[0].state, body.stopping = "connected", True
        assert await get(at, "/readyz") == (503, "it is stopping\n")
        body.workers.state = "stuck"
        code, why = await get(at, "/healthz")
        assert code == 503
        assert "threads" in why


async def test_status_is_json_of_everything_and_can_be_asked_for_as_a_value(tmp_path):
    body = FakeBot([TransportLink(silent_s=None), TransportLink("discord", silent_s=3.25)], ["x is down"])
    async with serving(body, tmp_path):
        code, text = await get(tmp_path / SOCKET, "/status")
        told = json.loads(text)
        assert code == 200
        assert told["pid"] == os.getpid()
        expected = {"name": "discord", "state": "connected", "trouble": "", "silent_s": 3.2}
        assert told["transports"][1] == expected
        assert told["spend"][0] == {"scope": "day", "spent": 1.5, "reserved": 0.0, "limit": 5.0}
        assert told["rss_bytes"] > 1_000_000
        assert told["open_files"] > 3
        found = await to_thread.run_sync(ask, tmp_path)
        assert isinstance(found, Status)
        assert found.troubles == ("x is down",)


async def test_metrics_are_a_page_where_there_are_any(tmp_path):
    async with serving(FakeBot(), tmp_path):
        assert (await get(tmp_path / SOCKET, "/metrics"))[0] == 404
    async with serving(FakeBot(), tmp_path, others={"/metrics": lambda _: HttpPage(b"up 1\n")}):
        assert await get(tmp_path / SOCKET, "/metrics") == (200, "up 1\n")


async def test_the_socket_is_for_its_owner_replaces_a_dead_one_and_goes_with_the_bot(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    async with serving(FakeBot(), tmp_path):
        assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
        assert isinstance(await to_thread.run_sync(ask, tmp_path), Status)
    assert not (tmp_path / SOCKET).exists()
    assert await to_thread.run_sync(ask, tmp_path) == NoStatus("absent")


async def test_a_data_folder_with_a_long_path_has_its_socket_too(tmp_path):
    data = tmp_path / ("x" * 120) / "data"
    async with serving(FakeBot(), data):
        assert isinstance(await to_thread.run_sync(ask, data), Status)
        assert (data / SOCKET).is_socket()
    assert not (data / SOCKET).exists()


async def test_the_port_is_on_loopback_and_answers_to_a_loopback_name_alone(tmp_path, free_tcp_port):
    async with serving(FakeBot(), tmp_path, port=free_tcp_port):
        for host in (f"127.0.0.1:{free_tcp_port}", f"LOCALHOST:{free_tcp_port}", "localhost"):
            assert (await get(free_tcp_port, "/healthz", host))[0] == 200
        for host in ("evil.example", f"evil.example:{free_tcp_port}", "127.0.0.1.evil.example", ""):
            assert (await get(free_tcp_port, "/status", host))[0] == 403
        assert (await get(tmp_path / SOCKET, "/healthz", "any"))[0] == 200


async def test_a_port_that_is_taken_and_a_folder_that_takes_no_socket_keep_nobody_from_serving(
    tmp_path, caplog
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / SOCKET).mkdir()
        async with serving(FakeBot(), tmp_path, port=port):
            pass
    expected = ["health.no_socket", "health.no_port"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == expected


async def test_nothing_can_be_changed_or_found_beside_the_pages(tmp_path):
    at = tmp_path / SOCKET
    async with serving(FakeBot(), tmp_path):
        assert (await get(at, "/"))[0] == 404
        assert (await get(at, "/../journal.jsonl"))[0] == 404
        assert (await get(at, "/status", method="POST"))[0] == 405
        assert await get(at, "/healthz?verbose", method="HEAD") == (200, "")


async def test_what_an_extension_takes_by_post_is_taken_on_the_socket_alone(tmp_path, free_tcp_port):
    async def take(stream, peer, request):
        await stream.send(encoded(HttpPage(request.target), peer))

    at = tmp_path / SOCKET
    async with serving(FakeBot(), tmp_path, port=free_tcp_port, posts={"/post": take}):
        assert await get(at, "/post?x", method="POST") == (200, "/post?x")
        codes = [(await get(at, "/post"))[0], (await get(at, "/status", method="POST"))[0]]
        assert [*codes, (await get(free_tcp_port, "/post", method="POST"))[0]] == [404, 405, 405]


async def test_callers_who_say_nothing_are_hung_up_on_and_too_many_of_them_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(http_pages, "WITHIN_S", 60)
    async with serving(FakeBot(), tmp_path):
        silent = [await anyio.connect_unix(tmp_path / SOCKET) for _ in range(AT_ONCE)]
        assert await raw(anyio.connect_unix(tmp_path / SOCKET), b"") == b""
        for stream in silent:
            await stream.aclose()
        await anyio.sleep(0.05)
        assert (await get(tmp_path / SOCKET, "/healthz"))[0] == 200
        monkeypatch.setattr(http_pages, "WITHIN_S", 0.1)
        assert await raw(anyio.connect_unix(tmp_path / SOCKET), b"GET") == b""
