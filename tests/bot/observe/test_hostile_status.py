"""Whoever comes to the socket and the port with bad intent gets nothing, holds nobody up, and ends nothing."""

import json
import os
import resource
import socket
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from bot.host.status_client import ask
from bot.observe import http_pages, http_server
from bot.observe.http_pages import AT_ONCE, HttpPage
from bot.observe.http_server import serve_pages
from bot.ports.status import SOCKET, NoStatus, Status
from tests.bot.observe.fake_bot import FakeBot, TransportLink
from tests.bot.observe.test_health import get, raw, serving
from tests.patience import WITHIN_S, until


@contextmanager
def no_descriptors_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 1, hard)
    )
    try:
        with pytest.raises(OSError, match="Too many"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@pytest.mark.parametrize("over", ["socket", "port"])
async def test_where_no_descriptor_is_left_the_bot_goes_on_and_answers_when_there_are_some_again(
    tmp_path, monkeypatch, caplog, over, free_tcp_port
):
    monkeypatch.setattr(http_server, "REFUSED_S", 0.05)
    async with serving(FakeBot(), tmp_path, port=free_tcp_port):
        await get(free_tcp_port, "/healthz")
        with socket.socket(socket.AF_UNIX if over == "socket" else socket.AF_INET) as waiting:
            waiting.setblocking(False)
            with no_descriptors_left():
                with suppress(BlockingIOError):
                    waiting.connect(
                        str(tmp_path / SOCKET) if over == "socket" else ("127.0.0.1", free_tcp_port)
                    )
                await until(lambda: "health.not_accepting" in caplog.text)
        assert (await get(free_tcp_port, "/healthz"))[0] == 200
        assert isinstance(await to_thread.run_sync(ask, tmp_path), Status)


async def test_a_thousand_connections_that_say_nothing_keep_the_socket_free_of_the_ports_crowd(
    tmp_path, free_tcp_port
):
    async with serving(FakeBot(), tmp_path, port=free_tcp_port), AsyncExitStack() as crowd:
        for _ in range(AT_ONCE):
            silent = await anyio.connect_tcp("127.0.0.1", free_tcp_port)
            await crowd.enter_async_context(silent)
            await silent.send(b"GET /status HTTP/1.1\r\nX-Slow: ")
        for _ in range(1000):
            late = await anyio.connect_tcp("127.0.0.1", free_tcp_port)
            await late.aclose()
        assert isinstance(await to_thread.run_sync(ask, tmp_path), Status)


async def test_a_drip_of_bytes_is_cut_off_in_time_and_a_reader_that_never_reads_too(tmp_path, monkeypatch):
    monkeypatch.setattr(http_pages, "WITHIN_S", 0.3)
    big = {"/big": lambda: HttpPage(b"x" * 30_000_000)}
    async with serve_pages(big, tmp_path, None):
        slow = await anyio.connect_unix(tmp_path / SOCKET)
        never = await anyio.connect_unix(tmp_path / SOCKET)
        await never.send(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(WITHIN_S), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            while True:
                await slow.send(b"G")
                await anyio.sleep(0.05)
        got = 0
        with anyio.fail_after(WITHIN_S), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            while True:
                got += len(await never.receive())
        assert got < 30_000_000
        await slow.aclose()
        await never.aclose()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"GET /../status HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET //status HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /%73tatus HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET http://evil.example/status HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"FROB /status HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\nx", b"405"),
        (b"POST /status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"405"),
        (b"GET /status HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", b"200"),
        (b"GET /status HTTP/1.0\r\n\r\n", b"403"),
        (b"GET /status HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", b"403"),
        (b"GET /status HTTP/1.1\r\nHost: 127.0.0.1@evil.example\r\n\r\n", b"403"),
        (b"GET /status HTTP/1.1\r\nHost: evil.example:localhost\r\n\r\n", b"403"),
        (b"GET /status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b""),
        (b"GET /status HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n\r\n", b"403"),
        (b"GET /status HTTP/1.1\r\nHost: loc\x00alhost\r\n\r\n", b""),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
        (b"GET /status HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n", b""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"403"),
        (b"\r\n\r\n", b""),
        (b"GET /\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000, b""),
        (b"\x16\x03\x01\x02\x00\x01" * 99, b""),
    ],
)
async def test_tricks_of_path_method_and_host_get_a_refusal_or_nothing(
    tmp_path, monkeypatch, said, code, free_tcp_port
):
    monkeypatch.setattr(http_pages, "WITHIN_S", 0.3)
    async with serving(FakeBot(), tmp_path, port=free_tcp_port):
        got = await raw(anyio.connect_tcp("127.0.0.1", free_tcp_port), said)
        assert got.partition(b"\r\n")[0].removeprefix(b"HTTP/1.1 ").strip() == code
        assert code == b"200" or b"uptime" not in got
        assert (await get(free_tcp_port, "/healthz"))[0] == 200


async def test_of_several_requests_in_one_breath_the_first_is_answered(tmp_path):
    async with serving(FakeBot(), tmp_path):
        asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await raw(anyio.connect_unix(tmp_path / SOCKET), asked * 50)).count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("kind", ["a folder", "a fifo", "a file", "a link to nothing", "a link to a file"])
async def test_whatever_lies_where_the_socket_has_to_be_is_left_and_the_bot_serves(tmp_path, caplog, kind):
    path, mine = tmp_path / SOCKET, tmp_path / "mine"
    mine.write_text("mine")
    match kind:
        case "a folder":
            path.mkdir()
        case "a fifo":
            os.mkfifo(path)
        case "a file":
            path.write_text("x")
        case _:
            path.symlink_to(tmp_path / "nothing" if "nothing" in kind else mine)
    before = path.lstat()
    async with serving(FakeBot(), tmp_path):
        assert isinstance(await to_thread.run_sync(ask, tmp_path), NoStatus)
    assert "health.no_socket" in caplog.text
    assert path.lstat().st_ino == before.st_ino
    assert mine.read_text() == "mine"


async def test_a_page_that_fails_or_changes_under_the_asker_is_told_as_failed_and_ends_nothing(
    tmp_path, caplog
):
    body = FakeBot()
    async with serving(body, tmp_path):
        body.registry.__class__.__len__ = lambda _: 1 / 0
        try:
            code, text = await get(tmp_path / SOCKET, "/status")
        finally:
            body.registry.__class__.__len__ = lambda _: 2
        assert (code, text) == (500, "this page failed; see the log\n")
        assert "health.page_failed" in caplog.text
        for n in range(20):
            body.edges[:] = [TransportLink(f"e{n}", "connected" if n % 2 else "reconnecting")] * (n % 3)
            assert json.loads((await get(tmp_path / SOCKET, "/status"))[1])["pid"] == os.getpid()
