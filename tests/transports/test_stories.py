"""What is the same in Slack and in Discord, and part of it on the page: somebody says something, and this is what everybody sees."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from bot import wording
from bot.agent.prompt.user_message import UserMessages
from bot.ports.errors import ModelUnavailable
from bot.ports.outside_text import tainted
from tests.fakes import discord, slack
from tests.fakes.discord import ROLE
from tests.patience import WITHIN_S
from tests.transports.bot import bot_over
from tests.transports.chats import told
from tests.transports.matrix.synapse import IN_MATRIX
from tests.transports.settling import until_settled
from tests.world import Counting, Gate, Scripted, Streams, calls, says
from threads.errors import TransportFatal
from threads.model import Incoming
from threads.scheduled_messages import scheduled_id
from threads.wording import first_cause

EVERYWHERE = pytest.mark.parametrize("chat", ["slack", "discord", "web", IN_MATRIX], indirect=True)
"""A story of one person, which the page tells as well."""

GROWING = Streams("word " * 30, "the end")


@pytest.fixture
def bot(chat, tmp_path):
    return partial(chat.running, tmp_path)


@pytest.fixture
def outcome(tmp_path):
    """Return how a message ended, once it did."""

    async def of(message):
        return (await until_settled(tmp_path, message))[message]

    return of


def reactions(chat, message):
    return set(chat.fake.message(message).reactions)


async def test_what_is_not_for_the_bot_is_left_alone(chat, bot):
    async with bot(model := Scripted()):
        talk = await chat.chat("just talking")
        await chat.say(talk, "an answer to that", chat.bob)
        joined = await chat.ask("hi")
        await told(chat, joined, "ok")
        await chat.say(joined, f"<@{chat.bob}> what do you think?")
        await chat.bots_say(joined)
        await told(chat, await chat.ask_alone("hi"), "ok")
    assert len(model.requests) == 2
    assert chat.texts(talk) == []


async def test_an_edit_of_a_waiting_message_replaces_it_a_preview_joins_it_and_a_deletion_withdraws_it(
    chat, bot, outcome
):
    held = Gate(says("first"))
    async with bot(model := Scripted(held, says("second"))):
        thread = await chat.ask("one")
        await held.began.wait()
        changed = await chat.say(thread, "old words")
        linked = await chat.say(thread, "see https://example.com")
        gone = await chat.say(thread, "never mind")
        await chat.fake.unfurl(linked)
        await chat.edit(changed, "new words")
        await chat.delete(gone)
        assert await outcome(gone) == "withdrawn"
        held.open.set()
        await outcome(changed)
        await outcome(linked)
    read = str(model.requests[-1].messages)
    assert "new words" in read
    assert read.count("see https://example.com") == 1
    assert "Preview of https://example.com" in read
    assert not any(words in read for words in ("old words", "never mind"))


async def test_a_failure_has_a_button_to_try_again_that_works_once_and_after_a_restart(chat, bot, outcome):
    async with bot(Scripted(ModelUnavailable("down"))):
        thread = await chat.ask("the question")
        assert await outcome(thread) == "failed"
        await chat.fake.until(lambda: chat.with_buttons(thread))
    [failed] = chat.with_buttons(thread)
    assert wording.UNREACHABLE.split(".")[0].replace("'", "’") in failed.text.replace("'", "’")
    [again] = failed.buttons.values()
    async with bot(model := Scripted(says("now it works"))):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(partial(chat.press, failed, again, chat.bob, stale=True))
        await told(chat, thread, "now it works")
        await chat.fake.until(lambda: not chat.with_buttons(thread))
    [request] = model.requests
    assert "the question" in request.messages[-1].text


@EVERYWHERE
async def test_people_see_that_a_long_conversation_is_being_summarised(chat, bot):
    summary = Gate(says("They counted words."))
    model = Counting(says("one"), summary, says("two"))
    model.window = 8_000
    async with bot(model):
        thread = await chat.ask("words " * 1_200)
        await told(chat, thread, "one")
        await chat.say(thread, "words " * 1_000)
        await summary.began.wait()
        shows = "summarising the earlier part of our conversation"
        await chat.fake.until(lambda: shows in chat.ever_shown())
        summary.open.set()
        await told(chat, thread, "two")
    assert "summarising" not in "\n".join(chat.texts(thread))


async def test_a_slash_stop_ends_the_turn(chat, bot):
    held = Gate(says("never"))
    async with bot(Scripted(held)):
        thread = await chat.ask("work")
        await held.began.wait()
        await chat.slash(thread, "stop")
        await chat.fake.until(lambda: any("Stopped" in text for text in chat.alone(chat.ann)))
        await chat.fake.until(lambda: chat.stopped in reactions(chat, thread))


@EVERYWHERE
async def test_a_file_is_read_and_a_tool_can_give_one_back(chat, bot, tmp_path):
    def step(name):
        async def call():
            [attachment] = tmp_path.rglob("*-notes.txt")
            return calls(name, id=name, path=f"attachments/{attachment.name}")

        return call

    async with bot(model := Scripted(step("read_file"), step("attach"), says("done"))):
        notes = ("notes.txt", b"the secret word is plum", "text/plain")
        thread = await chat.ask_alone("what does it say?", files=[notes])
        await told(chat, thread, "done")
        assert [*chat.files(thread).values()] == [notes[1]]
    assert "plum" in model.requests[1].messages[-1].results[0].content


async def test_a_voice_message_is_what_its_person_says(chat, bot):
    async def to_text(turn, files):
        turn.note("I heard: when is lunch?")
        [(file, content)] = [(file, await turn.bytes_of(file)) for file in files]
        assert (file.audio, content) == ("voice", b"OggS")
        return [replace(file, said="when is lunch?")]

    model = Scripted(says("at noon"))
    async with bot(model, agent={"user_messages": UserMessages(to_text=to_text)}):
        thread = await chat.ask_aloud(b"OggS")
        await told(chat, thread, "when is lunch?")
        await told(chat, thread, "at noon")
    [message] = model.requests[0].messages
    assert "when is lunch?" in message.text
    assert not tainted([message])


async def test_a_long_answer_comes_whole_in_order_and_a_very_long_one_as_a_file_too(chat, bot):
    lines = [f"line {number} of the long answer." for number in range(chat.lines)]
    huge = "\n".join(f"row {number} " + "x" * 60 for number in range(3_000))
    async with bot(Scripted(says("\n".join(lines)), says(huge))):
        thread = await chat.ask("much")
        await chat.fake.until(lambda: lines[-1] in chat.markdown(thread))
        assert [line for line in chat.markdown(thread).splitlines() if line] == lines
        await chat.say(thread, "more")
        await chat.fake.until(lambda: chat.files(thread))
    [content] = chat.files(thread).values()
    assert b"row 2999" in content


async def test_model_text_pings_nobody_and_previews_nothing_in_posts_and_in_edits(chat, bot, outcome):
    text = (
        f"@everyone <!channel> <@{chat.bob}> @here <!here> <@&{ROLE}> https://evil.example/x "
        "[docs](https://evil.example/?q=secret) "
    )
    async with bot(Streams(text + "word " * 30, text)):
        assert await outcome(await chat.ask("hi")) == "answered"
        assert await outcome(await chat.ask_alone("hi")) == "answered"
    assert chat.fake.calls_to(*chat.ends)
    assert chat.fake.pings == []
    assert chat.fake.unfurls == []


# what goes wrong


FAULTS = {
    "slack": [
        slack.RateLimited(1), slack.Html(503), slack.Html(502, applied=True), slack.Cut(), slack.Cut(applied=True),
        slack.ApiError("internal_error"),
    ],
    "discord": [
        discord.RateLimited(0.5), discord.Status(503), discord.Status(503, applied=True),
        discord.Status(500, applied=True), discord.Cut(), discord.Cut(applied=True),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("chat", "fault"),
    [(name, fault) for name, faults in FAULTS.items() for fault in faults],
    ids=str,
    indirect=["chat"],
)
async def test_a_post_that_fails_once_is_seen_exactly_once(chat, bot, outcome, fault):
    async with bot(Scripted(says("the answer"))):
        chat.fake.fail(chat.send, fault)
        thread = await chat.ask("hi")
        assert await outcome(thread) == "answered"
        assert sum("the answer" in text for text in chat.texts(thread)) == 1
        assert chat.name == "discord" or not chat.fake.impatient


async def test_a_draft_and_an_answer_whose_answers_are_both_lost_leave_one_answer(chat, bot, outcome):
    async with bot(GROWING):
        for call in (chat.begin, chat.send):
            chat.fake.fail(call, chat.lost)
        thread = await chat.ask("hi")
        assert await outcome(thread) == "answered"
        [answer] = chat.texts(thread)
    assert "the end" in answer


async def test_an_answer_whose_draft_cannot_be_written_over_is_posted_and_the_draft_goes(chat, bot, outcome):
    async with bot(GROWING):
        chat.refuse_ends(chat.not_editable)
        thread = await chat.ask("hi")
        assert await outcome(thread) == "answered"
        await chat.fake.until(lambda: len(chat.texts(thread)) == 1)
    assert "the end" in chat.texts(thread)[0]


async def test_a_live_answer_whose_end_is_refused_does_not_stay_as_if_it_went_on(chat, bot, outcome):
    async with bot(GROWING):
        thread = await chat.ask("hi")
        await chat.fake.until(lambda: chat.texts(thread))
        chat.refuse_ends(chat.blocked)
        chat.fake.fail(chat.send, chat.blocked, forever=True)
        assert await outcome(thread) == "undelivered"
        await chat.fake.until(lambda: not chat.texts(thread))


async def test_a_deletion_takes_away_what_was_shown_of_the_answer(chat, bot, outcome):
    async with bot(GROWING):
        thread = await chat.ask("hi")
        await chat.fake.until(lambda: chat.texts(thread))
        await chat.delete(thread)
        assert await outcome(thread) == "withdrawn"
        await chat.fake.until(lambda: not chat.texts(thread))


async def test_the_sign_of_a_killed_process_goes_with_the_answer(chat, bot):
    async with bot(Scripted(Gate(says("never")))):
        thread = await chat.ask("hi")
        await chat.fake.until(lambda: chat.eyes in reactions(chat, thread))
    async with bot(Scripted(says("there"))):
        await told(chat, thread, "there")
        await chat.fake.until(lambda: reactions(chat, thread) == chat.done)


@contextmanager
def fatal(words, *, hides):
    """Expect the block to end with a fatal fault that has these words in it, and not the token."""
    with anyio.fail_after(WITHIN_S), pytest.raises(BaseException) as raised:
        yield
    cause = first_cause(raised.value)
    assert isinstance(cause, TransportFatal)
    assert words in str(cause)
    assert hides not in str(cause)


@pytest.mark.parametrize(
    ("chat", "option"),
    [("slack", "app_token"), ("slack", "bot_token"), ("discord", "token")],
    indirect=["chat"],
)
async def test_a_bad_token_ends_the_start_with_a_clear_word(chat, tmp_path, option):
    edge = chat.edge(tmp_path, **{option: "a.wrong.token"})
    with fatal(option.replace("_", " "), hides="a.wrong.token"):
        await edge.serve(None)
    assert edge.state == "stopped"


async def test_a_token_that_is_revoked_stops_the_transport_with_a_clear_word(chat, bot):
    with fatal("token", hides=chat.token):
        async with bot(Scripted()):
            chat.fake.revoke()
            await chat.ask("hi")
            await anyio.sleep_forever()


@pytest.mark.parametrize("ask", ["ask", "ask_alone"])
async def test_a_message_that_no_person_typed_is_answered_once_and_no_platform_is_asked_about_its_id(
    chat, tmp_path, caplog, monkeypatch, ask
):
    for module in ("slack.live.latest_wins", "discord.live.reactions"):
        monkeypatch.setattr(f"transports.{module}.FIRST_SIGN_S", 0)
    model = Scripted(says("one"), calls("list_files", path="."), says("two"))
    edge, heard, due = chat.edge(tmp_path), list[Incoming](), datetime.now(UTC)
    serve, scheduled = edge.serve, scheduled_id("s1234", due)

    async def serving(sink):
        async def hears(incoming):
            heard.append(incoming)
            await sink(incoming)

        edge.takes = sink
        await serve(hears)

    edge.serve = serving
    async with bot_over(edge, tmp_path, model):
        first = await getattr(chat, ask)("hi")
        await told(chat, first, "one")
        words = "do it @everyone <!here>"
        for _ in range(2):
            await edge.takes(Incoming(scheduled, heard[0].thread, heard[0].author, words, due.isoformat()))
        await told(chat, first, "two")
        await until_settled(tmp_path, scheduled)
        await anyio.sleep(0.3)
        _, answer = chat.texts(first)
    assert answer.startswith("⏰ Scheduled by ")
    assert chat.fake.pings == []
    assert chat.asked_about(first) or ask == "ask_alone"
    assert chat.asked_about(scheduled) == []
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []
