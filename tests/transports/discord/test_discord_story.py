"""Whole stories in Discord: somebody says something, and this is what everybody sees."""

from __future__ import annotations

import json
from functools import partial

import pytest

from bot.config.settings import Access
from bot.routing.access import allowed
from tests.fakes.discord import (
    BOT,
    BOT_ROLE,
    CHANNEL,
    CHANNEL2,
    FORUM,
    GUILD,
    ROLE,
    U1,
    U2,
    U3,
    VOICE,
    FakeDiscord,
)
from tests.transports.discord.bot import answers, bot_in
from tests.transports.settling import until_kept, until_settled
from tests.world import Gate, Scripted, calls, says
from threads.model import Outgoing, ThreadId

pytestmark = pytest.mark.anyio

NAMED = f"<@{BOT}>"


def only_served(**lists):
    return partial(allowed, Access(**{"users": ("*",), "channels": ("*",), **lists}))


async def test_a_mention_in_a_channel_opens_a_thread_and_is_answered_there_once(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("Hello **Ann**."))):
        said = await discord.say(U1, CHANNEL, f"{NAMED} what is the plan?")
        await discord.until(lambda: answers(discord, said.id))
        assert answers(discord, said.id) == ["Hello **Ann**."]
        assert answers(discord, CHANNEL) == []
        [thread] = discord.threads(CHANNEL)
        assert thread.name == "what is the plan?"
        await discord.until(lambda: set(discord.message(said.id).reactions) == {"✅"})
        assert discord.pings == []


async def test_a_direct_message_is_answered_in_place(tmp_path):
    model = Scripted(says("Yes."), says("Still."))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        dm = discord.dm(U1)
        await discord.say(U1, dm, "are you there?")
        await discord.until(lambda: answers(discord, dm) == ["Yes."])
        await discord.say(U1, dm, "and now?")
        await discord.until(lambda: answers(discord, dm) == ["Yes.", "Still."])
        assert "are you there?" in model.requests[1].messages[0].text


async def test_the_name_in_any_form_is_a_mention_and_everyone_is_not(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        said = [
            await discord.say(U1, CHANNEL, f"<@!{BOT}> one"),
            await discord.say(U1, CHANNEL, f"hello <@&{BOT_ROLE}>"),
        ]
        await discord.say(U1, CHANNEL, "@everyone look")
        await discord.say(U1, CHANNEL, "just talking")
        last = await discord.say(U1, discord.dm(U1), "done?")
        await until_settled(tmp_path, *(one.id for one in said), last.id)
        assert len(model.requests) == 3


async def test_a_redelivered_message_is_answered_once_also_by_the_next_process(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, model):
            said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            await discord.redeliver(said)
            await discord.until(lambda: answers(discord, said.id))
            await discord.redeliver(said)
        async with bot_in(discord, tmp_path, model):
            await discord.redeliver(said)
            last = await discord.say(U1, discord.dm(U1), "hi")
            await until_settled(tmp_path, last.id)
        assert len(answers(discord, said.id)) == 1
        assert len(model.requests) == 2


async def test_a_question_about_somebody_elses_message_comes_with_that(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        other = await discord.say(U2, CHANNEL, "E = mc squared")
        asked = await discord.say(U1, CHANNEL, f"{NAMED} what does that mean?", reply_to=other)
        await discord.until(lambda: answers(discord, asked.id))
        assert "E = mc squared" in model.requests[0].messages[0].text


async def test_a_forum_post_is_a_conversation_and_its_title_is_read_once(tmp_path):
    model = Scripted(says("one"), says("two"))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        thread = await discord.post(U1, FORUM, "Why is it slow?", f"{NAMED} how does it work?")
        await discord.until(lambda: answers(discord, thread.id) == ["one"])
        await discord.say(U1, thread.id, "and then?")
        await discord.until(lambda: answers(discord, thread.id) == ["one", "two"])
    assert sum("Why is it slow?" in message.text for message in model.requests[1].messages) == 1


async def test_a_message_in_an_archived_thread_that_nobody_knows_is_answered(tmp_path):
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted(says("one"))):
            said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            await discord.until(lambda: answers(discord, said.id) == ["one"])
            discord.archive(said.id)
        async with bot_in(discord, tmp_path, Scripted(says("two"))):
            await discord.say(U1, said.id, "still there?")
            await discord.until(lambda: answers(discord, said.id) == ["one", "two"])


@pytest.mark.parametrize("where", ["setting", "voice", "permission"])
async def test_where_no_thread_can_be_opened_replies_are_the_conversation(tmp_path, where):
    model = Scripted(says("one"), says("two"), says("three"))
    options = {"in_place": frozenset({CHANNEL})} if where == "setting" else {}
    channel = VOICE if where == "voice" else CHANNEL
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=options):
        if where == "permission":
            discord.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
        said = await discord.say(U1, channel, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, channel) == ["one"])
        first = next(message for message in discord.messages(channel) if message.ours)
        assert first.reply_to == said.id
        more = await discord.say(U1, channel, "go on", reply_to=first)
        await discord.until(lambda: answers(discord, channel) == ["one", "two"])
        second = [message for message in discord.messages(channel) if message.ours][-1]
        assert second.reply_to == more.id
        await discord.say(U2, channel, "and me?", reply_to=second, ping=False)
        await discord.until(lambda: answers(discord, channel) == ["one", "two", "three"])
        assert "hi" in model.requests[2].messages[0].text
        assert len(model.requests[2].messages) == 5


