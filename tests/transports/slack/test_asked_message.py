"""Somebody asks about a message, from its menu or by a reaction, and this is what everybody sees."""

from functools import partial

import pytest

from bot.config.settings import Access
from bot.routing.access import allowed
from tests.fakes.slack import ApiError, FakeSlack
from tests.transports.slack.bot import bot_in
from tests.world import Gate, Scripted, says
from threads.model import Text
from transports.slack.events.asked_message import parse_reaction, parse_shortcut
from transports.slack.events.parse_message import Me
from transports.slack.manifest import ASK_NAME, Features, manifest, missing_scopes, scopes

ON = {"features": Features(shortcut=True, ask_reaction="robot_face")}


def answers(slack, channel, root):
    return [message.text for message in slack.thread(channel, root) if message.ours]


def outside(request):
    blocks = [block for message in request.messages for block in message.blocks if isinstance(block, Text)]
    return "\n".join(block.text for block in blocks if block.outside)


async def all_is_settled(slack, root):
    """Wait until a later message of the thread is answered: then those before it have their outcomes."""
    there = len(answers(slack, "C1", root))
    await slack.say("U2", "C1", "anything else?", thread_ts=root)
    await slack.until(lambda: len(answers(slack, "C1", root)) > there)


async def test_a_chosen_message_is_answered_once_in_its_thread_for_who_chose_it(tmp_path):
    gate = Gate(says("It is about cake."))
    model = Scripted(gate)
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        file = slack.file("menu.txt", b"cheese cake", user="U2")
        said = await slack.say("U2", "C1", "who wants <https://cake.example|cake>?", files=[file])
        choices = [slack.shortcut("U1", said.ts), slack.shortcut("U1", said.ts)]
        for choice in choices:
            await choice.delivered(3.0)
        await gate.began.wait()
        gate.open.set()
        await slack.until(lambda: answers(slack, "C1", said.ts))
        await slack.say("U1", "C1", "and now?", thread_ts=said.ts)
        await slack.until(lambda: len(answers(slack, "C1", said.ts)) == 2)
    assert len(model.requests) == 2, "two clicks are one turn, and its thread is joined"
    assert model.requests[1].messages[-1].text.endswith("and now?")
    told = outside(model.requests[0])
    assert f"> Message from u2: {slack.url}/archives/C1/p{said.ts.replace('.', '')}" in told
    assert "> who wants cake (https://cake.example)?" in told
    assert "cheese cake" in told
    assert "[U1" in model.requests[0].messages[-1].text


async def test_a_mention_in_a_message_that_is_asked_about_is_answered_for_itself(tmp_path):
    model = Scripted(says("for U2"), says("for U1"))
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        said = await slack.say("U2", "C1", "<@UBOT> hi")
        await slack.until(lambda: answers(slack, "C1", said.ts) == ["for U2"])
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: answers(slack, "C1", said.ts) == ["for U2", "for U1"])
        await all_is_settled(slack, said.ts)
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: slack.responses)
    [told] = slack.responses
    assert told["response_type"] == "ephemeral"
    assert "/archives/C1/p" in told["text"]
    assert len(model.requests) == 3


async def test_a_reply_is_asked_about_in_the_thread_that_it_is_in(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        root = await slack.say("U2", "C1", "lunch?")
        reply = await slack.say("U3", "C1", "at noon", thread_ts=root.ts)
        await slack.shortcut("U1", reply.ts)
        await slack.until(lambda: answers(slack, "C1", root.ts))
    assert f"/p{reply.ts.replace('.', '')}?thread_ts={root.ts}&cid=C1" in outside(model.requests[0])


async def test_where_the_bot_is_no_member_its_person_alone_is_told_so(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        for number, kind in enumerate(("public", "private"), start=1):
            place = slack.channel(f"C{7 + number}", kind=kind, member=False)
            said = slack.say("U2", place.id, "psst")
            await slack.shortcut("U1", said.ts).delivered(3.0)
            await slack.until(lambda count=number: len(slack.responses) == count)
        assert all("Invite me" in told["text"] for told in slack.responses)
        assert slack.posts() == []
    assert model.requests == []


async def test_a_stranger_who_asks_is_refused_alone_and_costs_nothing(tmp_path):
    served = partial(allowed, Access(users=("U2",), channels=("*",)))
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON, allowed=served):
        said = await slack.say("U2", "C1", "mine")
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: slack.ephemerals)
        await slack.react("U1", said.ts, "robot_face")
        assert [shown.user for shown in slack.ephemerals] == ["U1"]
        assert slack.posts() == []
    assert model.requests == []


