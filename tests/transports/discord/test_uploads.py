"""Files out: those of tools, and answers too long to be read in messages."""

from __future__ import annotations

import pytest

from tests.fakes.discord import CHANNEL, Cut, Refused, Status
from tests.transports.discord.posting_case import LIMIT, PostingCase, discord_and_rest
from tests.transports.discord.test_posting import SEND, long, patience, together
from threads.errors import PostFailed, TransportUnavailable
from transports.discord.post import posting
from transports.discord.post.message_pages import CUT, MAX_PARTS, MOST_PARTS
from transports.shared.delivery.files import file_name

TOO_LONG = MAX_PARTS + 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(posting, "UPLOAD_PAUSE_S", 0.0)
    with patience(0.0):
        yield


@pytest.fixture
async def case():
    async with discord_and_rest() as (discord, rest):
        yield await PostingCase.start(discord, rest)


@pytest.fixture
def chart(tmp_path):
    path = tmp_path / "chart"
    path.write_bytes(b"a chart")
    return path


async def attach(case, file, name="chart.png"):
    await case.posting.attach(case.thread, f"{case.key}+call-1", file, name)


async def test_a_file_goes_into_the_thread(case, chart):
    await attach(case, chart)

    [message] = case.posts()
    assert message.files == {"chart.png": b"a chart"}


async def test_a_file_replies_to_its_question_where_there_is_no_thread(case, chart):
    case = await PostingCase.start(case.discord, case.rest, in_place=[CHANNEL])

    await attach(case, chart)

    [message] = case.posts(CHANNEL)
    assert (message.reply_to, list(message.files)) == (case.question, ["chart.png"])


@pytest.mark.parametrize("fault", [Cut(), Cut(applied=True), Status(503), Status(503, applied=True)])
async def test_a_file_whose_sending_got_no_answer_is_shown_once(case, chart, fault):
    case.discord.fail(SEND, fault)

    await attach(case, chart)

    assert case.visible() == ["chart.png"]


async def test_a_file_that_cannot_be_sent_for_long_is_given_up(case, chart):
    case.discord.fail(SEND, Status(503), forever=True)

    with pytest.raises(TransportUnavailable):
        await attach(case, chart)

    assert len(case.discord.calls_to(SEND)) == 2


@pytest.mark.parametrize(
    ("name", "shown"), {"../../etc/passwd": "passwd", "a\nb.txt": "a_b.txt", "": "file", ".": "file"}.items()
)
async def test_a_file_has_a_plain_name(case, chart, name, shown):
    await attach(case, chart, name)

    assert case.visible() == [shown]


async def test_a_file_that_is_too_large_is_refused_with_the_limit(case, chart):
    case.limit = 6
    with pytest.raises(PostFailed) as failed:
        await attach(case, chart)

    assert "0.0 MiB" in failed.value.friendly
    assert case.posts() == []


async def test_the_limit_in_the_refusal_is_that_of_the_guild(case, tmp_path):
    (tmp_path / "big").write_bytes(bytes(LIMIT + 1))

    with pytest.raises(PostFailed) as failed:
        await attach(case, tmp_path / "big")

    assert "10 MiB" in failed.value.friendly


async def test_an_empty_file_and_one_that_is_gone_are_refused_with_the_reason(case, tmp_path):
    (tmp_path / "empty").touch()
    for name, why in (("empty", "empty"), ("gone", "cannot be read")):
        with pytest.raises(PostFailed) as failed:
            await attach(case, tmp_path / name)
        assert why in failed.value.friendly


async def test_without_the_permission_a_file_is_refused_with_what_to_grant(case, chart):
    case.discord.deny(CHANNEL, "ATTACH_FILES")

    with pytest.raises(PostFailed) as failed:
        await attach(case, chart)

    assert failed.value.friendly == posting.MAY_NOT_UPLOAD


async def test_a_very_long_answer_is_its_beginning_and_a_file_with_all_of_it(case):
    text = long(TOO_LONG)
    posted = await case.post(text)

    beginning, file = case.posts()
    assert beginning.id == posted
    assert text.startswith(beginning.content.partition("\n-# ")[0])
    assert file_name(case.key) in beginning.content
    assert file.files == {file_name(case.key): text.encode()}


async def test_the_beginning_goes_into_the_live_message(case):
    drafts = [await case.draft("Line 0", part) for part in range(3)]

    assert await case.post(long(TOO_LONG), drafts) == drafts[0].id

    assert [bool(message.files) for message in case.posts()] == [False, True]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("fault", [Cut(), Cut(applied=True)])
async def test_a_killed_process_leaves_one_beginning_and_one_file(case, fault, at, late):
    case.discord.fail(SEND, fault, when=lambda call: len(case.posts()) == at)
    with pytest.raises(PostFailed):
        await case.post(long(TOO_LONG))
    case.restart()
    if late:
        case.discord.later(400)

    await case.find()
    await case.post(long(TOO_LONG))

    assert [bool(message.files) for message in case.posts()] == [False, True]


REFUSED = {
    "no permission": Refused(403, 50013),
    "too large": Refused(413, 40005),
    "who knows": Refused(400, 999_999),
}


@pytest.mark.parametrize("fault", REFUSED.values(), ids=REFUSED)
async def test_where_no_file_can_be_sent_the_answer_is_in_messages(case, fault):
    case.discord.fail(SEND, fault, when=lambda call: call.files)

    await case.post(long(TOO_LONG))

    assert together(case.visible()) == together([long(TOO_LONG)])


async def test_the_beginning_of_a_file_that_was_refused_is_written_over_wherever_it_went(case):
    draft = await case.draft("Line 0")
    case.discord.delete(draft.id)
    case.discord.deny(CHANNEL, "ATTACH_FILES")

    await case.post(long(TOO_LONG), [draft])

    assert together(case.visible()) == together([long(TOO_LONG)])


async def test_an_answer_that_is_larger_than_files_may_be_is_in_messages_up_to_a_word(case):
    case.limit = 1_000
    await case.post(long(MOST_PARTS + 3))

    shown = case.visible()
    assert len(shown) == MOST_PARTS
    assert shown[-1] == CUT


async def test_an_answer_that_began_in_messages_goes_on_in_messages(case):
    case.limit = 1_000
    text = long(TOO_LONG)
    case.discord.fail(SEND, Cut(), when=lambda call: len(case.posts()) == 3)
    with pytest.raises(TransportUnavailable):
        await case.post(text)
    case.restart()
    case.limit = LIMIT
    case.discord.later(400)

    await case.find()
    await case.post(text)

    assert together(case.visible()) == together([text])
