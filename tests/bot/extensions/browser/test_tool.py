"""What the tool gives, and how it goes on with less; the browser itself is scripted."""

from dataclasses import replace

import anyio
import pytest

from bot.extensions.browser import tool as tools
from bot.extensions.browser.session import BrowserFailed, PageFailed, PageView
from bot.extensions.browser.tool import COOLDOWN_S, TRY_S, Browser, BrowserArguments, Cooldown
from bot.guards.egress import Egress
from bot.ports.errors import (
    ToolDenied,
    ToolError,
    ToolInvalidInput,
    ToolNotFound,
    ToolRateLimited,
    ToolTimeout,
)
from bot.ports.tool import ToolOutput
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from bot.tools.web.tool import FetchArguments
from tests.tool_context import tool_context
from tests.world import inline
from threads.model import Image
from threads.store.disk import PosixDisk

JPEG = b"\xff\xd8\xff picture"
VIEW = PageView("https://site.test/end", "Title", "what it says", "Next <https://site.test/next>", 200)


class ScriptedBrowser:
    """Returns or raises one step of a script for each request, and then `VIEW`."""

    def __init__(self, *script) -> None:
        self.script, self.requests, self.left = list(script), [], []

    async def view(self, request, deadline):
        self.requests.append(request)
        self.left.append(deadline - anyio.current_time())
        step = self.script.pop(0) if self.script else VIEW
        if isinstance(step, Exception):
            raise step
        return step


class Fetch:
    name, description, risk, arguments = "web_fetch", "", "net", FetchArguments

    def __init__(self) -> None:
        self.answer = ToolOutput({"url": "u", "text": "fetched"}, origin="web page")
        self.contexts = []

    async def __call__(self, arguments, context):
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class World:
    def __init__(self, tmp_path) -> None:
        self.notes: list[str] = []
        self.context = tool_context(
            tmp_path / "thread" / "workspace", note=self.notes.append, call_id="call 1/../x"
        )
        self.context.workspace.parent.mkdir()
        self.fetch = Fetch()
        self.writer = Writer(PosixDisk(), inline, Quota(10_000_000, 100))

    def browser(self, *script, **more) -> Browser:
        self.pages = ScriptedBrowser(*script)
        return Browser(self.pages, Egress(), self.writer, **{"fetch": self.fetch, **more})

    async def call(self, browser, **arguments):
        arguments = {"url": "https://site.test/", **arguments}
        return await browser(BrowserArguments(**arguments), self.context)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_a_page_is_read_and_marked_as_from_outside(world):
    returned = await world.call(world.browser())
    assert returned.result == {"url": VIEW.url, "title": "Title", "text": VIEW.text, "links": VIEW.links}
    assert returned.origin == "web page"
    assert world.notes == []


async def test_what_was_not_as_it_should_be_is_said_with_the_page(world):
    page = PageView("u", "t", "x", status=200, cut=True, unready="Not complete.", refused=(("h", "why"),) * 9)
    returned = await world.call(world.browser(page))
    assert returned.result["cut"]
    assert [error.type for error in returned.errors] == ["permission"] * tools.MAX_REFUSED + ["timeout"]
    assert returned.errors[-1].message == "Not complete."


@pytest.mark.parametrize("action", ["read", "screenshot"])
@pytest.mark.parametrize(("status", "kind"), [(404, ToolNotFound), (403, ToolDenied), (500, ToolError)])
async def test_a_page_whose_status_is_an_error_is_a_failure_with_its_text(world, status, kind, action):
    page = PageView("u", "t", "No such town.", status=status)
    with pytest.raises(kind, match=f"site.test .*{status}") as raised:
        await world.call(world.browser(page), action=action)
    assert raised.value.partial["text"] == "No such town."
    assert raised.value.origin == "web page"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "chrome://settings", "http://127.0.0.1/", "x"])
async def test_an_address_that_is_no_public_page_reaches_no_browser_and_no_fetch(world, url):
    browser = world.browser()
    with pytest.raises(ToolDenied):
        await world.call(browser, url=url)
    assert world.pages.requests == world.fetch.contexts == []


async def test_a_picture_is_kept_in_the_workspace_and_shown(world):
    browser = world.browser(PageView("u", "t", "text", "links", 200, picture=JPEG))
    returned = await world.call(browser, action="screenshot", full_page=True)
    (image,) = returned.images
    assert image == Image(returned.result["picture"], "image/jpeg")
    assert (world.context.workspace / image.file).read_bytes() == JPEG
    assert image.file.count("/") == 1
    assert "text" not in returned.result
    assert returned.origin == "web page"
    assert world.pages.requests[0].picture
    assert world.pages.requests[0].full_page