async def test_a_question_that_failed_can_be_asked_again(tmp_path):
    model = Scripted(ValueError("broken"), says("ok"), says("well"))
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        said = await slack.say("U2", "C1", "cake?")
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: len(answers(slack, "C1", said.ts)) == 1)
        await all_is_settled(slack, said.ts)
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: answers(slack, "C1", said.ts)[-1] == "well")


async def test_what_cannot_be_looked_at_in_time_is_taken_as_it_came(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        said = await slack.say("U2", "C1", "cake?")
        slack.fail("conversations.replies", ApiError("internal_error"), forever=True)
        await slack.shortcut("U1", said.ts)
        await slack.until(lambda: answers(slack, "C1", said.ts))
    assert "> cake?" in outside(model.requests[0])


async def test_the_chosen_reaction_asks_once_for_each_person_and_others_ask_nothing(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model, options=ON):
        slack.user("UOTHER", is_bot=True)
        said = await slack.say("U2", "C1", "cake?")
        for who, name in (("U1", "eyes"), ("UOTHER", "robot_face"), ("UBOT", "robot_face")):
            await slack.react(who, said.ts, name)
        assert model.requests == []
        for who in ("U1", "U1", "U3"):
            await slack.react(who, said.ts, "robot_face")
        await slack.until(lambda: len(answers(slack, "C1", said.ts)) == 2)
    assert len(model.requests) == 2
    assert "> cake?" in outside(model.requests[0])


async def test_a_reaction_that_cannot_be_looked_up_now_comes_again(tmp_path):
    model = Scripted()
    async with FakeSlack(redeliver_after=(0.0, 60.0)) as slack, bot_in(slack, tmp_path, model, options=ON):
        said = await slack.say("U2", "C1", "cake?")
        slack.fail("users.info", ApiError("internal_error"))
        slack.redeliver(slack.react("U1", said.ts, "robot_face"))
        await slack.until(lambda: answers(slack, "C1", said.ts))
    assert len(model.requests) == 1


async def test_while_it_is_off_nothing_is_taken_or_looked_up(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model):
        said = await slack.say("U2", "C1", "cake?")
        await slack.react("U1", said.ts, "robot_face")
        await slack.shortcut("U1", said.ts)
        assert slack.calls_to("users.info", "conversations.replies", "chat.postMessage") == []
    assert model.requests == []


def test_the_manifest_has_what_is_switched_on_and_nothing_else():
    plain = manifest("Bot", Features(), ())
    assert "shortcuts" not in plain["features"]
    assert "reactions:read" not in plain["oauth_config"]["scopes"]["bot"]
    assert "reaction_added" not in plain["settings"]["event_subscriptions"]["bot_events"]
    both = manifest("Bot", Features(command="", shortcut=True, ask_reaction="robot_face"), ())
    [shortcut] = both["features"]["shortcuts"]
    assert (shortcut["type"], shortcut["callback_id"]) == ("message", "ask")
    assert len(ASK_NAME) <= 24
    assert {"commands", "reactions:read"} <= {*both["oauth_config"]["scopes"]["bot"]}
    assert "reaction_added" in both["settings"]["event_subscriptions"]["bot_events"]
    wanted = Features(ask_reaction="robot_face")
    granted = {scope.name for scope in scopes(wanted)} - {"reactions:read"}
    assert missing_scopes(granted, wanted) == ["reactions:read: a reaction asks nothing"]


@pytest.mark.parametrize(
    "odd", [{}, {"callback_id": "ask"}, {"callback_id": 3, "message": "no", "user": {"id": "U1"}}]
)
def test_odd_payloads_are_nothing(odd):
    assert parse_shortcut(odd) is None
    assert parse_reaction(odd, "robot_face", Me("T1", "UBOT", "BBOT", "bot")) is None
