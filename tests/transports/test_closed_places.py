"""Where nobody could see an answer, no model is paid for one, and its person is told why, once."""

from __future__ import annotations

from functools import partial

import pytest

from tests.transports.chats import told
from tests.transports.settling import until_settled
from tests.world import Scripted, says


@pytest.fixture
def bot(chat, tmp_path):
    return partial(chat.running, tmp_path)


async def lost(chat, tmp_path, thread, user, text="and?"):
    """Say something in a closed place, and wait until its answer is given up."""
    said = await chat.say(thread, text, user)
    assert (await until_settled(tmp_path, said))[said] == "undelivered"


@pytest.mark.parametrize("whole_channel", [True, False])
async def test_in_a_closed_place_one_answer_is_lost_and_no_further_one_is_paid_for(
    chat, bot, tmp_path, whole_channel
):
    model = Scripted(says("one"), says("two"), says("three"))
    async with bot(model):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
        chat.close(thread, whole_channel=whole_channel)
        for user in (chat.ann, chat.ann, chat.bob, chat.ann):
            await lost(chat, tmp_path, thread, user)
        assert len(model.requests) == 2
        for user in (chat.ann, chat.bob):
            await chat.fake.until(lambda user=user: chat.direct(user))
            [reason] = chat.direct(user)
            assert reason.startswith("I cannot answer in ")
            assert any(
                why in reason for why in ("is locked", "not in that channel", "permission to write there")
            )
        chat.open(thread)
        await chat.say(thread, "now?")
        await told(chat, thread, "three")
        assert len(model.requests) == 3
        assert len(chat.texts(thread)) == 2, "what tried the place out is gone"


async def test_in_a_closed_channel_a_new_question_is_not_paid_for_either(chat, bot, tmp_path):
    model = Scripted(says("one"))
    async with bot(model):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
        chat.close(thread, whole_channel=True)
        for _ in range(3):
            said = await chat.ask("and this?")
            assert (await until_settled(tmp_path, said))[said] == "undelivered"
        assert len(model.requests) == 2
        assert len(chat.direct(chat.ann)) == 1


async def test_a_place_that_cannot_be_tried_out_now_gets_its_answer(chat, bot, tmp_path):
    async with bot(Scripted(says("one"), says("two"), says("three"))):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
        chat.close(thread, whole_channel=False)
        await lost(chat, tmp_path, thread, chat.ann)
        chat.open(thread)
        chat.fake.fail(chat.send, chat.lost)
        await chat.say(thread, "now?")
        await told(chat, thread, "three")


async def test_another_thread_is_served_while_one_is_locked(chat, bot, tmp_path):
    model = Scripted(says("one"), says("lost"), says("other"))
    async with bot(model):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
        chat.close(thread, whole_channel=False)
        await lost(chat, tmp_path, thread, chat.ann)
        await told(chat, await chat.ask("elsewhere"), "other")
        await lost(chat, tmp_path, thread, chat.ann)
        assert len(model.requests) == 3