async def test_the_stop_button_ends_the_turn_and_goes(tmp_path):
    model = Scripted(calls("list_files", path="."), held := Gate(says("never")))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        said = await discord.say(U1, CHANNEL, f"{NAMED} work")
        await held.began.wait()
        await discord.until(lambda: any(m.buttons for m in discord.posts(said.id)))
        [draft] = [message for message in discord.posts(said.id) if message.buttons]
        [(label, custom_id)] = draft.buttons
        assert label == "Stop"
        pressed = await discord.press(U2, draft, custom_id)
        assert pressed.acked
        await until_settled(tmp_path, said.id)
        await discord.until(lambda: set(discord.message(said.id).reactions) == {"🛑"})
        await discord.until(lambda: not any(m.buttons for m in discord.posts(said.id) if not m.deleted))


async def test_thumbs_under_an_answer_are_kept_in_the_audit_also_after_a_restart(tmp_path):
    on = {"feedback": True}
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted(says("so it is")), options=on):
            said = await discord.say(U1, CHANNEL, f"{NAMED} is it?")
            await discord.until(lambda: answers(discord, said.id))
            [answer] = discord.posts(said.id)
            assert await thanks(discord, U1, answer, "feedback:up") == "Thank you."
            await thanks(discord, U2, answer, "feedback:down")
        async with bot_in(discord, tmp_path, Scripted()):
            assert "what was wrong" in await thanks(discord, U1, answer, "feedback:down")
            await thanks(discord, U1, answer, "feedback:down")
        assert len(discord.posts(said.id)) == 1
    found = [
        json.loads(line) for file in (tmp_path / "audit").iterdir() for line in file.read_bytes().splitlines()
    ]
    verdicts = [(line["author"], line["message_id"], line["details"]["verdict"]) for line in found]
    assert verdicts == [(U1, answer.id, "up"), (U2, answer.id, "down"), (U1, answer.id, "down")]


async def thanks(discord, user, answer, custom_id):
    """Return what a person is told alone when they press a thumb; the buttons stay."""
    pressed = await discord.press(user, answer, custom_id)
    await discord.until(lambda: pressed.answers)
    assert len(answer.buttons) == 2
    return pressed.answers[0].content


async def test_a_thumb_of_a_stranger_counts_for_nothing(tmp_path):
    served = {"options": {"feedback": True}, "allowed": only_served(users=(U1,))}
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(), **served):
        said = await discord.say(U1, CHANNEL, f"{NAMED} is it?")
        await discord.until(lambda: answers(discord, said.id))
        await thanks(discord, U3, discord.posts(said.id)[0], "feedback:up")
    assert not [*(tmp_path / "audit").glob("*")]


LONG = "words " * 260
"""About 450 tokens: twice that is more than the model of the next test reads."""


async def test_a_button_that_nobody_knows_is_answered_to_its_person(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("hi"))):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        [post] = discord.posts(said.id)
        pressed = await discord.press(U1, post, "something-of-long-ago", stale=True)
        assert pressed.acked
        await discord.until(lambda: pressed.answers)
        assert "does not work any more" in pressed.answers[0].content


async def test_a_stranger_who_mentions_the_bot_is_refused_and_no_thread_is_opened(tmp_path):
    model = Scripted()
    served = only_served(users=(U1,))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, allowed=served):
        said = await discord.say(U2, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, CHANNEL))
        assert discord.threads(CHANNEL) == []
        [refusal] = [message for message in discord.messages(CHANNEL) if message.ours]
        assert refusal.reply_to == said.id
        assert "Ask whoever runs this bot" in refusal.content
        assert model.requests == []


