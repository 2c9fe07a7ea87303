"""Files out: those of tools, and answers too long to be read in messages."""

from __future__ import annotations

import pytest

from tests.fakes.discord import CHANNEL, Cut, Refused, Status
from tests.transports.discord.desk import LIMIT, Desk, discord_and_rest
from tests.transports.discord.test_posting import SEND, long, patience, together
from threads.errors import PostFailed, TransportUnavailable
from transports.discord.post import posting
from transports.discord.post.message_pages import CUT, MAX_PARTS, MOST_PARTS
from transports.shared.delivery.files import file_name

pytestmark = pytest.mark.anyio

TOO_LONG = MAX_PARTS + 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(posting, "UPLOAD_PAUSE_S", 0.0)
    with patience(0.0):
        yield


@pytest.fixture
async def desk():
    async with discord_and_rest() as (discord, rest):
        yield await Desk.asked(discord, rest)


@pytest.fixture
def chart(tmp_path):
    path = tmp_path / "chart"
    path.write_bytes(b"a chart")
    return path


async def attach(desk, file, name="chart.png"):
    await desk.posting.attach(desk.thread, f"{desk.key}+call-1", file, name)


async def test_a_file_goes_into_the_thread(desk, chart):
    await attach(desk, chart)

    [message] = desk.posts()
    assert message.files == {"chart.png": b"a chart"}


async def test_a_file_replies_to_its_question_where_there_is_no_thread(desk, chart):
    desk = await Desk.asked(desk.discord, desk.rest, in_place=[CHANNEL])

    await attach(desk, chart)

    [message] = desk.posts(CHANNEL)
    assert (message.reply_to, list(message.files)) == (desk.question, ["chart.png"])


@pytest.mark.parametrize("fault", [Cut(), Cut(applied=True), Status(503), Status(503, applied=True)])
async def test_a_file_whose_sending_got_no_answer_is_shown_once(desk, chart, fault):
    desk.discord.fail(SEND, fault)

    await attach(desk, chart)

    assert desk.shown() == ["chart.png"]


async def test_a_file_that_cannot_be_sent_for_long_is_given_up(desk, chart):
    desk.discord.fail(SEND, Status(503), forever=True)

    with pytest.raises(TransportUnavailable):
        await attach(desk, chart)

    assert len(desk.discord.calls_to(SEND)) == 2


@pytest.mark.parametrize(
    ("name", "shown"), {"../../etc/passwd": "passwd", "a\nb.txt": "a_b.txt", "": "file", ".": "file"}.items()
)
async def test_a_file_has_a_plain_name(desk, chart, name, shown):
    await attach(desk, chart, name)

    assert desk.shown() == [shown]


async def test_a_file_that_is_too_large_is_refused_with_the_limit(desk, chart):
    desk.limit = 6
    with pytest.raises(PostFailed) as failed:
        await attach(desk, chart)

    assert "0.0 MiB" in failed.value.friendly
    assert desk.posts() == []


async def test_the_limit_in_the_refusal_is_that_of_the_guild(desk, tmp_path):
    (tmp_path / "big").write_bytes(bytes(LIMIT + 1))

    with pytest.raises(PostFailed) as failed:
        await attach(desk, tmp_path / "big")

    assert "10 MiB" in failed.value.friendly


async def test_an_empty_file_and_one_that_is_gone_are_refused_with_the_reason(desk, tmp_path):
    (tmp_path / "empty").touch()
    for name, why in (("empty", "empty"), ("gone", "cannot be read")):
        with pytest.raises(PostFailed) as failed:
            await attach(desk, tmp_path / name)
        assert why in failed.value.friendly


async def test_without_the_permission_a_file_is_refused_with_what_to_grant(desk, chart):
    desk.discord.deny(CHANNEL, "ATTACH_FILES")

    with pytest.raises(PostFailed) as failed:
        await attach(desk, chart)

    assert failed.value.friendly == posting.MAY_NOT_UPLOAD


async def test_a_very_long_answer_is_its_beginning_and_a_file_with_all_of_it(desk):
    text = long(TOO_LONG)
    posted = await desk.post(text)

    beginning, file = desk.posts()
    assert beginning.id == posted
    assert text.startswith(beginning.content.partition("\n-# ")[0])
    assert file_name(desk.key) in beginning.content
    assert file.files == {file_name(desk.key): text.encode()}


async def test_the_beginning_goes_into_the_live_message(desk):
    drafts = [await desk.draft("Line 0", part) for part in range(3)]

    assert await desk.post(long(TOO_LONG), drafts) == drafts[0].id

    assert [bool(message.files) for message in desk.posts()] == [False, True]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("fault", [Cut(), Cut(applied=True)])
async def test_a_killed_process_leaves_one_beginning_and_one_file(desk, fault, at, late):
    desk.discord.fail(SEND, fault, when=lambda call: len(desk.posts()) == at)
    with pytest.raises(PostFailed):
        await desk.post(long(TOO_LONG))
    desk.restart()
    if late:
        desk.discord.later(400)

    await desk.find()
    await desk.post(long(TOO_LONG))

    assert [bool(message.files) for message in desk.posts()] == [False, True]


REFUSED = {
    "no permission": Refused(403, 50013),
    "too large": Refused(413, 40005),
    "who knows": Refused(400, 999_999),
}


@pytest.mark.parametrize("fault", REFUSED.values(), ids=REFUSED)
async def test_where_no_file_can_be_sent_the_answer_is_in_messages(desk, fault):
    desk.discord.fail(SEND, fault, when=lambda call: call.files)

    await desk.post(long(TOO_LONG))

    assert together(desk.shown()) == together([long(TOO_LONG)])


async def test_the_beginning_of_a_file_that_was_refused_is_written_over_wherever_it_went(desk):
    draft = await desk.draft("Line 0")
    desk.discord.delete(draft.id)
    desk.discord.deny(CHANNEL, "ATTACH_FILES")

    await desk.post(long(TOO_LONG), [draft])

    assert together(desk.shown()) == together([long(TOO_LONG)])


async def test_an_answer_that_is_larger_than_files_may_be_is_in_messages_up_to_a_word(desk):
    desk.limit = 1_000
    await desk.post(long(MOST_PARTS + 3))

    shown = desk.shown()
    assert len(shown) == MOST_PARTS
    assert shown[-1] == CUT


async def test_an_answer_that_began_in_messages_goes_on_in_messages(desk):
    desk.limit = 1_000
    text = long(TOO_LONG)
    desk.discord.fail(SEND, Cut(), when=lambda call: len(desk.posts()) == 3)
    with pytest.raises(TransportUnavailable):
        await desk.post(text)
    desk.restart()
    desk.limit = LIMIT
    desk.discord.later(400)

    await desk.find()
    await desk.post(text)

    assert together(desk.shown()) == together([text])
