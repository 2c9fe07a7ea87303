"""What becomes of a call of REST when all goes well, and when Discord or the way to it does not, over real sockets."""

import asyncio
import logging
import traceback
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import aiohttp
import anyio
import pytest

from tests.fakes.discord import (
    APP,
    BOT,
    CHANNEL,
    CHANNEL2,
    GUILD,
    ROLE,
    U1,
    Cut,
    FakeDiscord,
    RateLimited,
    Refused,
    Slow,
    Stall,
    Status,
)
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.errors import (
    Fenced,
    TransportFatal,
    TransportRateLimited,
    TransportRejected,
    TransportUnavailable,
)
from transports.discord.api import account, invalid_requests, sdk, uncancelled_calls
from transports.discord.api.api_errors import Banned, DiscordRefused
from transports.discord.api.rest import open_rest, view_of
from transports.discord.api.sdk import read_message
from transports.discord.api.values import Button, Upload

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_proxy")]

SEND, EDIT = "POST /channels/{}/messages", "PATCH /channels/{}/messages/{}"
OPEN = "POST /channels/{}/messages/{}/threads"
TYPING, ME, HISTORY = "POST /channels/{}/typing", "GET /users/@me", "GET /channels/{}/messages"
STOP = Button("Stop", "stop:1", "danger")


@pytest.fixture(autouse=True)
def naps(monkeypatch):
    """The sleeps of the library between its tries, which take a hundredth of their time."""
    naps, sleep = [], asyncio.sleep

    async def nap(seconds):
        naps.append(seconds)
        await sleep(seconds / 100)

    monkeypatch.setattr("discord.http.asyncio", SimpleNamespace(**(vars(asyncio) | {"sleep": nap})))
    return naps


@pytest.fixture
async def discord(anyio_backend):
    async with FakeDiscord() as discord:
        yield discord


@pytest.fixture
async def rest(discord):
    async with logged_in(discord) as rest:
        yield rest


@asynccontextmanager
async def logged_in(discord):
    async with open_rest(discord.api_base_url, discord.token) as rest:
        await rest.login()
        discord.calls.clear()
        yield rest


def bodies(discord, route):
    return [call.body for call in discord.calls_to(route)]


async def test_a_login_says_who_the_bot_is(discord):
    async with open_rest(discord.api_base_url, f" {discord.token}\n") as rest:
        me = await rest.login()
        assert (me.id, me.application, me.roles) == (BOT, APP, frozenset())
        assert rest.me is me


async def test_a_worker_that_lost_its_thread_while_a_post_waited_sends_nothing(discord, rest):
    waited = []

    async def take_global():
        waited.append(True)
        return 0.0

    async def lost():
        assert waited, "asked at the end of the wait"
        raise Fenced

    rest.take_global, rest.ensure_ownership = take_global, lost
    with pytest.raises(Fenced):
        await rest.send(CHANNEL, "x", nonce="n1")
    assert await rest.history(CHANNEL, after="1") == []
    assert discord.posts() == []


async def test_a_bad_token_is_fatal_and_told_with_what_to_do(discord):
    async with open_rest(discord.api_base_url, "not-a-token") as rest:
        with pytest.raises(TransportFatal, match=r"reset it under Bot .* transports\.discord\.token"):
            await rest.login()


async def test_a_login_that_fails_is_tried_again_with_nothing_left_of_the_first(discord):
    async with open_rest(discord.api_base_url, discord.token) as rest:
        discord.fail(ME, Status(503), Status(401), Cut(), Cut())
        for _ in range(3):
            with pytest.raises(TransportUnavailable):
                await rest.login()
        assert (await rest.login()).id == BOT


async def test_a_call_before_the_login_fails_as_any_call(discord):
    async with open_rest(discord.api_base_url, discord.token) as rest:
        with pytest.raises(TransportUnavailable):
            await rest.typing(CHANNEL)


async def test_a_post_pings_nobody_and_shows_no_previews(discord, rest):
    asked = await discord.say(U1, CHANNEL, "hi")
    said = await rest.send(CHANNEL, "@everyone https://a.b", nonce="n1", reply_to=asked.id, buttons=(STOP,))
    [body] = bodies(discord, SEND)
    assert body["content"] == "@everyone https://a.b"
    assert (body["nonce"], body["enforce_nonce"], body["flags"]) == ("n1", True, 4)
    assert body["allowed_mentions"] == {"parse": []}
    assert body["message_reference"] == {
        "type": 0,
        "message_id": int(asked.id),
        "channel_id": int(CHANNEL),
        "fail_if_not_exists": False,
    }
    assert discord.message(str(said.id)).buttons == [("Stop", "stop:1")]