async def test_access_by_role_channel_and_guild(tmp_path):
    model = Scripted()
    served = only_served(users=(), roles=(ROLE,), channels=(CHANNEL,))
    options = {"roles": lambda: frozenset({ROLE})}
    async with FakeDiscord() as discord:
        discord.users[U2].roles.append(ROLE)
        async with bot_in(discord, tmp_path, model, allowed=served, options=options):
            refused = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            elsewhere = await discord.say(U2, CHANNEL2, f"{NAMED} hi")
            heard = await discord.say(U2, CHANNEL, f"{NAMED} hi")
            found = await until_settled(tmp_path, refused.id, heard.id, elsewhere.id)
        assert (found[refused.id], found[elsewhere.id], found[heard.id]) == ("refused", "refused", "answered")
        missed = discord.say(U2, CHANNEL, f"{NAMED} and while you were away?", quiet=True)
        async with bot_in(discord, tmp_path, model, allowed=served, options=options):
            found = await until_settled(tmp_path, missed.id)
        assert found[missed.id] == "answered"


async def test_who_lost_their_role_is_not_served_by_what_an_earlier_session_knew(tmp_path, monkeypatch):
    monkeypatch.setattr("transports.shared.link.supervisor.FIRST_PAUSE_S", 0.02)
    served, options = only_served(users=(), roles=(ROLE,)), {"roles": lambda: frozenset({ROLE})}
    async with (
        FakeDiscord() as discord,
        bot_in(discord, tmp_path, Scripted(), allowed=served, options=options),
    ):
        await discord.until(lambda: discord.ready)
        for roles, outcome in (([ROLE], "answered"), ([], "refused")):
            discord.users[U2].roles[:] = roles
            missed = discord.say(U2, CHANNEL, f"{NAMED} did you hear me?", quiet=True)
            discord.links[-1].invalidate()
            assert (await until_settled(tmp_path, missed.id))[missed.id] == outcome


async def test_slash_commands_are_answered_to_their_person_alone(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        await discord.until(lambda: discord.commands)
        names = {command["name"] for command in discord.commands}
        assert {"stop", "status", "new", "model", "compact", "usage", "help"} <= names
        for name, words in (("status", "Idle"), ("help", "/usage"), ("new", "in the thread")):
            asked = await discord.slash(U1, CHANNEL, name, {})
            assert asked.acked
            await discord.until(lambda asked=asked: asked.answers and asked.answers[0].content)
            assert words in asked.answers[0].content
        assert discord.posts() == []


async def test_models_are_completed_while_somebody_types(tmp_path):
    options = {"models": ("default", "anthropic/big", "openai/small")}
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(), options=options):
        await discord.until(lambda: discord.commands)
        typed = await discord.autocomplete(U1, CHANNEL, "model", "name", "open")
        assert [choice["value"] for choice in typed.choices] == ["openai/small"]


async def test_the_commands_are_told_once_and_not_again_by_the_next_process(tmp_path):
    async with FakeDiscord() as discord:
        for _ in range(2):
            async with bot_in(discord, tmp_path, Scripted()):
                said = await discord.say(U3, discord.dm(U3), "hi")
                await until_settled(tmp_path, said.id)
                await discord.until(lambda: discord.commands)
                await until_kept(tmp_path / "discord-commands.json")
        assert len(discord.calls_to("PUT /applications/{}/commands")) == 1


async def test_the_link_to_a_thread_leads_to_it_and_has_no_preview(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("hi"))) as edge:
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        link = edge.link(ThreadId("discord", GUILD, CHANNEL, said.id))
        assert link == f"https://discord.com/channels/{GUILD}/{said.id}"
        unknown = edge.link(ThreadId("discord", GUILD, CHANNEL, "77"))
        assert unknown == f"https://discord.com/channels/{GUILD}/{CHANNEL}/77", (
            "a message shows the thread below it"
        )
        dm = discord.dm(U1)
        assert edge.link(ThreadId("discord", "@me", dm, dm)) == f"https://discord.com/channels/@me/{dm}"
        assert edge.link(ThreadId("discord", GUILD, CHANNEL2, "")) == (
            f"https://discord.com/channels/{GUILD}/{CHANNEL2}"
        )
        told = Outgoing(
            ThreadId("discord", GUILD, CHANNEL2, ""), "escalation:1", f"It was in {link} (ref 1)", "notice"
        )
        await edge.post(told)
        assert answers(discord, CHANNEL2) == [f"It was in <{link}> (ref 1)"]
