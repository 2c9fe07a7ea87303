"""The HTTP server of the page: TLS, a port that is taken, readers that stop, and the end of the process."""

from __future__ import annotations

import socket
import ssl
import subprocess
import uuid
from email.utils import parsedate_to_datetime
from shutil import which

import anyio
import httpx2
import pytest

from tests.patience import WITHIN_S, until
from tests.transports.settling import beside
from tests.transports.web.alone import transport
from tests.transports.web.site import Visitor, visiting
from threads.errors import TransportFatal
from threads.model import Outgoing, TextDelta, ThreadId
from transports.web.address import Address
from transports.web.server import listen

THREAD = ThreadId("web", "", "you", "t")


async def sink(_):
    raise AssertionError


class Alone:
    """A page without a bot as a `tests.transports.web.site.Site`."""

    def __init__(self, web) -> None:
        self.web = web

    @property
    def url(self) -> str:
        return self.web.address.url

    def link(self, person: str = "you", name: str = "") -> str:
        from transports.web.sessions import Person  # noqa: PLC0415

        return self.web.sessions.link(Person(id=person, name=name))


async def raw_stream(web, ann, thread="t", receive_bytes=0):
    """Open an event stream on a socket of our own, which reads only what it is told to."""
    stream = await anyio.connect_tcp("127.0.0.1", web.address.port)
    cookies = "; ".join(f"{name}={value}" for name, value in ann.cookies.items())
    head = f"GET /api/events?thread={thread} HTTP/1.1\r\nHost: 127.0.0.1:{web.address.port}\r\nCookie: {cookies}\r\n\r\n"
    await stream.send(head.encode())
    return stream


async def test_a_certificate_serves_the_page_by_tls_with_a_cookie_that_never_travels_without(tmp_path):
    if (openssl := which("openssl")) is None:
        pytest.skip("this machine has no openssl")
    certificate, key = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    web = transport(tmp_path, address=Address("127.0.0.1", 0, tls=True), tls=(certificate, key))
    async with beside(lambda: web.serve(sink)):
        await web.reconnected()
        trusted = ssl.create_default_context(cafile=certificate)
        async with httpx2.AsyncClient(base_url=web.address.url, verify=trusted) as browser:
            browser.headers["Origin"] = web.address.url
            answer = await browser.post("/api/enter", json={"link": Alone(web).link()})
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-threadfast-")
            assert "Secure" in cookie
            assert "max-age" in (await browser.get("/")).headers["strict-transport-security"]
            assert "threadfast" in (await browser.get("/")).text
        async with httpx2.AsyncClient(base_url=web.address.url.replace("https", "http")) as plain:
            with pytest.raises(httpx2.HTTPError):
                await plain.get("/")


async def test_a_port_that_is_taken_stops_the_page_with_a_word_what_to_do(tmp_path):
    async with visiting(tmp_path / "a") as ann:
        port = ann.site.web.address.port
        other = transport(tmp_path / "b", address=Address("127.0.0.1", port))
        with pytest.raises(TransportFatal, match=r"in use; choose another port with --port"):
            await other.serve(sink)
        assert other.state != "connected"


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head():
    with listen(Address("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_answer_has_the_time_of_its_request(tmp_path, monkeypatch):
    async with visiting(tmp_path) as ann:
        for now in (1_800_000_000.0, 1_800_000_500.0):
            monkeypatch.setattr("time.time", lambda now=now: now)
            answer = await ann.get("/enter")
            assert parsedate_to_datetime(answer.headers["date"]).timestamp() == now


async def test_a_reader_that_stops_is_cut_off_and_its_connection_closed(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("transports.web.stream.WRITE_S", 0.3)
    web = transport(tmp_path)
    async with beside(lambda: web.serve(sink)):
        await web.reconnected()
        async with Visitor(Alone(web)) as ann:
            await ann.enter()
            deaf = await raw_stream(web, ann)
            async with deaf:
                with anyio.fail_after(WITHIN_S):
                    await until(lambda: web._talk._streams)
                    while web._talk._streams:  # more than all buffers between us hold
                        web._talk._publish(THREAD, {"op": "delta", "id": "m", "text": "x" * 500_000})
                        await anyio.sleep(0.05)
                with (
                    anyio.fail_after(WITHIN_S),
                    pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)),
                ):
                    while True:
                        await deaf.receive(1_000_000)
    assert "without completing" not in caplog.text


async def test_a_page_that_stops_reading_costs_nobody_anything(tmp_path):
    web = transport(tmp_path)
    async with beside(lambda: web.serve(sink)):
        await web.reconnected()
        async with Visitor(Alone(web)) as ann:
            await ann.enter()
            deaf = await raw_stream(web, ann)
            async with deaf, ann.events("t") as events:
                await events.until("list")
                for number in range(3_000):
                    web.show(THREAD, "m", TextDelta(f"word {number} " * 20))
                    await anyio.lowlevel.checkpoint()
                await web.post(Outgoing(THREAD, "web::you:m", "done", "reply", "m"))
                await events.until("post", id="m")
            ring = web._talk._feeds.of(str(THREAD)).ring
            assert ring._bytes <= 1_100_000, (
                "what the deaf page has not read is kept once, for all, and bounded"
            )


async def test_a_stop_ends_open_pages_at_once(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(str(uuid.uuid4())) as events:
        await events.until("list")
        with anyio.fail_after(WITHIN_S):
            await ann.site.stop()