async def test_the_library_does_not_wait_for_buttons():
    assert view_of((STOP,)).is_finished()


async def test_an_edit_keeps_the_previews_away_and_takes_buttons_off(discord, rest):
    said = await rest.send(CHANNEL, "one", nonce="n1", buttons=(STOP,))
    await rest.edit(CHANNEL, str(said.id), "two @everyone", buttons=(STOP,))
    await rest.edit(CHANNEL, str(said.id))
    first, second = bodies(discord, EDIT)
    assert first["allowed_mentions"]["parse"] == []
    assert "flags" not in first | second
    assert "content" not in second
    assert second["components"] == []
    message = discord.message(str(said.id))
    assert (message.content, message.buttons, message.flags & 4) == ("two @everyone", [], 4)


async def test_a_file_goes_along_and_is_closed(discord, rest, tmp_path):
    path = tmp_path / "report.txt"
    path.write_bytes(b"x" * 100_000)
    said = await rest.send(CHANNEL, "", nonce="n1", upload=Upload(path, "a.txt"))
    more = await rest.send(CHANNEL, "here", nonce="n2", upload=Upload(b"bytes", "b.md"))
    [file], [other] = discord.message(str(said.id)).attachments, discord.message(str(more.id)).attachments
    assert (file.name, file.content) == ("a.txt", b"x" * 100_000)
    assert (other.name, other.content) == ("b.md", b"bytes")
    with pytest.raises(TransportRejected, match=r"gone\.txt cannot be read"):
        await rest.send(CHANNEL, "", nonce="n3", upload=Upload(tmp_path / "no", "gone.txt"))


async def test_the_other_calls_do_what_they_say(discord, rest):
    said = [await discord.say(U1, CHANNEL, f"line {number}") for number in range(5)]
    ids = [message.id for message in said]
    assert [str(m.id) for m in await rest.history(CHANNEL, after=ids[0], limit=3)] == ids[1:4]
    assert [str(m.id) for m in await rest.history(CHANNEL, before=ids[4], limit=3)] == ids[1:4]
    assert [str(m.id) for m in await rest.history(CHANNEL, limit=2)] == ids[3:]
    assert len(discord.calls_to(HISTORY)) == 3
    assert (await rest.message(CHANNEL, ids[2])).content == "line 2"
    assert str((await rest.channel(CHANNEL)).id) == CHANNEL
    await rest.react(CHANNEL, ids[0], "👀")
    assert list(discord.message(ids[0]).reactions) == ["👀"]
    await rest.unreact(CHANNEL, ids[0], "👀")
    assert not discord.message(ids[0]).reactions.get("👀")
    await rest.typing(CHANNEL)
    assert discord.typings
    ours = await rest.send(CHANNEL, "x", nonce="n")
    await rest.delete(CHANNEL, str(ours.id))
    assert discord.message(str(ours.id)).deleted
    discord.users[U1].roles.append(ROLE)
    assert ROLE in await rest.roles_of(GUILD, U1)


@pytest.mark.parametrize("way", ["after", "before", ""])
async def test_a_message_with_an_odd_field_is_read_without_it(discord, rest, caplog, way):
    first = await discord.say(U1, CHANNEL, "first")
    for number in range(20):
        odd = {} if number % 3 else {"embeds": [{"type": "rich", "timestamp": "not a time"}]}
        await discord.say(U1, CHANNEL, str(number), **odd)
    last = await discord.say(U1, CHANNEL, "last")
    readable = [str(number) for number in range(20)]
    match way:
        case "after":
            page, said = await rest.history(CHANNEL, after=first.id, limit=6), readable[:6]
        case "before":
            page, said = await rest.history(CHANNEL, before=last.id, limit=6), readable[-6:]
        case _:
            page, said = await rest.history(CHANNEL, limit=6), [*readable[-5:], "last"]
    assert [message.content for message in page] == said
    assert "cannot be read" in caplog.text
    assert len(await rest.history(CHANNEL, after=first.id)) == len(readable) + 1


