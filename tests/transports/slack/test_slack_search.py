"""Slack's own search: only with the token that came with the asker's message, and it says why not."""

import json

import pytest

from bot.config.settings import Settings
from bot.extensions.thread_search.tool import SearchThreads
from tests.fakes.slack import FakeSlack
from tests.tool_context import make_toolbox
from tests.transports.bot import bot_over
from tests.transports.slack.bot import transport
from tests.world import Scripted, calls, says
from transports.slack.manifest import Features, missing_scopes, scopes

TOKEN = "123.456.abcdef"


async def work(run, *given):
    return run(*given)


async def searched(tmp_path, *, scoped=True, **event):
    """Have somebody ask, with more fields in the event, and return what the model read of its search."""
    model = Scripted(calls("search_threads", words="launch"), says("done"))
    features = Features(search=True)
    granted = [scope.name for scope in scopes(features if scoped else Features())]
    async with FakeSlack(scopes=granted) as slack:
        slack.action_tokens.add(TOKEN)
        slack.channel("C5", "plans", member=False)
        slack.channel("C6", "board", kind="private", member=False)
        slack.say("U2", "C5", "the launch is on Monday", quiet=True)
        slack.say("U2", "C6", "the launch is secret", quiet=True)
        edge = transport(slack, tmp_path, features=features)
        tool = SearchThreads(Settings(data=tmp_path), {}, work, [edge])
        async with bot_over(edge, tmp_path, model, toolbox=make_toolbox([tool])):
            said = await slack.say("U1", "C1", "<@UBOT> when do we launch?", **event)
            await slack.until(lambda: any(one.ours for one in slack.thread("C1", said.ts)))
        logged = json.dumps([call.args for call in slack.calls if call.method != "assistant.search.context"])
        assert TOKEN not in logged
    assert all(TOKEN.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    [result] = model.requests[1].messages[-1].results
    assert result.outside
    return result.content


async def test_with_the_token_of_the_message_it_finds_what_the_asker_may_read(tmp_path):
    read = await searched(tmp_path, assistant_thread={"action_token": TOKEN})
    assert "the launch is on Monday" in read
    assert "#plans U2: " in read
    assert "/archives/C5/p" in read
    assert "secret" not in read


@pytest.mark.parametrize(
    ("event", "scoped", "why"),
    [
        ({}, True, "did not allow a search"),
        ({"assistant_thread": {"action_token": TOKEN}}, False, "permission"),
    ],
)
async def test_without_the_token_or_the_scope_it_says_why_not(tmp_path, event, scoped, why):
    read = await searched(tmp_path, scoped=scoped, **event)
    assert why in read
    assert "Monday" not in read


def test_the_manifest_asks_for_the_scope_only_where_it_is_needed():
    assert "search:read.public" not in {scope.name for scope in scopes(Features())}
    [missing] = missing_scopes(["chat:write"], Features(search=True))[-1:]
    assert missing.startswith("search:read.public: ")