async def test_a_folder_that_a_command_made_a_link_gets_no_picture(world, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    world.context.workspace.mkdir()
    (world.context.workspace / "tool-output").symlink_to(tmp_path / "elsewhere")
    returned = await world.call(world.browser(PageView("u", "t", "text", picture=JPEG)), action="screenshot")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert returned.images == ()
    assert returned.result["text"] == "text"
    assert "could not be saved" in returned.result["degraded"]


async def test_a_model_that_sees_no_pictures_gets_the_text_and_the_file(world):
    browser = world.browser(PageView("u", "t", "text", picture=JPEG))
    world.context = replace(world.context, sees=False)
    returned = await world.call(browser, action="screenshot")
    assert returned.images == ()
    assert returned.result["text"] == "text"
    assert (world.context.workspace / returned.result["picture"]).is_file()
    assert returned.result["degraded"] == tools.UNSEEN


@pytest.mark.parametrize(
    ("error", "degraded", "note", "then"),
    [
        (BrowserFailed("boom"), tools.OFF, tools.TELL_OFF, tools.OFF),
        (PageFailed("hung"), tools.STUCK, tools.TELL_STUCK, None),
    ],
)
async def test_web_fetch_replaces_a_browser_or_one_page_that_does_not_work(
    world, error, degraded, note, then
):
    browser = world.browser(error, VIEW)
    returned = await world.call(browser)
    assert returned.result == {"url": "u", "text": "fetched", "degraded": degraded}
    assert returned.origin == "web page"
    assert world.notes == [note]
    assert (await world.call(browser)).result.get("degraded") == then


def test_a_feature_that_failed_is_off_until_one_call_tries_it():
    cooldown = Cooldown()
    assert cooldown.allows(0)
    cooldown.fail(100)
    due = 100 + COOLDOWN_S
    assert [cooldown.allows(now) for now in (100, due - 1, due, due)] == [False, False, True, False]
    cooldown.fail(due + 1)
    assert not cooldown.allows(due + COOLDOWN_S)
    cooldown.reset()
    assert all(cooldown.allows(due) for _ in range(3))


def test_a_try_without_an_outcome_leaves_the_next_one_to_another_call():
    cooldown = Cooldown(off_until=100)
    assert [cooldown.allows(now) for now in (100, 99 + TRY_S, 100 + TRY_S)] == [True, False, True]


async def test_a_browser_that_works_again_is_on_again(world):
    browser = world.browser(browser_cooldown=Cooldown(off_until=0.1))
    assert "degraded" not in (await world.call(browser)).result
    assert browser.browser_cooldown == Cooldown()


@pytest.mark.parametrize("fetches", [False, True])
@pytest.mark.parametrize("kind", [ToolDenied, ToolNotFound, ToolInvalidInput, ToolRateLimited])
async def test_an_error_of_the_address_itself_is_told_as_it_is(world, kind, fetches):
    world.fetch.answer = kind("no")
    browser = world.browser(BrowserFailed("boom") if fetches else kind("no"))
    with pytest.raises(kind, match="no"):
        await world.call(browser)
    assert len(world.fetch.contexts) == fetches
    assert (browser.browser_cooldown == Cooldown()) != fetches


@pytest.mark.parametrize(
    "error", [ToolError("broke", partial={"text": "half"}, origin="web page"), ToolTimeout("late")]
)
async def test_without_web_fetch_too_the_model_is_told_to_go_on_without_the_page(world, error):
    world.fetch.answer = error
    with pytest.raises(ToolError) as raised:
        await world.call(world.browser(BrowserFailed("boom")))
    assert "Neither" in str(raised.value)
    assert raised.value.suggestion
    assert raised.value.partial == error.partial
    assert raised.value.origin == error.origin
    assert world.notes[-1] == tools.TELL_NOTHING


async def test_web_fetch_is_not_used_where_people_have_not_enabled_it(world):
    with pytest.raises(ToolError, match="No page could be opened") as raised:
        await world.call(world.browser(BrowserFailed("secret detail"), fetch=None))
    assert "secret" not in str(raised.value)
    assert world.notes == [tools.TELL_NOTHING]


@pytest.mark.parametrize(
    ("error", "kind"), [(BrowserFailed("boom"), ToolError), (PageFailed("hung"), ToolTimeout)]
)
async def test_where_the_settings_say_so_an_error_goes_to_the_model_instead(world, error, kind):
    browser = world.browser(error, VIEW, disable_browser=False)
    with pytest.raises(kind):
        await world.call(browser)
    assert world.fetch.contexts == []
    assert world.notes == []
    assert "degraded" not in (await world.call(browser)).result


async def test_a_browser_that_is_not_installed_degrades_or_is_refused_in_its_words(world):
    assert (await world.call(world.browser(missing="Not installed."))).result["degraded"] == tools.OFF
    with pytest.raises(ToolDenied, match="Not installed"):
        await world.call(world.browser(missing="Not installed.", disable_browser=False))
    assert world.pages.requests == []


async def test_a_picture_that_fails_leaves_the_text_and_pictures_are_off_for_a_while(world):
    browser = world.browser(PageView("u", "t", "text", unpictured="secret detail"))
    returned = await world.call(browser, action="screenshot")
    assert returned.result["text"] == "text"
    assert returned.result["degraded"] == tools.NO_PICTURE
    assert [error.item for error in returned.errors] == ["picture"]
    assert "secret" not in str(returned)
    assert world.notes == [tools.TELL_NO_PICTURE]
    assert (await world.call(browser, action="screenshot")).result["degraded"] == tools.NO_PICTURE
    assert [request.picture for request in world.pages.requests] == [True, False]
    assert browser.browser_cooldown == Cooldown()


async def test_a_picture_that_fails_is_an_error_where_the_settings_say_so(world):
    browser = world.browser(PageView("u", "t", "text"), disable_screenshots=False)
    with pytest.raises(ToolError) as raised:
        await world.call(browser, action="screenshot")
    assert raised.value.partial["text"] == "text"
    assert raised.value.origin == "web page"
    assert browser.picture_cooldown == Cooldown()


async def test_the_browser_leaves_web_fetch_a_share_of_the_time(world):
    await world.call(world.browser(PageFailed("hung")))
    assert world.pages.left[0] == pytest.approx(tools.LONGEST_S * tools.BROWSER_SHARE, abs=1)
    (context,) = world.fetch.contexts
    assert context.deadline - anyio.current_time() == pytest.approx(tools.LONGEST_S, abs=1)