async def test_a_message_that_the_library_cannot_read_at_all_hides_no_other(discord, rest, monkeypatch):
    def read(data):
        if data["content"] == "odd":
            raise KeyError
        return data["content"]

    assert [read_message(read, {"content": said}) for said in ("one", "odd", "two")] == ["one", None, "two"]


async def test_an_odd_message_that_we_reply_to_fails_no_post_and_can_be_looked_up(discord, rest):
    odd = await discord.say(U1, CHANNEL, "odd", embeds=[{"type": "rich", "timestamp": "not a time"}])
    ours = await rest.send(CHANNEL, "yes?", nonce="n1", reply_to=odd.id)
    await rest.edit(CHANNEL, str(ours.id), "yes!")
    assert [message.content for message in discord.posts(CHANNEL)] == ["yes!"]
    assert (await rest.message(CHANNEL, odd.id)).content == "odd"
    again = await rest.message(CHANNEL, str(ours.id))
    assert again.reference.message_id == int(odd.id)


@pytest.mark.parametrize("told", [{}, [1], [{"content": "x"}], None])
async def test_an_answer_that_is_no_page_is_not_taken_for_an_empty_one(discord, rest, monkeypatch, told):
    async def logs_from(*_, **__):
        return told

    monkeypatch.setattr("discord.http.HTTPClient.logs_from", logs_from)
    with pytest.raises(TransportUnavailable):
        await rest.history(CHANNEL)


async def test_a_thread_is_opened_once_and_then_found(discord, rest):
    asked = await discord.say(U1, CHANNEL, "hi")
    assert await rest.open_thread(CHANNEL, asked.id, "n" * 300) == asked.id
    assert await rest.open_thread(CHANNEL, asked.id, "again") == asked.id
    assert [thread.name for thread in discord.threads(CHANNEL)] == ["n" * 100]
    assert [thread.id for thread in discord.threads(CHANNEL)] == [asked.id]


@pytest.mark.parametrize("status", [500, 502, 504, 524])
async def test_some_server_errors_outlast_the_librarys_tries(discord, rest, naps, status):
    discord.fail(SEND, Status(status), forever=True)
    with pytest.raises(TransportUnavailable) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.maybe_posted
    assert len(discord.calls_to(SEND)) == 5
    assert naps[:5] == [1, 3, 5, 7, 9]


async def test_a_post_that_was_stored_and_then_failed_is_there_once(discord, rest):
    discord.fail(SEND, Status(500, applied=True))
    said = await rest.send(CHANNEL, "hi", nonce="n1")
    assert [message.id for message in discord.posts()] == [str(said.id)]
    assert len(discord.calls_to(SEND)) == 2


@pytest.mark.parametrize("status", [503, 520, 521])
async def test_other_server_errors_are_not_tried_again_by_the_library(discord, rest, status):
    discord.fail(SEND, Status(status))
    with pytest.raises(TransportUnavailable) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.maybe_posted
    assert len(discord.calls_to(SEND)) == 1


@pytest.mark.parametrize("applied", [True, False])
async def test_a_cut_answer_may_have_posted_and_the_same_nonce_posts_once(discord, rest, applied):
    discord.fail(SEND, Cut(applied=applied))
    with pytest.raises(TransportUnavailable) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.maybe_posted
    said = await rest.send(CHANNEL, "hi", nonce="n1")
    assert [message.id for message in discord.posts()] == [str(said.id)]


async def test_a_post_that_was_never_sent_is_known_not_to_be_there():
    async with AsyncExitStack() as stack:
        async with FakeDiscord() as gone:
            rest = await stack.enter_async_context(logged_in(gone))
        with pytest.raises(TransportUnavailable) as failed:
            await rest.send(CHANNEL, "hi", nonce="n1")
    assert not failed.value.maybe_posted


async def test_a_call_without_an_answer_ends_soon_and_may_have_posted(discord, rest, monkeypatch):
    monkeypatch.setattr(sdk, "REQUEST", aiohttp.ClientTimeout(total=0.1))
    discord.fail(SEND, Stall(applied=True))
    with anyio.fail_after(WITHIN_S), pytest.raises(TransportUnavailable) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.maybe_posted


async def test_a_429_of_discords_is_waited_out(discord, rest, naps):
    discord.fail(SEND, RateLimited(2.0))
    await rest.send(CHANNEL, "hi", nonce="n1")
    assert naps[:1] == [2.0]
    assert len(discord.posts()) == 1


