"""Who is answered how: commands, presses, strangers, other bots, and the places that are not plain channels."""

from __future__ import annotations

import json

import pytest

from bot import wording
from bot.ports.errors import ModelUnavailable
from tests.fakes.discord import BOT, CHANNEL, GUILD, U1, U2, FakeDiscord
from tests.fakes.discord.people import OTHER_BOT
from tests.fakes.discord.views import message_view
from tests.patience import until
from tests.transports.discord.bot import answers, bot_in
from tests.transports.discord.test_discord_story import only_served
from tests.transports.settling import until_settled
from tests.world import Scripted, says
from threads.errors import TransportRejected
from threads.model import ThreadId
from transports.shared.bot_loop_guard import IN_A_ROW

NAMED = f"<@{BOT}>"


def thinking(asked):
    """Return whether Discord still shows the person that an answer comes."""
    return asked.original is not None and not asked.original.deleted and not asked.original.content


async def marks_with(data, id_):
    """Return how far each place was read, as it is on disk when that message is."""
    path = data / "discord-marks.json"
    await until(lambda: path.exists() and id_ in path.read_text())
    return json.loads(path.read_text())["channels"]


async def failed_thread(discord):
    """A conversation whose first turn failed."""
    said = await discord.say(U1, CHANNEL, f"{NAMED} the question")
    await discord.until(lambda: answers(discord, said.id) and discord.message(said.id).reactions.get("❌"))
    return said


async def test_a_command_in_a_thread_is_answered_once_and_is_no_direct_message(tmp_path):
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted()):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await until_settled(tmp_path, said.id)
        asked = await discord.slash(U1, said.id, "status", {})
        await discord.until(lambda: asked.contents and "Model: " in asked.contents[0])
        follow = await discord.say(U1, said.id, "and now?")
        told = message_view(discord, follow)
        # as of a whisper: without its guild
        discord.tell("MESSAGE_CREATE", told | {"id": discord.snowflake()})
        await until_settled(tmp_path, follow.id)
        await discord.until(lambda: len(answers(discord, said.id)) == 3)
        assert len(asked.contents) == 1
        last = await discord.say(U1, CHANNEL, "just talking")
        places = await marks_with(tmp_path, last.id)
        assert {place for place in places if said.id in place} == {f"{GUILD}/{said.id}"}


async def test_a_strangers_commands_and_presses_are_all_answered_to_them(tmp_path):
    served = only_served(users=(U1,))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, Scripted(), allowed=served):
        dm = discord.dm(U2)
        for name in ("status", "help", "usage"):
            asked = await discord.slash(U2, dm, name, {})
            await discord.until(lambda asked=asked: asked.contents and not thinking(asked))
            assert "Ask whoever runs this bot" in asked.contents[0]
        said = [await discord.say(U2, dm, "hi") for _ in range(3)]
        await discord.until(lambda: answers(discord, dm))
        last = await discord.say(U1, discord.dm(U1), "hi")
        found = await until_settled(tmp_path, last.id)
        assert [found.get(one.id) for one in said] == ["refused", None, None]


async def test_a_command_that_is_a_turn_of_its_own_is_answered_too(tmp_path):
    model = Scripted(says("one"), says("A summary of what was said. " * 20))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, said.id))
        asked = await discord.slash(U1, said.id, "compact", {})
        await discord.until(lambda: asked.contents and not thinking(asked))
        assert asked.contents[0]
        assert [*(await until_settled(tmp_path, count=2)).values()] == ["answered", "answered"]
        assert answers(discord, said.id) == ["one"]


async def test_what_a_command_asks_anew_is_answered_for_all(tmp_path):
    model = Scripted(ModelUnavailable("down"), says("now it works"))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        said = await failed_thread(discord)
        asked = await discord.slash(U2, said.id, "retry", {})
        await discord.until(lambda: answers(discord, said.id)[-1] == "now it works")
        await discord.until(lambda: not thinking(asked))
        assert asked.contents == []
        dm = discord.dm(U1)
        in_vain = await discord.slash(U1, dm, "retry", {})
        await discord.until(lambda: in_vain.contents and not thinking(in_vain))
        assert in_vain.contents == [wording.NOTHING_TO_RETRY]
        assert answers(discord, dm) == []


