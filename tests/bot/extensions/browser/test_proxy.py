"""The browser's way out: everything through the guard, for a visit only."""

import base64
from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream

from bot.extensions.browser import proxy as proxies
from bot.extensions.browser.proxy import Proxy
from bot.ports.errors import ToolDenied
from tests.bot.tools.site import PUBLIC
from tests.patience import WITHIN_S, until

from .site import page, serving


@pytest.fixture
async def site():
    async with serving() as site:
        yield site


class Out:
    """A proxy with one visit; what `say` sends goes to it."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy, self.port, self.visit = proxy, port, proxy.open_visit()

    @property
    def password(self) -> str:
        return base64.b64encode(f"{self.visit.name}:{self.visit.password}".encode()).decode()

    async def connect(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    def head(self, *lines: str, password: str | None = None) -> bytes:
        credentials = self.password if password is None else password
        return "\r\n".join([*lines, f"Proxy-Authorization: Basic {credentials}", "", ""]).encode()

    async def say(self, *lines: str, password: str | None = None) -> bytes:
        """Return all that is answered until the proxy hangs up."""
        async with await self.connect() as stream:
            await stream.send(self.head(*lines, password=password))
            return await rest(stream)


@pytest.fixture
async def out(site):
    proxy = Proxy(site.egress())
    async with proxy.serving() as port:
        yield Out(proxy, port)


async def rest(stream) -> bytes:
    said = b""
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                said += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return said


async def test_a_tunnel_goes_to_the_address_that_was_checked(site, out):
    site.pages["/"] = page("hello")
    async with await out.connect() as stream:
        await stream.send(out.head("CONNECT site.test:443 HTTP/1.1", "Host: site.test:443"))
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
        await stream.send(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n")
        assert (await stream.receive()).endswith(b"hello")
    assert site.reached == [(PUBLIC, 443)]


async def test_what_a_client_says_right_behind_its_head_goes_through_the_tunnel_too(site, out):
    site.pages["/"] = page("hello")
    said = await out.say(
        "CONNECT site.test:443 HTTP/1.1",
        "Host: a",
        f"Proxy-Authorization: Basic {out.password}",
        "",
        "GET / HTTP/1.1",
    )
    assert said.endswith(b"hello")


async def test_a_plain_request_is_passed_on_without_what_was_meant_for_the_proxy(site, out):
    site.pages["/a?b"] = page("hello", Connection="close, X-Hop", X_Hop=1, X_Kept=1)
    said = await out.say(
        "GET http://site.test/a?b HTTP/1.1", "Host: evil.test", "Proxy-Connection: keep-alive", "X-Mine: 1"
    )
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"hello")
    assert b"x-kept: 1" in said
    assert b"x-hop" not in said.lower()
    (head,) = site.heads
    assert "Host: site.test\r\n" in head
    assert "x-mine: 1" in head
    assert "proxy" not in head.lower()
    assert "evil" not in head


async def test_the_body_of_a_plain_request_gets_through(site, out):
    async def count(stream):
        got = site.heads[-1].partition("\r\n\r\n")[2].encode()
        while len(got) < 5:
            got += await stream.receive()
        await stream.send(page(got))

    site.pages["/form"] = count
    async with await out.connect() as stream:
        await stream.send(
            out.head("POST http://site.test/form HTTP/1.1", "Host: site.test", "Content-Length: 5")
        )
        await stream.send(b"a=b&c")
        assert (await rest(stream)).endswith(b"a=b&c")


async def test_a_second_request_on_the_same_connection_is_never_passed_on(site, out):
    """It could be for another host, and would come with that host's cookies."""
    site.pages["/"] = page("first")
    async with await out.connect() as stream:
        one = out.head("GET http://site.test/ HTTP/1.1", "Host: site.test")
        await stream.send(one + one.replace(b"site.test", b"other.test"))
        said = await rest(stream)
    assert said.count(b"HTTP/1.1") == 1
    assert b"onnection: close" in said
    assert len(site.heads) == 1


@pytest.mark.parametrize(
    "password", ["", "%%%", base64.b64encode(b"a:b").decode(), base64.b64encode(b":").decode()]
)
async def test_without_the_password_of_a_visit_nothing_is_reached(site, out, password):
    for line in ("CONNECT site.test:443 HTTP/1.1", "GET http://site.test/ HTTP/1.1"):
        assert (await out.say(line, "Host: site.test", password=password)).startswith(b"HTTP/1.1 407")
    assert site.reached == []


