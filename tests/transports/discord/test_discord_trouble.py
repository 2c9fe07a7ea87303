"""What goes wrong in Discord is told, logged and survived: bad input, bad answers, and what was missed while down."""

from __future__ import annotations

import logging

import anyio
import pytest

from bot.reports.files import FileReader
from bot.reports.message_story import stories
from tests.fakes.discord import BOT, CHANNEL, U1, U2, U3, FakeDiscord, Garbage, RateLimited, Refused, Status
from tests.patience import WITHIN_S, until
from tests.transports.discord.bot import answers, bot_in
from tests.transports.settling import until_settled
from tests.world import Gate, Scripted, says
from threads.wording import undelivered

NAMED = f"<@{BOT}>"
SEND = "POST /channels/{}/messages"


async def alive(discord):
    """Prove that the bot still answers."""
    dm = discord.dm(U3)
    before = len(answers(discord, dm))
    await discord.say(U3, dm, "still there?")
    await discord.until(lambda: len(answers(discord, dm)) > before)


async def test_a_first_connect_that_fails_is_tried_again(tmp_path):
    async with FakeDiscord() as discord:
        discord.fail("GET /gateway", Status(503))
        discord.fail("GET /users/@me", Status(503))
        async with bot_in(discord, tmp_path, Scripted(), connected=False) as edge:
            with anyio.fail_after(WITHIN_S):
                await edge.reconnected()
            await alive(discord)


@pytest.mark.parametrize("is_resumed", [True, False])
async def test_what_is_said_while_the_link_is_lost_is_answered_once(tmp_path, is_resumed):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        first = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, first.id))
        if not is_resumed:
            discord.forget_sessions()
        discord.links[0].abort()
        said = discord.say(U1, CHANNEL, f"{NAMED} are you there?")
        follow = discord.say(U2, first.id, "and there?")
        with anyio.fail_after(WITHIN_S):
            await until_settled(tmp_path, said.id, follow.id)
        assert len(answers(discord, said.id)) == 1
        assert len(answers(discord, first.id)) == 2
        await alive(discord)


async def test_what_was_said_while_the_bot_was_down_is_answered_when_it_comes_back(tmp_path):
    async with FakeDiscord() as discord:
        dm, other = discord.dm(U1), discord.channel("quiet")
        async with bot_in(discord, tmp_path, Scripted()):
            root = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            direct = await discord.say(U1, dm, "hi")
            await until_settled(tmp_path, root.id, direct.id)
            await discord.until(lambda: (tmp_path / "discord-marks.json").exists())
        missed = [
            discord.say(U1, CHANNEL, f"{NAMED} a new question", quiet=True),
            discord.say(U2, root.id, "a follow-up", quiet=True),
            discord.say(U1, dm, "direct", quiet=True),
            discord.say(U2, other.id, f"{NAMED} in a channel never heard", quiet=True),
        ]
        ignored = discord.say(U1, CHANNEL, "just talking", quiet=True)
        async with bot_in(discord, tmp_path, Scripted()):
            found = await until_settled(tmp_path, *(said.id for said in missed))
        assert {found[said.id] for said in missed} == {"answered"}
        assert ignored.id not in found


async def test_an_answer_that_is_ready_while_nothing_gets_through_waits_for_the_network(tmp_path):
    held = Gate(says("the answer"))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(held)):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await held.began.wait()
        await discord.until(lambda: said.id in discord.channels)
        discord.cut_off()
        held.open.set()
        await anyio.sleep(2.0)
        assert answers(discord, said.id) == []
        discord.cut_off(offline=False)
        assert (await until_settled(tmp_path, said.id))[said.id] == "answered"
        assert answers(discord, said.id) == ["the answer"]
        await alive(discord)


async def test_an_answer_that_a_ban_keeps_back_is_told_by_why_and_mentioned_after_it(tmp_path, monkeypatch):
    """A stale answer is worse than none: one that cannot be out for ten minutes is given up, and that is on record."""
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("one"), says("two"))):
        monkeypatch.setattr("transports.discord.api.invalid_requests.FIRST_BAN_S", 1.5)
        monkeypatch.setattr("transports.shared.delivery.outbox.LONGEST_RETRY_AFTER_S", 1.0)
        discord.fail(SEND, RateLimited(600, via=False))
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        assert (await until_settled(tmp_path, said.id))[said.id] == "undelivered"
        (story,) = stories(FileReader(tmp_path), said.id)
        assert any('"one"' in event.what for event in story.events)
        assert story.outcome == "undelivered"
        assert answers(discord, said.id) == []
        await anyio.sleep(1.5)
        more = await discord.say(U1, said.id, "and?")
        assert (await until_settled(tmp_path, more.id))[more.id] == "answered"
        assert answers(discord, said.id) == [f"{undelivered(1)}\n\ntwo"]


async def test_the_status_tells_that_discord_has_almost_enough_of_the_bot(tmp_path, monkeypatch):
    monkeypatch.setattr("transports.discord.api.invalid_requests.CAREFUL_AT", 1)
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        asked = await discord.slash(U1, CHANNEL, "status", {})
        await discord.until(lambda: asked.contents and asked.contents[0])
        assert "Trouble" not in asked.contents[0]
        discord.deny(CHANNEL, "ADD_REACTIONS")
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id) and discord.invalid)
        asked = await discord.slash(U1, said.id, "status", {})
        await discord.until(lambda: asked.contents and asked.contents[0])
        assert "Trouble: discord: 1 refused requests" in asked.contents[0]


async def test_a_bot_that_is_in_no_server_says_how_to_invite_it(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    async with FakeDiscord() as discord:
        discord.kick()
        async with bot_in(discord, tmp_path, Scripted()):
            await until(lambda: "invites it with" in caplog.text)


async def test_a_bot_that_may_open_threads_and_not_speak_in_them_answers_in_place(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("here"), says("and here"))):
        discord.deny(CHANNEL, "SEND_MESSAGES_IN_THREADS")
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        assert (await until_settled(tmp_path, said.id))[said.id] == "answered"
        assert answers(discord, CHANNEL) == ["here"]
        await discord.say(U1, CHANNEL, f"{NAMED} again")
        await discord.until(lambda: answers(discord, CHANNEL) == ["here", "and here"])
        assert len(discord.calls_to("POST /channels/{}/messages/{}/threads")) == 1


async def test_an_answer_that_is_refused_in_its_form_goes_out_bare(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("plain"))):
        dm = discord.dm(U1)
        refused = Refused(400, 50035, "Invalid Form Body")
        discord.fail(SEND, refused, forever=True, when=lambda call: "message_reference" in call.body)
        await discord.say(U1, dm, "hi")
        await discord.until(lambda: answers(discord, dm) == ["plain"])


async def test_a_page_of_history_that_is_none_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("transports.shared.backfill.catch_up.PAUSES_S", (0.2,))
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted()):
            await alive(discord)
        said = discord.say(U1, CHANNEL, f"{NAMED} hi")
        discord.fail("GET /channels/{}/messages", Garbage())
        async with bot_in(discord, tmp_path, Scripted()):
            assert (await until_settled(tmp_path, said.id))[said.id] == "answered"
