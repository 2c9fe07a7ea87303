"""Reading what people attach: the token only to Slack, and nothing incomplete taken for whole."""

from __future__ import annotations

import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from tests.fakes.http import Cut as CutMidway
from tests.fakes.http import FakeHttp, Garbage, Reply, Stall
from tests.fakes.slack import ApiError, Cut, FakeSlack, Html, RateLimited
from tests.patience import WITHIN_S, until
from threads.errors import FileUnavailable
from threads.model import Attachment
from transports.shared import downloads as files
from transports.shared.link.proxy import own_origin
from transports.slack.api.http_session import HOSTS, open_session, trusted
from transports.slack.api.web_api import open_web
from transports.slack.events.downloads import OTHER_KIND, WITHHELD, located, open_download
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_message import Me, attachment_of

TOKEN = "xoxb-secret-token"


class FileServer(FakeHttp):
    paths = ("/f", "/g")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(files, "PAUSE_S", 0.01)


@pytest.fixture
async def session():
    async with open_session("http://127.0.0.1:1/api/") as session:
        yield session


@pytest.fixture
async def slack():
    async with FakeSlack(echo=False) as fake:
        yield fake


async def read(session, url, base, attachment=None, **more):
    """Return the chunks of a file."""
    asked = attachment or Attachment("F1", "notes.txt", "text/plain", 0, url)
    more = {"token": TOKEN, **more}
    async with open_download(session, asked, own=own_origin(base), **more) as chunks:
        return [chunk async for chunk in chunks]


def stored_file(slack, content=b"some notes", name="notes.txt", kind="text/plain"):
    file = slack.new_file(name, content, kind)
    return Attachment(file.id, name, kind, len(content), file.url)


async def download(session, slack, attachment, **more):
    chunks = await read(session, "", slack.api_base_url, attachment, token=slack.bot_token, **more)
    return b"".join(chunks)


async def refused(session, slack, attachment, **more):
    with pytest.raises(FileUnavailable) as error:
        await download(session, slack, attachment, **more)
    assert slack.bot_token not in repr(error.value) + str(error.value.__context__)
    return error.value.friendly


async def test_a_file_is_read_with_the_token_in_small_chunks(session, slack):
    content = bytes(range(256)) * 4_000
    attachment = stored_file(slack, content, "a.bin", "application/octet-stream")
    chunks = await read(session, "", slack.api_base_url, attachment, token=slack.bot_token)
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 64 * 1024
    assert slack.downloads == [(attachment.id, slack.bot_token)]


async def test_a_login_page_in_place_of_the_file_names_the_missing_scope(session, slack):
    slack.scopes.discard("files:read")
    assert "files:read" in await refused(session, slack, stored_file(slack))


async def test_an_html_file_is_a_file_but_the_login_page_in_its_place_is_not(session, slack):
    page = stored_file(slack, b"<h1>Mine</h1>", "page.html", "text/html")
    assert await download(session, slack, page) == b"<h1>Mine</h1>"
    slack.scopes.discard("files:read")
    assert "files:read" in await refused(session, slack, page)


async def test_a_canvas_is_a_page_and_the_login_page_in_its_place_is_not(session, slack):
    shown = {"mode": "quip", "title": "Plan", "mimetype": "application/vnd.slack-docs", "size": 9_999}
    file = slack.new_file("plan", b"<h1>Plan</h1>", "text/html", shown=shown)
    canvas = attachment_of(file.view(), "U1")
    assert (canvas.name, canvas.media_type) == ("Plan.html", "text/html")
    assert await download(session, slack, canvas) == b"<h1>Plan</h1>"
    slack.scopes.discard("files:read")
    assert "files:read" in await refused(session, slack, canvas, granted=False)


async def where(slack, attachment):
    async with open_web(slack.api_base_url, slack.bot_token) as web:
        return await located(attachment, Lookups(web, Me("T1", "UBOT"), lambda _: None))


