"""What goes wrong in Discord is told, logged and survived: bad input, bad answers, and what was missed while down."""

from __future__ import annotations

import logging

import anyio
import pytest

from bot.reports.files import FileReader
from bot.reports.message_story import stories
from tests.fakes.discord import (
    BOT,
    CHANNEL,
    U1,
    U2,
    U3,
    FakeDiscord,
    Garbage,
    RateLimited,
    Refused,
    Status,
)
from tests.patience import WITHIN_S
from tests.transports.discord.bot import answers, bot_in
from tests.transports.settling import until_settled
from tests.world import Gate, Scripted, Streams, says
from threads.errors import TransportFatal
from threads.wording import first_cause, undelivered

pytestmark = pytest.mark.anyio

NAMED = f"<@{BOT}>"
SEND = "POST /channels/{}/messages"


async def alive(discord):
    """Prove that the bot still answers."""
    dm = discord.dm(U3)
    before = len(answers(discord, dm))
    await discord.say(U3, dm, "still there?")
    await discord.until(lambda: len(answers(discord, dm)) > before)


async def test_a_thread_that_is_there_already_is_used(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(says("here"))):
        discord.fail("POST /channels/{}/messages/{}/threads", Status(500, applied=True))
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id) == ["here"])
        assert answers(discord, CHANNEL) == []


async def test_a_locked_thread_is_told_of_and_not_tried_again(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        more = discord.say(U1, said.id, "and?")
        discord.lock(said.id)
        await more
        assert (await until_settled(tmp_path, more.id))[more.id] == "undelivered"
        assert len(discord.calls_to(SEND)) <= 4
        await alive(discord)


@pytest.mark.parametrize("what", ["channel", "permission", "thread"])
async def test_a_place_that_takes_no_posts_is_given_up_and_the_rest_goes_on(tmp_path, what):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        more = discord.say(U1, said.id, "and?")
        if what == "channel":
            discord.delete_channel(CHANNEL)
        elif what == "thread":
            discord.delete_channel(said.id)
        else:
            discord.deny(CHANNEL, "SEND_MESSAGES", "SEND_MESSAGES_IN_THREADS")
        await more
        assert (await until_settled(tmp_path, more.id))[more.id] == "undelivered"
        assert len(discord.calls_to(SEND)) <= 5
        await alive(discord)


async def test_a_missing_intent_ends_the_transport_and_says_what_to_tick(tmp_path):
    async with FakeDiscord(message_content=False) as discord:
        with anyio.fail_after(WITHIN_S), pytest.raises(BaseException) as raised:
            async with bot_in(discord, tmp_path, Scripted()):
                await anyio.sleep_forever()
        cause = first_cause(raised.value)
        assert isinstance(cause, TransportFatal)
        assert "Message Content Intent" in str(cause)
        assert discord.opened == 1


async def test_a_first_connect_that_fails_is_tried_again(tmp_path):
    async with FakeDiscord() as discord:
        discord.fail("GET /gateway", Status(503))
        discord.fail("GET /users/@me", Status(503))
        async with bot_in(discord, tmp_path, Scripted(), connected=False) as edge:
            with anyio.fail_after(WITHIN_S):
                await edge.reconnected()
            await alive(discord)


@pytest.mark.parametrize("fault", ["abort", "reconnect", "close", "invalid", "resumable"])
async def test_what_is_said_while_the_link_is_lost_is_answered_once(tmp_path, fault):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        first = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, first.id))
        link = discord.links[0]
        match fault:
            case "abort":
                link.abort()
            case "reconnect":
                link.reconnect()
            case "close":
                await link.close(4000)
            case "invalid":
                discord.forget_sessions()
                link.abort()
            case _:
                link.invalidate()
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


async def test_the_draft_of_a_killed_process_becomes_the_answer(tmp_path):
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Streams("word " * 30, "never")):
            said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            await discord.until(lambda: answers(discord, said.id))
        [draft] = discord.posts(said.id)
        assert draft.buttons
        async with bot_in(discord, tmp_path, Scripted(says("the whole answer"))):
            await until_settled(tmp_path, said.id)
        [answer] = [message for message in discord.posts(said.id) if not message.deleted]
        assert answer.id == draft.id
        assert "the whole answer" in answer.content
        assert not answer.buttons


