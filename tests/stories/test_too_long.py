"""A message that is longer than the model can read is not sent: its person is told, and chooses how to go on."""

from __future__ import annotations

import json

import anyio
import pytest

from bot import wording as sentences
from bot.agent.prompt.compaction import INSTRUCTION
from bot.agent.prompt.oversized_message import too_long
from bot.ports.errors import ContextOverflow, ModelUnavailable
from bot.ports.model import Request
from tests.fakes import anthropic as a
from tests.hostile.bot import UserPlatform
from tests.patience import WITHIN_S
from tests.serving import anthropic, compatible, serving
from tests.world import ANN, Counting, Gate, Platform, calls, message, running, says
from threads import wording
from threads.model import Attachment, Author, Choice, Incoming, Message, Spoken, Text

BOB, BOSS = Author("U2", "bob"), Author("U9", "boss")
FIRST, SECOND = "first " * 1_200, "second " * 1_000
"""About 2,100 and 2,000 tokens: each fits the window of `Counting`, together they do not."""


def texts(request):
    return json.dumps([block.text for m in request.messages for block in m.blocks if isinstance(block, Text)])


async def say(bot, platform, n, text, author=ANN):
    """Say something and return the post that settles it."""
    await bot.orchestrator.receive(message(n, text, author=author))
    await platform.settled(f"m{n}")
    return next(post for post in reversed(platform.posts) if post.reply_to == f"m{n}")


async def overflowing(bot, platform):
    await say(bot, platform, 1, FIRST)
    return await say(bot, platform, 2, SECOND)


NO_SUMMARY = ModelUnavailable("no summary")


async def test_what_does_not_fit_is_not_sent_and_a_press_serves_it_in_the_way_that_was_chosen(tmp_path):
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY)
    async with running(tmp_path, platform, model) as bot:
        told = await overflowing(bot, platform)
        assert platform.outcomes["m2"] == "failed"
        assert told.kind == "error"
        assert "longer than the model can read at once" in told.text
        assert "(ref " in told.text
        assert told.choices == (Choice("Compact", "/retry m2 compact"), Choice("Start over", "/retry m2 new"))
        sent = [request for request in model.requests if INSTRUCTION not in request.messages]
        assert len(sent) == 1
    model = Counting(says("a short summary"), says("two"), says("three"))
    async with running(tmp_path, platform, model) as bot:  # after a restart
        answer = await say(bot, platform, 3, told.choices[0].command)
        assert answer.text.endswith("two")
        assert "I summarised the earlier part" in answer.text
        assert "a short summary" in texts(model.requests[1])
        assert "second" in texts(model.requests[1])
        assert "first first" not in texts(model.requests[1])
        await say(bot, platform, 4, "and now?")
        assert texts(model.requests[2]).count("second second ") == texts(model.requests[1]).count(
            "second second "
        )


async def test_starting_over_serves_it_in_a_fresh_conversation_and_keeps_the_old_one(tmp_path):
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY, says("two"))
    async with running(tmp_path, platform, model) as bot:
        told = await overflowing(bot, platform)
        assert (await say(bot, platform, 3, told.choices[1].command)).text == "two"
    [served] = model.requests[-1].messages
    assert "second" in served.text
    [old] = tmp_path.rglob("context.old.jsonl")
    assert "first first" in old.read_text()


async def test_the_thread_goes_on_when_nobody_chooses(tmp_path):
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY, says("hello"))
    async with running(tmp_path, platform, model) as bot:
        await overflowing(bot, platform)
        assert (await say(bot, platform, 3, "hello")).text.endswith("hello")
    assert "second" not in texts(model.requests[-1])


async def test_of_two_choices_that_are_pressed_at_once_one_counts(tmp_path):
    held = Gate(says("two"))
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY, held)
    async with running(tmp_path, platform, model) as bot:
        told = await overflowing(bot, platform)
        await held.hold(bot, message(3, told.choices[1].command))
        assert (await say(bot, platform, 4, told.choices[0].command)).text == sentences.ALREADY_RETRIED
        held.open.set()
        await platform.settled("m3")
    async with running(tmp_path, platform, model) as bot:
        assert (await say(bot, platform, 5, told.choices[0].command)).text == sentences.ALREADY_RETRIED
    assert platform.outcomes["m3"] == "answered"


async def test_only_its_person_or_an_admin_chooses_and_it_stays_its_persons_message(tmp_path):
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY, says("two"))
    async with running(tmp_path, platform, model, is_admin=lambda who: who == BOSS.id) as bot:
        told = await overflowing(bot, platform)
        press = told.choices[1].command
        assert (await say(bot, platform, 3, press, author=BOB)).text == wording.NOT_YOURS
        assert platform.outcomes["m3"] == "refused"
        assert (await say(bot, platform, 4, press, author=BOSS)).text == "two"
    [served] = model.requests[-1].messages
    assert ANN.id in served.text
    assert BOSS.id not in served.text


async def test_a_choice_joins_no_running_turn(tmp_path):
    held = Gate(calls("list_files", path="."))
    platform, model = Platform(), Counting(says("one"), NO_SUMMARY, held, says("done"), says("two"))
    async with running(tmp_path, platform, model) as bot:
        told = await overflowing(bot, platform)
        await held.hold(bot, message(3, "list"))
        await bot.orchestrator.receive(message(4, told.choices[1].command))
        held.open.set()
        await platform.settled("m3", "m4")
    assert platform.outcomes["m4"] == "answered"
    assert len(model.requests[-1].messages) == 1


