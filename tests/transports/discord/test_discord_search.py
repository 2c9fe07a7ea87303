"""What is found of other threads in Discord, where a thread of a channel may be private."""

from bot.config.settings import Settings
from bot.extensions.thread_search.tool import SearchThreads
from tests.fakes.discord import BOT, CHANNEL, U1, U2, FakeDiscord
from tests.tool_context import make_toolbox
from tests.transports.bot import bot_over
from tests.transports.discord.bot import answers, transport
from tests.transports.settling import until_settled
from tests.world import Scripted, calls, says


async def work(run, *given):
    return run(*given)


async def test_a_thread_that_may_be_private_is_only_found_by_those_who_spoke_in_it(tmp_path):
    search = calls("search_threads", words="cake")
    model = Scripted(says("ok"), says("ok"), search, says("done"), search, says("done"))
    async with FakeDiscord() as discord:
        edge = transport(discord, tmp_path)
        tool = SearchThreads(Settings(data=tmp_path), {}, work, [edge])
        async with bot_over(edge, tmp_path, model, toolbox=make_toolbox([tool])):
            open_to_all = await discord.say(U2, CHANNEL, f"<@{BOT}> cake for all")
            hidden = discord.loose_thread(U2, CHANNEL, "Just us")
            among_us = await discord.say(U2, hidden.id, f"<@{BOT}> cake for us")
            await until_settled(tmp_path, open_to_all.id, among_us.id)
            for who in (U1, U2):
                said = await discord.say(who, CHANNEL, f"<@{BOT}> what about it?")
                await discord.until(lambda thread=said.id: answers(discord, thread))
    read = [
        request.messages[-1].results[0].content for request in model.requests if request.messages[-1].results
    ]
    assert ["cake for us" in one for one in read] == [False, True]
    assert all("cake for all" in one and f"/{open_to_all.id}" in one for one in read)