@pytest.mark.parametrize(
    "route", ["PUT /channels/{}/messages/{}/reactions/{}/@me", "POST /channels/{}/typing"]
)
async def test_signs_that_are_refused_cost_no_answer(tmp_path, route):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        discord.fail(route, Refused(403, 50013, "Missing Permissions"), forever=True)
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        await alive(discord)


async def test_a_message_of_only_a_file_and_a_name_of_300_characters(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        ann = discord.user("A" * 300)
        dm = discord.dm(ann.id)
        said = await discord.say(ann.id, dm, "", files=[("n" * 300 + ".txt", b"plum", "text/plain")])
        long = await discord.say(ann.id, CHANNEL, f"{NAMED} " + "title " * 60)
        await until_settled(tmp_path, said.id, long.id)
        assert len(answers(discord, dm)) == 1
        assert len(discord.threads(CHANNEL)[0].name) <= 100
        assert any(".txt" in request.messages[0].text for request in model.requests)


async def test_a_link_to_a_file_that_has_expired_is_asked_for_again(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        dm = discord.dm(U1)
        said = discord.say(U1, dm, "look", files=[("notes.txt", b"plum", "text/plain")])
        discord.expire_links()
        await said
        await until_settled(tmp_path, said.id)
        [kept] = (tmp_path / "threads").rglob("*-notes.txt")
        assert kept.read_bytes() == b"plum"


async def test_a_storm_of_5000_messages_is_taken_in_without_loss(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        for number in range(4_990):
            discord.say(U2, CHANNEL, f"chatter {number}")
        said = [discord.say(U1, CHANNEL, f"{NAMED} question {number}") for number in range(10)]
        found = await until_settled(tmp_path, *(one.id for one in said))
        assert {found[one.id] for one in said} == {"answered"}


async def test_an_interaction_that_is_acknowledged_too_late_is_answered_in_the_channel(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        discord.fail("POST /interactions/{}/{}/callback", Refused(404, 10062, "Unknown interaction"))
        discord.slash(U1, said.id, "status", {})
        await discord.until(lambda: any("Model: " in text for text in answers(discord, said.id)))


async def test_a_person_who_takes_no_direct_messages_is_given_up_at_once(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        discord.closed_dms.add(U1)
        said = await discord.say(U1, discord.dm(U1), "hi")
        assert (await until_settled(tmp_path, said.id))[said.id] == "undelivered"
        assert len(discord.calls_to(SEND)) <= 2
        await alive(discord)


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
            with anyio.fail_after(WITHIN_S):
                while "invites it with" not in caplog.text:
                    await anyio.sleep(0.05)


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


@pytest.mark.parametrize("live", [True, False])
async def test_a_message_with_an_odd_field_is_answered_all_the_same(tmp_path, live):
    async with FakeDiscord() as discord:
        odd = {"embeds": [{"type": "rich", "timestamp": "not a time"}]}
        async with bot_in(discord, tmp_path, Scripted()):
            if live:
                said = await discord.say(U1, CHANNEL, f"{NAMED} hi", **odd)
                await until_settled(tmp_path, said.id)
            await alive(discord)
        if not live:
            said = discord.say(U1, CHANNEL, f"{NAMED} hi", **odd)
            async with bot_in(discord, tmp_path, Scripted()):
                await until_settled(tmp_path, said.id)
        assert len(answers(discord, said.id)) == 1


async def test_a_page_of_history_that_is_none_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("transports.shared.backfill.catch_up.PAUSES_S", (0.2,))
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted()):
            await alive(discord)
        said = discord.say(U1, CHANNEL, f"{NAMED} hi")
        discord.fail("GET /channels/{}/messages", Garbage())
        async with bot_in(discord, tmp_path, Scripted()):
            assert (await until_settled(tmp_path, said.id))[said.id] == "answered"