async def test_the_password_of_a_visit_ends_with_it(site, out):
    out.proxy.close_visit(out.visit)
    assert (await out.say("GET http://site.test/ HTTP/1.1", "Host: site.test")).startswith(b"HTTP/1.1 407")


async def test_a_tunnel_moves_nothing_after_its_visit(site, out):
    async with await out.connect() as stream:
        await stream.send(out.head("CONNECT site.test:443 HTTP/1.1", "Host: a"))
        await stream.receive()
        out.proxy.close_visit(out.visit)
        await stream.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await rest(stream) == b""
    assert site.heads == []


# The guard refuses many more, see `tests.bot.guards.test_egress`: these show that nothing goes around it.
HOSTILE = [
    "127.0.0.1:80", "localhost:80", "[::1]:443", "169.254.169.254:80", "metadata.google.internal:80", "2130706433:80",
    "inside.test:443", "looped.test:443", "halved.test:443", "site.test:22", "site.test:0", "site.test:65536",
    "site.test:99999999999", "site.test:", "site.test", ":443", "site.test:4x", "site.test:-1", "user@site.test:443",
    "site.test%00.evil:443",
]  # fmt: skip


@pytest.mark.parametrize("target", HOSTILE)
async def test_no_tunnel_leads_where_the_guard_does_not_let(site, out, target):
    said = await out.say(f"CONNECT {target} HTTP/1.1", "Host: site.test")
    assert said.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502"))
    assert site.reached == []
    assert len(out.visit.problems) == 1


@pytest.mark.parametrize(
    "target",
    [*(f"http://{host}/" for host in HOSTILE[:9]), "ftp://site.test/", "file:///etc/passwd", "/", "gopher:x"],
)
async def test_no_plain_request_leads_there_either_and_it_gets_no_word_that_could_pass_for_a_page(
    site, out, target
):
    assert await out.say(f"GET {target} HTTP/1.1", "Host: site.test") == b""
    assert site.reached == []
    assert isinstance(next(iter(out.visit.problems.values())), ToolDenied)


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x00\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: \x00\r\n\r\n",
        b"\r\n" * 10 + b"x\r\n\r\n",
        b"a" * 1_000_000,
        b"",
    ],
    ids=["TLS", "a zero byte", "no request", "no end", "nothing"],
)
async def test_what_is_not_http_is_hung_up_on(out, monkeypatch, noise):
    if not noise:
        monkeypatch.setattr(proxies, "HEAD_S", 0.05)
    async with await out.connect() as stream:
        with suppress(anyio.BrokenResourceError):
            await stream.send(noise)
        assert await rest(stream) == b""


async def test_a_tunnel_in_which_nothing_moves_ends(site, out, monkeypatch):
    monkeypatch.setattr(proxies, "IDLE_S", 0.05)
    said = await out.say("CONNECT site.test:443 HTTP/1.1", "Host: site.test")
    assert said.startswith(b"HTTP/1.1 200")


async def test_a_visit_moves_so_many_bytes_and_then_no_more(site, out, monkeypatch):
    monkeypatch.setattr(proxies, "MAX_BYTES", 1_000_000)
    out.visit = out.proxy.open_visit()
    site.pages["/"] = page(b"x" * 3_000_000)
    said = await out.say("GET http://site.test/ HTTP/1.1", "Host: site.test")
    assert 0 < len(said) <= 1_100_000
    assert out.visit.left < 0


async def test_a_server_that_says_wait_without_end_is_hung_up_on_when_the_visit_is_over(site, out):
    async def waits(stream):
        while True:
            await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await anyio.sleep(0.01)

    site.pages["/"] = waits
    async with await out.connect() as stream:
        await stream.send(out.head("GET http://site.test/ HTTP/1.1", "Host: a"))
        await until(lambda: site.heads)
        out.proxy.close_visit(out.visit)
        assert await rest(stream) == b""


async def test_a_thousand_refusals_are_not_all_remembered(out):
    for number in range(proxies.MAX_PROBLEMS + 5):
        await out.say(f"CONNECT 10.0.0.{number}:80 HTTP/1.1", "Host: a")
    assert len(out.visit.problems) == proxies.MAX_PROBLEMS


async def test_the_port_is_closed_when_no_browser_runs(site):
    async with Proxy(site.egress()).serving() as port:
        pass
    with pytest.raises(OSError):
        await anyio.connect_tcp("127.0.0.1", port)
