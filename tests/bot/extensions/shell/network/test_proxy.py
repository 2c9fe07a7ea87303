"""The proxy of a command, spoken to directly: credentials, what comes back, and its bounds."""

import base64
import json
import socket
import ssl
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.streams.tls import TLSStream

from bot.extensions.shell.network import proxy as proxies
from bot.extensions.shell.network.certificates import tls_as
from bot.extensions.shell.network.echo_mask import EchoMask, forms_of
from bot.extensions.shell.network.opening import headers_of
from bot.extensions.shell.network.proxy import Proxy
from bot.extensions.shell.network.settings import NetworkSettings
from bot.ports.config_error import ConfigInvalid
from tests.patience import WITHIN_S
from threads.errors import StoreUnavailable

from .stand_in import HOST, OTHER, SECRET, WORD, network, serving


class Client:
    """Speaks to a proxy on loopback. ``notes`` are its lines for the audit."""

    def __init__(self, net, port):
        self.net, self.port, self.notes, self.refuses = net, port, [], False
        self.noted, self.opened = anyio.Event(), 0
        self.proxy = Proxy(net, self.note, self.opening)

    async def note(self, details):
        if self.refuses:
            raise StoreUnavailable("the disk is full")
        self.notes.append(details)
        self.noted.set()

    async def opening(self):
        self.opened += 1

    async def say(self, data):
        """Return all that the proxy answers to these bytes."""
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(data.encode())
            return await everything(stream)

    async def get(self, path, host=HOST, port=0, fields=(), method="GET", body=""):
        """Return the answer to a request by TLS."""
        trust = ssl.create_default_context()
        trust.load_verify_locations(cadata=self.net.authority.decode())
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            await stream.send(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = await stream.receive()
            assert b" 200 " in answer, answer
            tls = await TLSStream.wrap(stream, hostname=host, ssl_context=trust, standard_compatible=False)
            lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *fields, "", body]
            await tls.send("\r\n".join(lines).encode())
            return await everything(tls)


async def everything(stream):
    got = b""
    try:
        while True:
            got += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return got.decode()


@asynccontextmanager
async def client(net):
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(WITHIN_S):
            served = Client(net, listener.getsockname()[1])
            tasks.start_soon(served.proxy.serve, listener)
            yield served
            tasks.cancel_scope.cancel()


@pytest.fixture
def web():
    with serving(HOST, OTHER) as stand_in:
        stand_in.pages["/hello"] = b"hello\n"
        yield stand_in


async def test_a_header_is_added_outside_in_place_of_the_command_s_own(web):
    async with client(network(web.authority, (HOST, web.port), header=SECRET)) as served:
        answer = await served.get("/hello", port=web.port, fields=["authorization: Basic own", "X-A: 1"])
    assert answer.endswith("hello\n")
    ((_, headers),) = web.seen
    assert (headers["Authorization"], headers["x-a"], headers["Accept-Encoding"]) == (SECRET, "1", "identity")
    assert headers["Host"] == f"{HOST}:{web.port}"


@pytest.mark.parametrize("path", ["/echo", "/drip"])
@pytest.mark.parametrize("header", [SECRET, "Basic " + base64.b64encode(b"ann:tf-8f2e11c0ffee77d1").decode()])
async def test_a_header_that_the_server_repeats_does_not_come_back(path, header, web):
    async with client(network(web.authority, (HOST, web.port), header=header)) as served:
        answer = await served.get(path, port=web.port, fields=["Range: bytes=0-3"])
    assert header not in answer and header.partition(" ")[2] not in answer
    assert "*" * len(header.partition(" ")[2]) in answer
    assert "Range" not in web.seen[0][1]


async def test_no_header_goes_to_another_host_by_a_redirect_or_in_plain(web):
    targets = (HOST, web.port), (OTHER, web.port)
    async with client(network(web.authority, *targets, header=SECRET)) as served:
        assert f"location: https://{OTHER}" in await served.get("/away", port=web.port)
        assert WORD not in await served.get("/echo", OTHER, web.port)
        plainly = await served.say(f"GET http://{HOST}:{web.port}/hello HTTP/1.1\r\nHost: x\r\n\r\n")
    assert f"{HOST}:{web.port} is reached by https, through CONNECT." in plainly
    assert [headers.get("Authorization") for _, headers in web.seen] == [SECRET, None]


async def test_an_encoded_answer_of_a_host_with_a_credential_is_refused(web):
    web.encoding = "gzip"
    async with client(network(web.authority, (HOST, web.port), header=SECRET)) as served:
        answer = await served.get("/hello", port=web.port)
    assert answer.startswith("HTTP/1.1 502 ") and "a secret in it could not be found" in answer


async def test_a_host_that_cannot_prove_who_it_is_gets_no_header(web):
    async with client(network(tls_as([HOST])[1], (HOST, web.port), header=SECRET)) as served:
        answer = await served.say(f"CONNECT {HOST}:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 502 packages.example.org cannot prove who it is")
    assert not web.seen