async def test_a_choice_that_a_crash_cut_is_carried_out_once(tmp_path):
    platform, hanging = Platform(), Gate(says("never"))
    async with running(tmp_path, platform, Counting(says("one"), NO_SUMMARY, hanging)) as bot:
        told = await overflowing(bot, platform)
        await bot.orchestrator.receive(message(3, told.choices[1].command))
        await hanging.began.wait()
    model = Counting(says("two"))
    async with running(tmp_path, platform, model):
        await platform.settled("m3")
    assert platform.texts[-1].endswith("two")
    assert len(model.requests[0].messages) == 1
    [old] = tmp_path.rglob("context.old.jsonl")
    assert old.read_text().count("second") == 0


async def test_a_message_that_is_too_long_by_itself_is_not_sent_and_no_summary_is_paid_for(tmp_path):
    given = {"model": "anthropic/claude-x", "models": {"anthropic/claude-x": {"context_window": 6_000}}}
    async with (
        a.FakeAnthropic([a.answer(a.Text("one")), a.answer(a.Text("two"))]) as fake,
        serving(
            tmp_path, {**given, "providers": anthropic(fake.base_url), "budget": {"mode": "soft"}}
        ) as chat,
    ):
        await chat.say("hello")
        told = await chat.say("much " * 8_000)
        assert len(fake.requests) == 1
        assert "Your message alone is longer than the model can read at once" in told.text
        assert "in parts or as a file" in told.text
        assert told.choices == (), "none would help"
        assert (await chat.say("hello again")).text == "two"
        assert "much" not in json.dumps(fake.requests[1].json)
        assert set(chat.outcomes.values()) == {"answered", "failed"}


@pytest.mark.parametrize("own", [True, False], ids=["of the message", "of an earlier line"])
async def test_an_attachment_that_is_too_long_can_be_left_out(tmp_path, own):
    given = {"model": "anthropic/claude-x", "models": {"anthropic/claude-x": {"context_window": 6_000}}}
    big = Attachment("big.txt", "big.txt")
    earlier = [] if own else [Spoken(BOB, "[file: big.txt]", files=(big,))]
    platform = UserPlatform(earlier, files={"big.txt": b"words and words " * 2_000})
    async with (
        a.FakeAnthropic([a.answer(a.Text("without it"))]) as fake,
        serving(
            tmp_path,
            {**given, "providers": anthropic(fake.base_url), "budget": {"mode": "soft"}},
            chat=platform,
        ) as chat,
    ):
        asked = await platform.ask("what is this?", names=["big.txt"] * own)
        with anyio.fail_after(WITHIN_S):
            await platform.settled(asked.id)
        assert fake.requests == []
        assert chat.posts[-1].choices == (
            Choice("Leave the attachment out", f"/retry {asked.id} without-files"),
        )
        assert (await chat.say(chat.posts[-1].choices[0].command)).text == "without it"
        sent = json.dumps(fake.requests[0].json)
        assert "what is this?" in sent
        assert "words and words" not in sent


async def test_a_model_that_the_conversation_is_too_long_for_is_refused_with_the_ways_to_it(tmp_path):
    given = {
        "model": "anthropic/claude-x",
        "models": {"small/one": {"context_window": 2_000}},
        "budget": {"mode": "soft"},
    }
    replies = [
        a.answer(a.Text("one"), usage={"input_tokens": 6_000, "output_tokens": 1}),
        a.answer(a.Text("a summary")),
    ]
    async with a.FakeAnthropic(replies) as fake:
        providers = {**anthropic(fake.base_url), **compatible("small", "http://127.0.0.1:9/v1")}
        async with serving(tmp_path, {**given, "providers": providers}) as chat:
            await chat.say("word " * 4_000)
            refused = await chat.say("/model small/one")
            assert refused.text.startswith(
                "I stay with anthropic/claude-x: small/one reads 2,000 tokens at once"
            )
            assert refused.choices == (Choice("Compact", "/compact"), Choice("Start over", "/new"))
            assert (await chat.say("/model")).text.startswith("Model: anthropic/claude-x.")
            await chat.say("/compact")
            assert (await chat.say("/model small/one")).text.startswith("From the next message on, small/one")


# -- which ways are offered --------------------------------------------------------------------------------------

REQUEST = Request(
    "", [Message("user", (Text("old " * 400),), "m0"), Message("user", (Text("new " * 400),), "m1")]
)
MINE = Incoming("m1", message().thread, ANN, "new")
WITH_FILE = Incoming("m1", message().thread, ANN, "new", files=(Attachment("f", "f.txt", "text/plain", 9),))


@pytest.mark.parametrize(
    ("incoming", "window", "compacts", "ways"),
    [
        (MINE, 600, True, ("compact", "new")),
        (MINE, 600, False, ("new",)),
        (MINE, None, True, ("compact", "new")),
        (MINE, 100, True, ()),
        (WITH_FILE, 600, True, ("compact", "new", "without-files")),
        (WITH_FILE, 100, True, ("without-files",)),
        (WITH_FILE, 5, True, ()),
    ],
)
def test_only_what_can_help_is_offered(incoming, window, compacts, ways):
    error = too_long(REQUEST, incoming, window, compacts=compacts)
    assert isinstance(error, ContextOverflow)
    assert error.ways == ways
