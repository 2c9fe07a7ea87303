"""Addresses, names and redirects that lead inward, bombs to unpack, and secrets in pages."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.bot.extensions.documents import hostile_files as made
from tests.bot.tools.site import page, redirect, serving

from .bench import CANARY, PUBLIC, FakeNetwork, Row, params, run_row

SITE = "http://site.example"
BOMB = gzip.compress(b"\0" * 60_000_000, 9)
BINARY = "application/octet-stream"
NONE: dict[str, Any] = {}


@dataclass(frozen=True)
class Fetch(Row):
    """A page to fetch. ``pages`` are those of the site; ``names`` maps hosts to addresses."""

    pages: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


def fetch(name, url=f"{SITE}/", outcome="permission", pattern="", *, pages=NONE, names=NONE, **more):
    return Fetch(name, "web_fetch", {"url": url}, outcome, pattern, pages=pages, names=names, **more)


def nothing_reached(harness, _result):
    assert harness.network.reached == []


def reached_once(harness, _result):
    assert harness.network.reached == [PUBLIC]


def no_images(harness, _result):
    assert harness.images == [], "it would be sent to a model"


PAGES = [
    fetch("the metadata service", "http://169.254.169.254/latest/meta-data/iam/", after=nothing_reached),
    fetch("loopback in disguise", "http://0x7f.1/", after=nothing_reached),
    fetch("a file", "file:///etc/passwd", after=nothing_reached),
    fetch("an address of 9,000 characters, to carry data out", f"{SITE}/?" + "a" * 9000, "validation", after=nothing_reached),
    fetch("a name that leads to loopback", names={"site.example": ["127.0.0.1"]}, after=nothing_reached),
    fetch("a name with one good address and one bad", names={"site.example": [PUBLIC, "10.0.0.1"]}, after=nothing_reached),
    fetch("a redirect to the metadata service", pages={"/": redirect("http://169.254.169.254/")}, after=reached_once),
    fetch("a page that unpacks to 60 MB", outcome="unknown", pages={"/": page(BOMB, "application/pdf", Content_Encoding="gzip")}),
    fetch("a text that unpacks to 60 MB", outcome="unknown|harmless", pattern="no text to read|only the beginning",
        pages={"/": page(BOMB, Content_Encoding="gzip")}),
    fetch("a PDF that unpacks to 50 MB", f"{SITE}/a.pdf", "unknown|harmless", pages={"/a.pdf": page(made.pdf_of_streams(1), "application/pdf")}),
    fetch("a document that reads our files, on a page", f"{SITE}/a.docx", "unknown|harmless", "^(?!.*root:)",
        pages={"/a.docx": page(made.packed(made.docx("x"), word__document=made.word_xml(b"&e;", made.OUTER)), BINARY)}),
    fetch("a document that says it is small", f"{SITE}/a.docx", "unknown", "damaged",
        pages={"/a.docx": page(made.lying(made.packed(made.docx("x"), word__document=made.word_xml(b"x" * 20_000_000)), 100), BINARY)}),
    fetch("a media type that is an argument", outcome="harmless", pattern="hello", pages={"/": page(b"hello", "text/html; charset='; rm -rf .")}),
    fetch("a status line of words", outcome="unknown|harmless", pages={"/": page(b"x", status="200 \x1b[2JOK")}),
    fetch("a secret that a page sends back", outcome="harmless", pattern="masked", pages={"/": page(f"you sent {CANARY}")}),
    fetch("a secret in the title of a page", outcome="harmless", pattern="masked",
        pages={"/": page(f"<title>{CANARY}</title><p>words and words", "text/html")}),
]  # fmt: skip
PICTURES = {
    "a PNG of 10,000,000,000 pixels": made.png_of(100_000, 100_000),
    "a PNG that is a zlib bomb": made.png_of(20_000, 20_000, b"\0" * 50_000_000),
}


@pytest.mark.parametrize("row", params(PAGES))
async def test_no_page_leads_in_and_none_bursts(row, tmp_path, monkeypatch):
    async with serving() as site:
        site.pages.update(row.pages)
        network = FakeNetwork(row.names, port=site.ports["plain"])
        await run_row(row, tmp_path, monkeypatch, network)
    assert set(network.reached) <= {PUBLIC}


@pytest.mark.parametrize("picture", PICTURES)
async def test_a_picture_that_unpacks_to_too_much_is_not_sent_to_a_model(picture, tmp_path, monkeypatch):
    row = Row(picture, "read_file", {"path": "a.png"}, "harmless", "binary",
        before=lambda harness: harness.put("a.png", PICTURES[picture]), after=no_images)  # fmt: skip
    await run_row(row, tmp_path, monkeypatch)