async def test_a_body_that_waits_to_be_asked_for_goes_through(web):
    async with client(network(web.authority, (HOST, web.port), header=SECRET)) as served:
        fields = ["Expect: 100-continue", "Content-Length: 5"]
        answer = await served.get("/hello", port=web.port, fields=fields, method="POST", body="12345")
    assert answer.startswith("HTTP/1.1 100 ") and answer.endswith("hello\n")
    assert "Expect" not in web.seen[0][1]


async def test_each_connection_and_each_refusal_is_noted(web):
    async with client(network(web.authority, (HOST, web.port))) as served:
        await served.get("/hello", port=web.port)
        await served.noted.wait()
        refused = await served.say("CONNECT db.corp.example:5432 HTTP/1.1\r\nHost: x\r\n\r\n")
        await served.say("nonsense\r\n\r\n")
    allowed, denied, odd = served.notes
    assert (allowed["host"], allowed["port"], allowed["decision"]) == (HOST, str(web.port), "allowed")
    assert int(allowed["sent"]) > 50 and int(allowed["received"]) > 100
    why = "db.corp.example:5432 is not in tools.network.allow. Ask the admin for it."
    assert denied == {"host": "db.corp.example", "port": "5432", "decision": "refused", "reason": why}
    assert refused.startswith(f"HTTP/1.1 403 Refused by tools.network: {why}\r\n")
    assert odd["decision"] == "refused"
    assert len(served.proxy.refusals) == 2
    assert served.opened == 1, "what is refused brings nothing in"


@pytest.mark.parametrize(
    ("bound", "value", "told"),
    [
        ("MAX_CONNECTIONS", 2, "the command made 2 connections"),
        ("MAX_BYTES", 100, "the command moved 100 bytes"),
    ],
)
async def test_connections_and_bytes_are_bounded(bound, value, told, web, monkeypatch):
    monkeypatch.setattr(proxies, bound, value)
    async with client(network(web.authority, (HOST, web.port))) as served:
        with pytest.raises((OSError, anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError)):
            for _ in range(4):
                await served.get("/hello", port=web.port)
    assert [refusal for refusal in served.proxy.refusals if told in refusal]


async def test_a_connection_on_which_nothing_moves_ends(web, monkeypatch):
    monkeypatch.setattr(proxies, "IDLE_S", 0.05)
    async with client(network(web.authority, (HOST, web.port))) as served:
        answer = await served.say(f"CONNECT {HOST}:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 ")
    assert served.notes[0]["reason"] == "nothing moved for 0.05 s"


async def test_without_an_audit_there_is_no_network(web):
    async with client(network(web.authority, (HOST, web.port))) as served:
        served.refuses = True
        await served.say("CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await served.say(f"CONNECT {HOST}:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n") == ""
    assert "Refused by tools.network: its connections cannot be written to the audit" in served.proxy.refusals


async def test_a_full_disk_brings_nothing_in(web):
    async with client(network(web.authority, (HOST, web.port))) as served:

        async def full():
            raise OSError("no space")

        served.proxy._opening = full
        answer = await served.say(f"CONNECT {HOST}:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (answer, web.seen, served.notes[0]["reason"]) == ("", [], "it broke off: OSError")


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_secret_is_hidden_whatever_the_pieces_are(size):
    forms = forms_of("Bearer abcdefgh12345678")
    text = b"a abcdefgh1 Bearer abcdefgh12345678abcdefgh12345678 abcdefgh1234567 YWJjZGVmZ2gxMjM0NTY3OA==."
    mask = EchoMask(forms)
    got = b"".join(mask.next(text[at : at + size]) for at in range(0, len(text), size)) + mask.next(
        b"", last=True
    )
    assert got == b"a abcdefgh1 " + b"*" * 39 + b" abcdefgh1234567 " + b"*" * 22 + b"==."


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ("Bearer abc", ("Authorization", "Bearer abc")),
        ("PRIVATE-TOKEN: abc", ("PRIVATE-TOKEN", "abc")),
        ("Basic YTpi", ("Authorization", "Basic YTpi")),
    ],
)
def test_a_header_has_its_name_or_is_authorization(secret, header):
    [(target, added)] = headers_of(given(), {"H": secret}).items()
    assert (target, (added.name.decode(), added.value.decode())) == ((HOST, 443), header)


@pytest.mark.parametrize("secret", ["a\nb: c", "X-A: b\rc", "ä", " "])
def test_a_header_that_would_be_two_or_none_is_a_fault(secret):
    with pytest.raises(ConfigInvalid, match=r"tools\.network\.credentials: env:H is not a header"):
        headers_of(given(), {"H": secret})


def given():
    return NetworkSettings.model_validate(
        json.loads(json.dumps({"allow": [HOST], "credentials": [{"host": HOST, "header": "env:H"}]})),
        strict=False,
    )