async def test_a_file_of_another_company_is_asked_for_by_its_id(session, slack):
    file = slack.new_file("plan.txt", b"the plan", "text/plain", withheld=True)
    found = await where(slack, attachment_of(file.view(), "U1"))
    assert await download(session, slack, found) == b"the plan"
    kept = Attachment(file.id, "plan.txt", url=file.url)
    slack.calls.clear()
    assert await where(slack, kept) == kept
    assert slack.calls == [], "one with an address needs no call"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ApiError("file_not_found"), "not there any more"),
        (ApiError("file_deleted"), "not there any more"),
        (ApiError("missing_scope"), "files:read"),
        (ApiError("access_denied"), "does not let me see it"),
        (Html(503), "Sending it again may help"),
        (RateLimited(600), "Sending it again may help"),
    ],
)
async def test_a_file_that_slack_does_not_describe_has_the_true_reason(slack, fault, told):
    file = slack.new_file("plan.txt", b"the plan", "text/plain", withheld=True)
    slack.fail("files.info", fault)
    with pytest.raises(FileUnavailable) as error:
        await where(slack, attachment_of(file.view(), "U1"))
    assert told in error.value.friendly


async def test_a_file_of_a_mode_of_tomorrow_is_read_if_it_has_an_address_or_named(session, slack):
    cube = slack.new_file("a.cube", b"cube", "text/plain", shown={"mode": "cube"})
    assert await download(session, slack, await where(slack, attachment_of(cube.view(), "U1"))) == b"cube"
    cube.shown |= {"url_private": None, "url_private_download": None}
    with pytest.raises(FileUnavailable) as error:
        await where(slack, attachment_of(cube.view(), "U1"))
    assert error.value.friendly == OTHER_KIND


async def test_a_file_that_stays_withheld_belongs_to_another_company(slack):
    file = slack.new_file("plan.txt", b"x", "text/plain", withheld=True, shown={"mode": "file_access"})
    with pytest.raises(FileUnavailable) as error:
        await where(slack, attachment_of(file.view(), "U1"))
    assert error.value.friendly == WITHHELD


@pytest.mark.parametrize(
    "status,said", [(401, "files:read"), (403, "files:read"), (404, "not there"), (418, "did not")]
)
async def test_a_refusal_is_told_after_one_try(session, slack, status, said):
    slack.fail("download", Html(status), Html(status))
    assert said in await refused(session, slack, stored_file(slack))
    assert len(slack.downloads) == 1


@pytest.mark.parametrize("fault", [Html(500), Html(503), Cut(), RateLimited(0)])
async def test_what_may_pass_is_tried_twice(session, slack, fault):
    slack.fail("download", fault)
    assert await download(session, slack, stored_file(slack)) == b"some notes"
    slack.fail("download", fault, forever=True)
    assert await refused(session, slack, stored_file(slack))
    # aiohttp asks again by itself when a kept connection turns out to be dead
    assert len(slack.downloads) <= 6


async def test_a_long_retry_after_is_not_waited_for(session, slack):
    slack.fail("download", RateLimited(600))
    assert "wait" in await refused(session, slack, stored_file(slack))


async def test_a_short_retry_after_is_obeyed(session, slack):
    slack.fail("download", RateLimited(1))
    started = time.monotonic()
    assert await download(session, slack, stored_file(slack)) == b"some notes"
    assert time.monotonic() - started >= 1