async def test_a_429_that_does_not_end_is_told_with_its_wait(discord, rest):
    discord.fail(SEND, RateLimited(2.0), forever=True)
    with pytest.raises(TransportRateLimited) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert not isinstance(failed.value, Banned)
    assert failed.value.retry_after == 2
    assert len(discord.calls_to(SEND)) == 5


async def test_a_ban_of_cloudflares_silences_every_call(discord, rest, caplog, monkeypatch):
    discord.fail(SEND, RateLimited(1.0, via=False))
    with pytest.raises(Banned) as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.retry_after == pytest.approx(600, abs=1)
    assert "nothing is asked for 600 s" in caplog.text
    assert "shut out" in rest.trouble
    with pytest.raises(TransportRateLimited, match="held back") as failed:
        await rest.send(CHANNEL2, "hi", nonce="n2")
    assert failed.value.retry_after == pytest.approx(600, abs=1)
    assert len(discord.calls) == 1
    now = anyio.current_time()
    monkeypatch.setattr(account.anyio, "current_time", lambda: now + 601)
    assert rest.trouble == ""
    await rest.send(CHANNEL2, "hi", nonce="n2")


async def test_a_global_limit_holds_every_call_and_no_cancelled_one_keeps_it(discord, rest):
    """The library clears its lock in the call that met the limit: cancelled there, it would stay for ever."""
    discord.fail(SEND, RateLimited(20.0, is_global=True))
    with anyio.move_on_after(0.1):
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert len(discord.calls) == 1
    with anyio.fail_after(WITHIN_S):
        await rest.typing(CHANNEL2)
        await discord.until(lambda: discord.posts())
    assert len(discord.calls_to(SEND)) == 2


async def test_a_call_that_was_given_up_ends_by_itself_before_the_next_of_its_line(discord, rest):
    gate = discord.gate(SEND)
    async with background_tasks() as tasks:
        tasks.start_soon(lambda: rest.send(CHANNEL, "hi", nonce="n1"))
        await gate.reached()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: rest.send(CHANNEL, "hi", nonce="n1"))
        await anyio.sleep(0.05)
        assert len(discord.calls_to(SEND)) == 1
        gate.open()
    assert len(discord.calls_to(SEND)) == 2
    assert len(discord.posts()) == 1


async def test_an_edit_that_is_tried_again_does_not_undo_the_one_after_it(discord, rest):
    said = str((await rest.send(CHANNEL, "one", nonce="n1")).id)
    discord.fail(EDIT, Status(500), Status(500))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: rest.edit(CHANNEL, said, "two", urgent=False))
        await discord.until(lambda: discord.calls_to(EDIT))
        await rest.edit(CHANNEL, said, "three")
    assert discord.message(said).contents == ["one", "two", "three"]


async def test_a_caller_waits_no_longer_than_its_time(discord, rest, monkeypatch):
    monkeypatch.setattr(account, "URGENT_WITHIN_S", 0.1)
    monkeypatch.setattr(account, "COSMETIC_WITHIN_S", 0.1)
    discord.fail("*", Slow(0.3), forever=True)
    with pytest.raises(TransportUnavailable, match="not done within") as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert failed.value.maybe_posted
    with pytest.raises(TransportUnavailable) as failed:
        await rest.typing(CHANNEL)
    assert not failed.value.maybe_posted
    await discord.until(lambda: discord.posts())


async def test_a_call_that_had_not_begun_is_taken_back(discord, rest, monkeypatch):
    monkeypatch.setattr(account, "COSMETIC_WITHIN_S", 0.1)
    gate = discord.gate(TYPING)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(quietly, rest.typing(CHANNEL))
    gate.open()
    await rest.send(CHANNEL, "hi", nonce="n1")
    assert len(discord.calls_to(TYPING)) == 1


async def quietly(call):
    with pytest.raises(TransportUnavailable):
        await call


async def test_more_cosmetic_calls_than_there_is_room_for_are_refused_and_posts_are_not(discord, monkeypatch):
    monkeypatch.setattr(uncancelled_calls, "COSMETIC_AT_ONCE", 1)
    async with logged_in(discord) as rest:
        gate = discord.gate(TYPING)
        async with background_tasks() as tasks:
            tasks.start_soon(rest.typing, CHANNEL)
            await gate.reached()
        # The call goes on, and takes the room.
        with pytest.raises(TransportRateLimited, match="too much is under way"):
            await rest.typing(CHANNEL2)
        await rest.send(CHANNEL, "hi", nonce="n1")
        gate.open()


