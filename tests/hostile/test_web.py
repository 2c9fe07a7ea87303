"""Addresses that lead where nobody should get, names that change their mind, redirects, and bombs to unpack."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.bot.documents import hostile_files as made
from tests.bot.tools.site import page, redirect, serving

from .bench import CANARY, PUBLIC, Net, Row, judge, params

pytestmark = pytest.mark.anyio

METADATA = {
    "as it is": "http://169.254.169.254/latest/meta-data/iam/",
    "of containers": "http://169.254.170.2/v2/credentials",
    "as one number": "http://2852039166/",
    "as one hexadecimal number": "http://0xa9fea9fe/",
    "in hexadecimal parts": "http://0xA9.0xFE.0xA9.0xFE/",
    "in octal parts": "http://0251.0376.0251.0376/",
    "in two parts": "http://169.16689662/",
    "in three parts": "http://169.254.43518/",
    "as IPv4 within IPv6": "http://[::ffff:169.254.169.254]/",
    "as IPv4 within IPv6, in hexadecimal": "http://[::ffff:a9fe:a9fe]/",
    "through NAT64": "http://[64:ff9b::169.254.169.254]/",
    "through 6to4": "http://[2002:a9fe:a9fe::1]/",
    "through Teredo": "http://[2001:0:a9fe:a9fe::1]/",
    "of Amazon, in IPv6": "http://[fd00:ec2::254]/",
    "of Google, by name": "http://metadata.google.internal/computeMetadata/v1/",
    "of Google, by its short name": "http://metadata.goog/",
    "of Alibaba": "http://100.100.100.200/",
    "of Azure": "http://168.63.129.16/",
    "in circled digits": "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/",
    "in full-width digits": "http://１６９.２５４.１６９.２５４/",
    "with ideographic dots": "http://169。254。169。254/",
    "with a trailing dot": "http://169.254.169.254./",
    "with zeros in front": "http://169.254.169.0254/",
}
ELSEWHERE = {
    "loopback": "http://127.0.0.1:8080/",
    "loopback, short": "http://127.1/",
    "loopback by name": "http://localhost:8000/",
    "loopback by a name below": "http://app.localhost/",
    "loopback in IPv6": "http://[::1]/",
    "this host": "http://0.0.0.0:8000/",
    "a private network": "http://10.0.0.1/",
    "a private network in IPv6": "http://[fd12::1]/",
    "a link": "http://[fe80::1%25eth0]/",
    "a name of an inner network": "http://vault.service.internal/",
    "a name without a dot": "http://intranet/",
    "a file": "file:///etc/passwd",
    "a unix socket": "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
    "a database, by gopher": "gopher://127.0.0.1:6379/_FLUSHALL",
    "mail, by port": "http://mail.example.com:25/",
    "a database, by port": "http://db.example.com:6379/",
    "a user name that looks like a host": "http://example.com@127.0.0.1/",
    "a host behind a backslash": "http://example.com\\@127.0.0.1/",
    "a line break that adds a header": "http://example.com/ HTTP/1.1\r\nMetadata: true",
    "NUL in a host": "http://example.com\x00.evil.example/",
    "an encoded host": "http://%31%32%37.0.0.1/",
    "a host of look-alike letters and a slash": "http://example.com⁄@127.0.0.1/",
}


@dataclass(frozen=True)
class Fetch(Row):
    """A page that is asked for. ``pages`` is what the site says, ``names`` where names lead."""

    pages: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


NONE: dict[str, Any] = {}


def fetch(name, url, kind="permission", says="", *, pages=NONE, names=NONE, **more):
    return Fetch(name, "web_fetch", {"url": url}, kind, says, pages=pages, names=names, **more)


def only_public(scene, _result):
    assert set(scene.net.reached) <= {PUBLIC}


def nothing_reached(scene, _result):
    assert scene.net.reached == []


def times(count):
    def look(scene, _result):
        assert scene.net.reached == [PUBLIC] * count

    return look


def dripping(stream, _path):
    async def drip():
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.05)

    return drip()


def endless_head(stream, _path):
    async def send():
        await stream.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send(b"X-A: " + b"a" * 8000 + b"\r\n")

    return send()


def endless(stream, _path):
    async def send():
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)

    return send()


BOMB = gzip.compress(b"\0" * 60_000_000, 9)
SITE = "http://site.example"
SHORT = {"tools": {"per_tool": {"web_fetch": 1500}}}

ROWS = [
    *(fetch(f"the metadata service {how}", url, after=nothing_reached) for how, url in METADATA.items()),
    *(fetch(f"not fetched: {what}", url, after=nothing_reached) for what, url in ELSEWHERE.items()),
    fetch("an address of 9,000 characters, to carry data out", "http://example.com/?" + "a" * 9000, "validation", after=nothing_reached),
    # names
    fetch("a name that leads to loopback", f"{SITE}/", names={"site.example": ["127.0.0.1"]}, after=nothing_reached),
    fetch("a name that leads to the metadata service", f"{SITE}/", names={"site.example": ["169.254.169.254"]}, after=nothing_reached),
    fetch("a name with one good address and one bad", f"{SITE}/", names={"site.example": [PUBLIC, "10.0.0.1"]}, after=nothing_reached),
    fetch("a name that leads to IPv4 in disguise", f"{SITE}/", names={"site.example": ["::ffff:127.0.0.1"]}, after=nothing_reached),
    fetch("a name with an address of one link", f"{SITE}/", names={"site.example": ["fe80::1%lo"]}, after=nothing_reached),
    fetch("a name that is rebound between check and use", f"{SITE}/", "harmless", "hello",
        names={"site.example": [[PUBLIC], ["127.0.0.1"]]}, pages={"/": page()}, after=times(1)),
    fetch("a name that is rebound before a redirect of its own", f"{SITE}/", names={"site.example": [[PUBLIC], ["127.0.0.1"]]},
        pages={"/": redirect("/latest/meta-data/")}, after=times(1)),
    fetch("a name without an address", f"{SITE}/", "not_found", names={"site.example": []}),
    # redirects
    fetch("a redirect to loopback", f"{SITE}/", pages={"/": redirect("http://127.0.0.1/")}, after=times(1)),
    fetch("a redirect to a name that is loopback", f"{SITE}/", pages={"/": redirect("http://localhost:8080/")}, after=times(1)),
    fetch("a redirect to the metadata service", f"{SITE}/", pages={"/": redirect("http://169.254.169.254/")}, after=times(1)),
    fetch("a redirect to a number", f"{SITE}/", pages={"/": redirect("http://2130706433/")}, after=times(1)),
    fetch("a redirect to a file", f"{SITE}/", pages={"/": redirect("file:///etc/passwd")}, after=times(1)),
    fetch("a redirect to a user name", f"{SITE}/", pages={"/": redirect("http://site.example@127.0.0.1/")}, after=times(1)),
    fetch("a redirect to another port", f"{SITE}/", pages={"/": redirect("http://site.example:6379/")}, after=times(1)),
    fetch("a redirect with two slashes", f"{SITE}/", pages={"/": redirect("//127.0.0.1/x")}, after=times(1)),
    fetch("a redirect to another site is told, not followed", f"{SITE}/", "harmless", "moved_to",
        pages={"/": redirect(f"http://evil.example/?q={'a' * 20}")}, after=times(1)),
    fetch("redirects without end", f"{SITE}/", "unknown", "without end", pages={"/": redirect("/")}, after=times(6)),
    fetch("a redirect that cannot be read", f"{SITE}/", pages={"/": redirect("http://[::1")}, after=times(1)),
    # what a server sends
    fetch("a page that unpacks to 60 MB", f"{SITE}/", "unknown", pages={"/": page(BOMB, "application/pdf", Content_Encoding="gzip")}),
    fetch("a text that unpacks to 60 MB", f"{SITE}/", "unknown|harmless", "no text to read|only the beginning",
        pages={"/": page(BOMB, Content_Encoding="gzip")}),
    fetch("a page packed twice", f"{SITE}/", "unknown", "not asked for", pages={"/": page(gzip.compress(BOMB), Content_Encoding="gzip, gzip")}),
    fetch("a page packed in another way", f"{SITE}/", "unknown", "not asked for", pages={"/": page(b"x", Content_Encoding="br")}),
    fetch("a page that says it is packed and is not", f"{SITE}/", "unknown", pages={"/": page(b"x" * 99, Content_Encoding="gzip")}),
    fetch("a page without end", f"{SITE}/", "unknown", pages={"/": endless}),
    fetch("a page that drips", f"{SITE}/", "harmless|timeout", "xx|too long", pages={"/": dripping}, settings=SHORT),
    fetch("a head without end", f"{SITE}/", "unknown", pages={"/": endless_head}),
    fetch("nonsense in place of HTTP", f"{SITE}/", "unknown", pages={"/": b"\0\xff" * 5000 + b"\r\n\r\n"}),
    fetch("a PDF that unpacks to 50 MB", f"{SITE}/a.pdf", "unknown|harmless", pages={"/a.pdf": page(made.pdf_of_streams(1), "application/pdf")}),
    fetch("a PDF of its own pages", f"{SITE}/a.pdf", "unknown|harmless", pages={"/a.pdf": page(made.pdf_of_itself(), "application/pdf")}),
    fetch("a document whose entities laugh, on a page", f"{SITE}/a.docx", "unknown|harmless",
        pages={"/a.docx": page(made.packed(made.docx("x"), word__document=made.word_xml(b"&a11;", made.LAUGHS)), "application/octet-stream")}),
    fetch("a document that reads our files, on a page", f"{SITE}/a.docx", "unknown|harmless", "^(?!.*root:)",
        pages={"/a.docx": page(made.packed(made.docx("x"), word__document=made.word_xml(b"&e;", made.OUTER)), "application/octet-stream")}),
    fetch("a document that says it is small", f"{SITE}/a.docx", "unknown", "damaged",
        pages={"/a.docx": page(made.lying(made.packed(made.docx("x"), word__document=made.word_xml(b"x" * 20_000_000)), 100), "application/octet-stream")}),
    fetch("a page 30,000 elements deep", f"{SITE}/", "unknown|harmless",
        pages={"/": page(b"<html>" + b"<div>" * 30_000 + b"deep", "text/html")}),
    fetch("JSON, 100,000 deep", f"{SITE}/", "unknown|harmless", pages={"/": page(b"[" * 100_000, "application/json")}),
    fetch("a picture in place of a page", f"{SITE}/", "unknown", "image", pages={"/": page(made.png(), "image/png")}),
    fetch("a media type that is an argument", f"{SITE}/", "harmless", "hello", pages={"/": page(b"hello", "text/html; charset='; rm -rf .")}),
    fetch("a status line of words", f"{SITE}/", "unknown|harmless", pages={"/": page(b"x", status="200 \x1b[2JOK")}),
    fetch("a secret that a page sends back", f"{SITE}/", "harmless", "masked", pages={"/": page(f"you sent {CANARY}")}),
    fetch("a secret in the title of a page", f"{SITE}/", "harmless", "masked",
        pages={"/": page(f"<title>{CANARY}</title><p>words and words", "text/html")}),
]  # fmt: skip

PICTURES = {  # a file of the workspace that the model looks at
    "a PNG of 10,000,000,000 pixels": made.png_of(100_000, 100_000),
    "a GIF of 65,535 a side": made.gif_of(65_535, 65_535),
    "a WebP of 16,384 a side": made.webp_of(16_384, 16_384),
    "a PNG whose note unpacks to 20 MB": made.png_with_a_note(20_000_000) + b"\0" * 6_000_000,
    "a PNG that is a zlib bomb": made.png_of(20_000, 20_000, b"\0" * 50_000_000),
}


def no_picture(scene, _result):
    assert scene.shown == [], "it would be sent to a model"


ROWS += [
    Row(f"a picture bomb: {what}", "read_file", {"path": "a.png"}, "harmless", "binary",
        before=lambda scene, data=data: scene.put("a.png", data) and None, after=no_picture)
    for what, data in PICTURES.items()
]  # fmt: skip


@pytest.mark.parametrize("row", params(ROWS))
async def test_no_page_leads_in_and_none_bursts(row, tmp_path, monkeypatch):
    if not isinstance(row, Fetch):
        await judge(row, tmp_path, monkeypatch)
        return
    async with serving() as site:
        site.pages.update(row.pages)
        net = Net({name: list(found) for name, found in row.names.items()}, port=site.ports["plain"])
        scene = await judge(row, tmp_path, monkeypatch, net)
    only_public(scene, None)


def test_the_bombs_are_bombs():
    assert len(BOMB) < 1_000_000
    assert len(zlib.decompressobj(31).decompress(BOMB, 10_000_000)) == 10_000_000
