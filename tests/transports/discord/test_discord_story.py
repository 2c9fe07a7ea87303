"""Whole stories in Discord: somebody says something, and this is what everybody sees."""

from __future__ import annotations

import json
from functools import partial

import pytest

from bot.config.settings import Access
from bot.routing.access import allowed
from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, GUILD, ROLE, U1, U2, VOICE, FakeDiscord
from tests.transports.discord.bot import answers, bot_in
from tests.transports.settling import until_settled
from tests.world import Gate, Scripted, calls, says
from threads.model import Outgoing, ThreadId

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