async def test_threads_that_are_slow_to_open_hold_no_posts_up(discord, monkeypatch):
    """Discord's limit on them is tight: in a busy channel the library would sleep in all the places there are."""
    monkeypatch.setattr(uncancelled_calls, "URGENT_AT_ONCE", 2)
    monkeypatch.setattr(uncancelled_calls, "OPENINGS_AT_ONCE", 2)
    async with logged_in(discord) as rest:
        gate = discord.gate(OPEN)
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                said = await discord.say(U1, CHANNEL, "hi")
                tasks.start_soon(rest.open_thread, CHANNEL, said.id, "title")
            await gate.reached()
            with anyio.fail_after(WITHIN_S):
                await rest.send(CHANNEL2, "an answer", nonce="n1")
            assert len(discord.calls_to(OPEN)) <= 2
            gate.open()
        assert len(discord.threads(CHANNEL)) == 4


async def test_a_refusal_says_its_code_and_kind(discord, rest):
    discord.deny(CHANNEL, "SEND_MESSAGES")
    with pytest.raises(DiscordRefused, match="Send Messages") as failed:
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert (failed.value.status, failed.value.number, failed.value.kind) == (403, 50013, "forbidden")
    with pytest.raises(DiscordRefused) as failed:
        await rest.edit(CHANNEL, "1", "x")
    assert failed.value.kind == "gone"
    with pytest.raises(DiscordRefused) as failed:
        await rest.channel("1")
    assert failed.value.kind == "gone"


async def test_too_many_refusals_hold_cosmetic_calls_back_and_posts_go_on(discord, rest, monkeypatch):
    monkeypatch.setattr(invalid_requests, "CAREFUL_AT", 3)
    discord.fail(TYPING, Refused(403, 50001), forever=True)
    for _ in range(3):
        with pytest.raises(DiscordRefused):
            await rest.typing(CHANNEL)
    with pytest.raises(TransportRateLimited, match="3 refused requests"):
        await rest.typing(CHANNEL)
    assert len(discord.calls_to(TYPING)) == 3 == discord.invalid
    await rest.send(CHANNEL, "hi", nonce="n1")


async def test_a_token_that_is_refused_while_working_ends_the_transport(discord, rest):
    discord.revoke()
    with pytest.raises(DiscordRefused):
        await rest.send(CHANNEL, "hi", nonce="n1")
    with anyio.fail_after(WITHIN_S), pytest.raises(TransportFatal, match="does not accept the bot token"):
        await rest.until_refused()


async def test_a_redirect_is_not_followed(discord, rest):
    there = f"{discord.api_base_url}/channels/{CHANNEL}/messages"
    discord.fail(SEND, Status(307, location=there))
    with pytest.raises(TransportUnavailable, match="HTTP 307, and not from Discord"):
        await rest.send(CHANNEL, "hi", nonce="n1")
    assert len(discord.calls) == 1


async def test_no_error_and_no_log_shows_the_token(discord, rest, caplog):
    caplog.set_level(logging.DEBUG)
    discord.fail(SEND, Status(503), Cut(), Refused(403, 50001), RateLimited(1.0, via=False))
    for number in range(4):
        with pytest.raises((TransportUnavailable, TransportRejected, TransportRateLimited)) as failed:
            await rest.send(CHANNEL, "a secret of a person", nonce=str(number))
        shown = "".join(traceback.format_exception(failed.value)) + repr(vars(failed.value)) + repr(rest)
        assert discord.token not in shown
        assert failed.value.__context__ is None
    assert discord.token not in caplog.text
    assert "a secret of a person" not in caplog.text


async def test_the_end_waits_for_what_is_under_way_but_not_for_ever(discord, monkeypatch):
    monkeypatch.setattr(account, "CLOSE_WITHIN_S", 0.3)
    discord.fail(SEND, Slow(0.1), Stall(), RateLimited(5000.0))
    async with logged_in(discord) as rest:
        for nonce in ("n1", "n2", "n3"):
            with anyio.move_on_after(0.02):
                await rest.send(CHANNEL, nonce, nonce=nonce)
        began = anyio.current_time()
    assert anyio.current_time() - began < 2
    assert [message.content for message in discord.posts()] == ["n1"]