async def test_a_file_without_an_address_is_gone(session, slack):
    assert "not there" in await refused(session, slack, Attachment("F1", "a"))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(silent=(Garbage(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"),)),
        Reply((b"half", CutMidway())),
        Reply((b"half", CutMidway("rst"))),
    ],
)
async def test_a_file_that_breaks_off_is_never_whole(session, reply):
    async with FileServer([reply]) as server:
        attachment = Attachment("F1", "a.txt", "text/plain", 0, f"{server.base_url}/f")
        with pytest.raises(FileUnavailable) as error:
            await read(session, "", server.base_url, attachment)
    assert "broke off" in error.value.friendly
    assert TOKEN not in repr(error.value.__context__)


async def test_a_file_shorter_than_slack_said_is_never_whole(session, slack):
    file = stored_file(slack)
    longer = Attachment(file.id, file.name, file.media_type, file.size + 1, file.url)
    assert "broke off" in await refused(session, slack, longer)


@pytest.mark.parametrize("steps", [(Stall(),), (b"some", Stall())])
async def test_a_download_that_falls_silent_is_given_up(session, steps, monkeypatch):
    monkeypatch.setattr(files, "IDLE_S", 0.1)
    async with FileServer([Reply(steps)] * 2) as server:
        with pytest.raises(FileUnavailable):
            await read(session, f"{server.base_url}/f", server.base_url)


async def test_redirects_are_followed_on_the_same_host(session):
    async with FileServer([Reply(status=302, headers=(("location", "/g"),)), Reply((b"here",))]) as server:
        assert await read(session, f"{server.base_url}/f", server.base_url) == [b"here"]
        assert [seen.path for seen in server.requests] == ["/f", "/g"]


async def test_a_redirect_to_another_host_never_sees_a_request(session):
    async with FileServer(lambda _: Reply((b"thanks for the token",))) as thief:
        there = (("location", f"{thief.base_url}/f"),)
        async with FileServer([Reply(status=302, headers=there)]) as server:
            with pytest.raises(FileUnavailable) as error:
                await read(session, f"{server.base_url}/f", server.base_url)
        assert thief.requests == [] and thief.connections == 0
    assert "outside of Slack" in error.value.friendly


async def test_redirects_end(session):
    async with FileServer(lambda _: Reply(status=302, headers=(("location", "/f"),))) as server:
        with pytest.raises(FileUnavailable):
            await read(session, f"{server.base_url}/f", server.base_url)
        assert len(server.requests) == files.REDIRECTS + 1


async def test_a_reader_that_leaves_early_closes_the_connection(session):
    async with FileServer([Reply((b"x" * 100_000, Stall()))]) as server:
        attachment = Attachment("F1", "a", "", 0, f"{server.base_url}/f")
        with anyio.fail_after(WITHIN_S):
            async with open_download(
                session, attachment, token=TOKEN, own=own_origin(server.base_url)
            ) as chunks:
                async for _ in chunks:
                    break
            await until(lambda: server.hung_up)


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("https://files.slack.com/files-pri/T1-F1/a.txt", True),
        ("https://slack.com/x", True),
        ("https://slack-files.com/T1-F1", True),
        ("https://emoji.slack-edge.com/a.png", True),
        ("https://files.slack-gov.com/a", True),
        ("http://files.slack.com/a", False),
        ("https://files.slack.com:8443/a", False),
        ("http://files.slack.com:443/a", False),
        ("https://files.slack.com.evil.example/a", False),
        ("https://evilslack.com/a", False),
        ("https://evil.example/files.slack.com", False),
        ("https://files.slack.com@evil.example/a", False),
        ("https://evil.example@files.slack.com/a", False),
        ("https://127.0.0.1/a", False),
        ("ftp://files.slack.com/a", False),
        ("//files.slack.com/a", False),
        ("", False),
    ],
)
def test_only_slacks_hosts_are_trusted(url, is_trusted):
    assert trusted(URL(url), None) is is_trusted
    assert trusted(URL(url), own_origin("http://127.0.0.1:8080/api/")) is is_trusted


def test_only_an_api_on_loopback_keeps_its_own_files():
    assert own_origin(None) is None
    assert own_origin("https://slack.example/api/") is None
    own = own_origin("http://127.0.0.1:8080/api/")
    assert trusted(URL("http://127.0.0.1:8080/f"), own)
    assert not trusted(URL("http://127.0.0.1:8081/f"), own)


@given(st.text(max_size=60))
def test_no_text_makes_a_foreign_host_trusted(text):
    for address in (text, f"https://{text}", f"https://files.slack.com{text}"):
        url = files.url_of(address)
        if trusted(url, None):
            assert url.scheme == "https" and url.host
            assert any(url.host == name or url.host.endswith("." + name) for name in HOSTS)