async def test_a_button_that_nobody_knows_goes_when_it_is_pressed(tmp_path):
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted(ModelUnavailable("down"))):
            said = await failed_thread(discord)
        [post] = discord.posts(said.id)
        [row] = post.components
        row["components"][0]["custom_id"] = "of-another-version"
        async with bot_in(discord, tmp_path, Scripted()):
            pressed = await discord.press(U1, post, "of-another-version")
            await discord.until(lambda: pressed.contents)
            assert "does not work any more" in pressed.contents[0]
            await discord.until(lambda: not discord.message(post.id).buttons)
            assert "ref" in discord.message(post.id).content


async def test_a_message_that_the_library_cannot_read_costs_no_other_live_or_missed(tmp_path):
    odd = {"embeds": [{"type": "rich", "timestamp": "not a time"}]}
    async with FakeDiscord() as discord:
        async with bot_in(discord, tmp_path, Scripted()):
            root = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            await discord.until(lambda: answers(discord, root.id))
            await discord.say(U1, root.id, "odd", **odd)
            live = await discord.say(U1, root.id, "good")
            await until_settled(tmp_path, root.id, live.id)
            await discord.until((tmp_path / "discord-marks.json").exists)
            assert discord.identifies == 1
        missed = [discord.say(U1, root.id, f"{number}", quiet=True) for number in range(3)]
        discord.say(U1, root.id, "odd", quiet=True, **odd)
        missed.append(discord.say(U1, root.id, "after it", quiet=True))
        async with bot_in(discord, tmp_path, Scripted()):
            found = await until_settled(tmp_path, *(one.id for one in missed))
            assert {found[one.id] for one in missed} <= {"answered", "merged"}
            await until(lambda: not json.loads((tmp_path / "discord-marks.json").read_text()).get("gaps"))


async def test_a_file_may_be_as_large_as_its_guild_allows(tmp_path):
    """10 MiB, or 50 where people pay for it; a direct message is no guild."""
    async with FakeDiscord(upload_limit=50 * 2**20) as discord:
        discord.premium_tier = 2
        async with bot_in(discord, tmp_path, Scripted()) as edge:
            root = await discord.say(U1, CHANNEL, f"{NAMED} hi")
            await discord.until(lambda: answers(discord, root.id))
            file = tmp_path / "large"
            file.write_bytes(b"x" * (10 * 2**20 + 1))
            thread = ThreadId("discord", GUILD, CHANNEL, root.id)
            await edge.attach(thread, f"{thread}:{root.id}+1", file, "large.bin")
            assert [list(message.files) for message in discord.posts(root.id)][-1] == ["large.bin"]
            dm = discord.dm(U1)
            with pytest.raises(TransportRejected) as refused:
                await edge.attach(ThreadId("discord", "@me", dm, dm), "key", file, "large.bin")
            assert "10 MiB here at most" in refused.value.friendly


async def test_another_bot_is_heard_only_if_listed_and_named_and_not_for_ever(tmp_path):
    model = Scripted()
    options = {"bots": frozenset({OTHER_BOT})}
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=options):
        root = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, root.id))
        unnamed = await discord.bot_says(root.id, "beep")
        reply = await discord.bot_says(root.id, "beep", reply_to=discord.posts(root.id)[0])
        said = [await discord.bot_says(root.id, f"{NAMED} beep {number}") for number in range(IN_A_ROW + 5)]
        heard = said[:IN_A_ROW]
        found = await until_settled(tmp_path, *(one.id for one in heard))
        person = await discord.say(U1, root.id, "enough of that?")
        more = await discord.bot_says(root.id, f"{NAMED} beep again")
        found = await until_settled(tmp_path, person.id, more.id)
        assert {one.id for one in said} & found.keys() == {one.id for one in heard}
        assert not {unnamed.id, reply.id} & found.keys()
