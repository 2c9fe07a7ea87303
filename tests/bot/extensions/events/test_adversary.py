"""What others may try with the webhook's address: none of it becomes an event."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from bot.extensions.events import request, signature, webhook
from bot.extensions.events.accepted import MOST_WAITING, REPLAY_S, AcceptedEvents, AcceptedFile
from bot.extensions.events.intake import Intake
from bot.extensions.events.request import MOST_BYTES
from bot.extensions.events.settings import EventSettings
from bot.extensions.events.signature import CLOCKS_S
from bot.extensions.events.webhook import Webhook
from bot.observe.http_server import serve_on
from tests.bot.extensions.events.sender import JSON, RAW, as_github, signed
from tests.patience import WITHIN_S
from tests.transports.web.test_adversary import ODD, talk
from tests.world import state_file
from threads.background import background_tasks

NOW = 1_796_035_458.0
BODY = b'{"job": 17}'


class Site:
    """A webhook over a store of its own. Its clock stands still."""

    def __init__(self, data: Path, listener, client: httpx2.AsyncClient, **given) -> None:
        self.client = client
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self.now = NOW
        self.accepted = AcceptedEvents(
            state_file(data / "accepted.json", AcceptedFile()), lambda: self.now, "me", alone=True
        )
        mute = {"channel": "fake:W:C1"}
        ci = {**mute, "secret": "env:CI", "per_minute": 60}
        sources = {"ci": ci, "hub": {**ci, "form": "github"}, "mute": mute}
        settings = EventSettings.model_validate({"port": self.port, "sources": sources, **given})
        self.webhook = Webhook(settings, Intake(settings, self.accepted), {"ci": RAW, "hub": RAW})

    @property
    def texts(self):
        return [event.text for event in self.accepted.state.value.waiting]

    async def post(self, body=BODY, headers=None, path="/events/ci", method="POST") -> httpx2.Response:
        headers = signed(body, at=int(self.now)) if headers is None else headers
        url = f"http://127.0.0.1:{self.port}{path}"
        return await self.client.request(method, url, content=body, headers=headers)

    async def code(self, *args, **kwargs) -> int:
        return (await self.post(*args, **kwargs)).status_code

    def head(self, *lines: str, path="/events/ci", version="1.1") -> bytes:
        """Return the head of a request, whose signature is that of an empty body."""
        own = {f"{name}: {value}" for name, value in signed(b"", at=int(self.now)).items()}
        first = (f"POST {path} HTTP/{version}", f"Host: 127.0.0.1:{self.port}")
        return "\r\n".join((*first, *own, *lines, "")).encode()


@asynccontextmanager
async def listening(data, **given):
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with httpx2.AsyncClient(timeout=WITHIN_S) as client, background_tasks() as tasks:
        site = Site(data, listener.listeners[0], client, **given)
        tasks.start_soon(serve_on, listener, site.webhook.serve)
        yield site


@pytest.fixture
async def site(tmp_path):
    async with listening(tmp_path) as one:
        yield one


def changed(headers, **changes):
    return {**headers, **{name.replace("_", "-"): value for name, value in changes.items()}}


GOOD = signed(BODY, at=int(NOW))
WRONG = {
    "no signature": {name: value for name, value in GOOD.items() if name != "webhook-signature"},
    "an empty one": changed(GOOD, webhook_signature=""),
    "another secret": signed(BODY, at=int(NOW), secret=b"x" * 32),
    "no secret": signed(BODY, at=int(NOW), secret=b""), "of another body": signed(b"{}", at=int(NOW)),
    "of another key": changed(GOOD, webhook_id="e2"),
    "of another time": changed(GOOD, webhook_timestamp=str(int(NOW) + 1)),
    "no key": signed(BODY, "", at=int(NOW)), "a key of two words": signed(BODY, "a b", at=int(NOW)),
    "a long key": signed(BODY, "x" * 201, at=int(NOW)), "no time": signed(BODY, at=""),
    "a time that is none": signed(BODY, at="1e9"), "a time in other digits": signed(BODY, at="-1796035458"),
    "another version": changed(GOOD, webhook_signature=GOOD["webhook-signature"].replace("v1,", "v0,")),
    "the beginning of it": changed(GOOD, webhook_signature=GOOD["webhook-signature"][:-1]),
    "in capitals": changed(GOOD, webhook_signature=GOOD["webhook-signature"].upper()),
    "an hour ago": signed(BODY, at=int(NOW) - 3600),
    "just too old": signed(BODY, at=int(NOW - CLOCKS_S) - 1),
    "of the future": signed(BODY, at=int(NOW + CLOCKS_S) + 1),
}  # fmt: skip


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
async def test_what_is_not_signed_now_by_its_source_is_no_event(site, headers):
    assert await site.code(headers=headers) == 401
    assert site.texts == []


async def test_one_that_is_signed_is_an_event_also_while_its_secret_changes(site):
    answer = await site.post(headers=changed(GOOD, webhook_signature=f"v1,x {GOOD['webhook-signature']}"))
    assert (answer.status_code, site.texts) == (202, [BODY.decode()])


@pytest.mark.parametrize("path", ["/events/nobody", "/events/mute", "/events/", "/events/ci/", "/events/hub"])
async def test_nobody_learns_which_sources_there_are(site, path):
    there, elsewhere = await site.post(headers=WRONG["another secret"]), await site.post(path=path)
    assert (there.status_code, there.content) == (elsewhere.status_code, elsewhere.content)
    assert site.texts == []


async def test_all_signatures_are_compared_in_a_time_that_tells_nothing(site, monkeypatch):
    compared, compare = [], signature.compare_digest
    monkeypatch.setattr(
        signature, "compare_digest", lambda ours, theirs: compared.append(theirs) or compare(ours, theirs)
    )
    given = [GOOD["webhook-signature"], "v1,x", "v2,y"]
    for headers, path in (
        (changed(GOOD, webhook_signature=" ".join(given)), "/events/ci"),
        ({**JSON}, "/events/no"),
    ):
        await site.code(headers=headers, path=path)
    assert compared == [one.encode() for one in (*given, "")]


async def test_a_recorded_request_starts_nothing_again(site):
    answers = [await site.post(headers=GOOD) for _ in range(3)]
    assert len({answer.content for answer in answers}) == 1
    for event in await site.accepted.claim(set()):
        await site.accepted.update(event.id)  # its turn has begun
    site.now += CLOCKS_S
    assert await site.code(headers=GOOD) == 202
    site.now += 1
    assert await site.code(headers=GOOD) == 401
    assert site.texts == []
    assert REPLAY_S > 2 * CLOCKS_S


async def test_a_recorded_delivery_of_github_starts_nothing_again_whatever_it_is_called(site):
    for delivery in ("d1", "d2"):
        assert await site.code(headers=as_github(BODY, delivery), path="/events/hub") == 202
    assert await site.code(headers=as_github(b"{}"), path="/events/hub") == 401
    assert await site.code(headers=GOOD, path="/events/hub") == 401
    assert len(site.texts) == 1


async def test_many_at_once_with_one_key_are_one_event_and_no_more_wait_than_are_allowed(site):
    codes: list[int] = []

    async def send(body: bytes, key: str) -> None:
        codes.append(await site.code(body, signed(body, key, at=int(site.now))))

    async with anyio.create_task_group() as tasks:
        for n in range(30):
            tasks.start_soon(send, b"%d" % n, "one")
    assert (codes, len(site.texts)) == ([202] * 30, 1)
    while len(site.texts) < MOST_WAITING:
        site.now += 60
        for n in range(50):
            await send(b"more", f"{site.now}-{n}")
    assert codes.count(429) == 0
    assert codes[-1] == 503
    assert len(site.texts) == MOST_WAITING


FORGED = {
    "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "hooks.example.org", "X-Forwarded-Proto": "https",
    "Forwarded": "for=127.0.0.1;host=hooks.example.org", "X-Real-IP": "127.0.0.1",
    "X-Original-URL": "/events/mute", "X-HTTP-Method-Override": "POST",
    "Authorization": "Basic YWRtaW46YWRtaW4=",
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
async def test_what_a_request_says_of_its_way_gives_no_right(site, name):
    assert await site.code(headers={**WRONG["another secret"], name: FORGED[name]}) == 401
    assert await site.code(headers={**GOOD, "Host": "evil.example", name: FORGED[name]}) == 421
    assert await site.code(headers={**GOOD, name: FORGED[name]}) == 202


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", "0.0.0.0:{port}", ""],
)
async def test_another_host_name_leads_nowhere(site, host):
    assert await site.code(headers={**GOOD, "Host": host.format(port=site.port)}) in {400, 421}
    assert site.texts == []


async def test_behind_a_proxy_its_name_counts(tmp_path):
    async with listening(tmp_path, public_url="https://hooks.example.org") as site:
        assert await site.code(headers={**GOOD, "Host": "Hooks.Example.org"}) == 202
        assert await site.code(headers={**GOOD, "Host": "hooks.example.org.evil.example"}) == 421


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_no_other_method_and_no_other_page_does_anything(site, method):
    assert await site.code(headers=GOOD, method=method) == 405
    assert await site.code(headers=GOOD, path="/post") == 404


KINDS = [
    "", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/html",
    "application/json; charset=utf-16", "application/json; charset=utf-8; charset=utf-7",
    "text/plain; format=flowed", "application/jsonx",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_an_odd_content_type_is_refused(site, kind):
    assert await site.code(headers={**GOOD, "Content-Type": kind}) == 415
    assert site.texts == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "Text/Plain;charset=UTF-8", 'application/json; charset="utf-8"']
)
async def test_plain_text_and_json_are_taken(site, kind):
    assert await site.code(headers={**GOOD, "Content-Type": kind}) == 202


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "zstd"])
async def test_a_body_that_is_packed_is_refused_unread(site, coding):
    assert await site.code(headers={**GOOD, "Content-Encoding": coding}) == 415


BODIES = {
    "nothing": (b"", 422), "blanks": (b" \r\n\t ", 422), "zeros": (b"\0\0", 422),
    "bytes": (b"\xff\xfe\x00h", 400), "UTF-16": ("words".encode("utf-16"), 400),
    "half a surrogate": (b"\xed\xa0\x80", 400), "deep": (b"[" * 60_000, 202),
    "zeros within": (b"a\0b", 202),
}  # fmt: skip


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES)
async def test_an_odd_body_is_a_fault_of_its_sender_or_plain_words(site, body, code):
    assert await site.code(body, signed(body, at=int(site.now))) == code
    assert ["\0" in text for text in site.texts] == [False] * (code == 202)


async def test_a_body_that_is_too_long_is_cut_off(site):
    body = b"x" * (MOST_BYTES + 1)
    assert await site.code(body, signed(body, at=int(NOW))) == 413
    assert await site.code(body[1:], signed(body[1:], at=int(NOW))) == 202
    endless = site.head("Transfer-Encoding: chunked", "") + b"10000\r\n" + b"x" * 65_536 + b"\r\n1\r\nx\r\n"
    with anyio.fail_after(WITHIN_S):
        assert b" 413 " in await talk(site.port, endless)
    assert len(site.texts) == 1


@pytest.mark.parametrize("kind", ODD)
async def test_a_request_whose_end_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(
    site, kind
):
    head = site.head(version="1.0" if "1.0" in kind else "1.1")
    with anyio.fail_after(WITHIN_S):
        answer = await talk(site.port, head + ODD[kind] + b"0\r\n\r\n" + site.head("Content-Length: 0", ""))
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1 ") == 1
    assert site.texts == []


async def test_a_second_request_on_a_connection_is_not_read(site):
    one = changed(GOOD, Content_Length=str(len(BODY)), Host=f"127.0.0.1:{site.port}")
    head = "\r\n".join(
        ("POST /events/ci HTTP/1.1", *(f"{name}: {value}" for name, value in one.items()), "", "")
    )
    other = head.replace("webhook-id: e1", "webhook-id: e2")
    with anyio.fail_after(WITHIN_S):
        answer = await talk(site.port, head.encode() + BODY + other.encode() + BODY)
    assert (answer.count(b"HTTP/1.1 "), len(site.texts)) == (1, 1)


@pytest.mark.parametrize(
    "twice", ["webhook-id: e2", "webhook-timestamp: 1", "webhook-signature: v1,x", "Content-Type: text/plain"]
)
async def test_a_header_that_stands_there_twice_is_refused(site, twice):
    with anyio.fail_after(WITHIN_S):
        assert b" 400 " in await talk(site.port, site.head("Content-Length: 0", twice, ""))


async def test_a_head_that_is_too_long_is_refused(site):
    with anyio.fail_after(WITHIN_S):
        assert b" 400 " in await talk(site.port, site.head(f"X: {'x' * 100_000}", ""))


async def test_who_is_slow_is_cut_off(site, monkeypatch):
    monkeypatch.setattr(webhook, "HEAD_S", 0.05)
    monkeypatch.setattr(request, "BODY_S", 0.05)
    with anyio.fail_after(WITHIN_S):
        assert b" 400 " in await talk(site.port, b"POST /events/ci HTTP/1.1\r\nHost: x")
        assert b" 408 " in await talk(site.port, site.head("Content-Length: 100", "") + b"{")


async def test_silent_connections_are_bounded_and_end(site, monkeypatch):
    monkeypatch.setattr(webhook, "HEAD_S", 0.2)
    site.webhook._slots.total_tokens = 3
    with anyio.fail_after(WITHIN_S):
        async with AsyncExitStack() as stack:
            for _ in range(10):
                await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", site.port))
            while True:
                try:
                    assert await site.code() == 202
                    break
                except httpx2.TransportError:  # until the silent ones are cut off
                    await anyio.lowlevel.checkpoint()
