"""What the model finds of other threads: what its asker could read, and nothing else."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.config.settings import Settings
from bot.extensions.thread_search.checks import check_search
from bot.extensions.thread_search.tool import SearchArguments, SearchThreads, _said
from tests.fakes import anthropic as a
from tests.serving import serving
from tests.stories.test_instructions import settings
from tests.tool_context import tool_context
from tests.world import ANN, T1, T2
from threads.log import LogEntry
from threads.model import Author, ThreadId
from transports.base.transport import Capabilities

ON = {"tools": {"enabled": ["thread_search"]}}
BOB = Author("U2", "bob")
LUNCH = ThreadId("fake", "W", "C1", "5.0")


def searches(words):
    """Return a model that searches when it is told to, and says "ok" otherwise."""

    def reply(seen):
        said = seen.json["messages"][-1]["content"][-1].get("text")
        return a.answer(
            a.Tool("t1", "search_threads", {"words": words}) if said == "search" else a.Text("ok")
        )

    return reply


def found(fake):
    """Return what the model read in answer to its last search."""
    results = [
        block
        for seen in fake.requests
        for message in seen.json["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    return json.dumps(results[-1])


async def test_what_was_said_elsewhere_in_the_channel_is_found_with_its_link_and_nothing_else(tmp_path):
    async with a.FakeAnthropic(searches("Noon cake")) as fake, serving(tmp_path, settings(fake) | ON) as chat:
        await chat.say("there is CAKE at noon", author=BOB, thread=LUNCH)
        await chat.say("cake at midnight", author=BOB, thread=LUNCH)
        await chat.say("secret cake at noon", author=BOB, thread=T2)
        await chat.say("cake at noon in this very thread")
        await chat.say("search")
        read = found(fake)
    assert "there is CAKE at noon" in read
    assert "https://chat.example/C1/5.0" in read
    assert "midnight" not in read, "all words have to be there"
    assert "secret" not in read, "another channel is not searched"
    assert "very thread" not in read
    assert "other conversations" in read, "it is fenced as text from outside"
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"data": str(tmp_path), "model": "offline/demo"}))
    why = CliRunner().invoke(main, ["why", "m5", "--settings", str(path)]).output
    assert "search_threads" in why


def test_what_people_took_back_is_not_found():
    log = [
        LogEntry(at="2026-11-30T10:00", kind="message", message_id=id_, text="cake") for id_ in ("m1", "m2")
    ]
    ends = [("m1", "withdrawn"), ("m2", "answered")]
    log += [LogEntry(at="", kind="settled", message_id=id_, outcome=outcome) for id_, outcome in ends]
    assert [*_said(log, ["cake"])] == ["2026-11-30T10:00 you: cake"]


async def test_what_was_forgotten_is_not_found(tmp_path):
    async with a.FakeAnthropic(searches("cake")) as fake, serving(tmp_path, settings(fake) | ON) as chat:
        await chat.say("my cake", thread=LUNCH)
        await chat.say("search")
        assert "my cake" in found(fake)
        assert "I have erased" in (await chat.say("/forget now", thread=LUNCH)).text
        await chat.say("search")
        assert "my cake" not in found(fake)


async def test_it_is_off_by_default_and_then_no_model_hears_of_it(tmp_path):
    async with a.FakeAnthropic(searches("cake")) as fake, serving(tmp_path, settings(fake)) as chat:
        await chat.say("hi")
        assert "search_threads" not in json.dumps(fake.requests[0].json.get("tools", []))


class Edge:
    """A platform on which threads may be private, and which has a search of its own or refuses it."""

    name, kind, capabilities = "fake", "fake", Capabilities(hides_threads=True)

    def link(self, thread):
        return f"https://chat.example/{thread.root}"


async def work(run, *given):
    return run(*given)


async def call(tmp_path, edge, asker, words="cake"):
    tool = SearchThreads(Settings(data=tmp_path), {}, work, [edge])
    context = tool_context(thread=T1, asker=asker, message_id="m9")
    return (await tool(SearchArguments(words=words), context)).result


@pytest.mark.parametrize("root", ["m1", "5.0"])
async def test_a_thread_that_may_be_private_is_for_those_who_spoke_in_it(tmp_path, root):
    thread = ThreadId("fake", "W", "C1", root)
    async with a.FakeAnthropic(searches("cake")) as fake, serving(tmp_path, settings(fake)) as chat:
        await chat.say("cake for two", author=BOB, thread=thread)
    seen = {who.id: (await call(tmp_path, Edge(), who))["found"] for who in (ANN, BOB)}
    assert [line.partition(": ")[2] for line in seen["U2"]] == ["cake for two"]
    assert seen["U2"][0].startswith(f"https://chat.example/{root}\n")
    assert bool(seen["U1"]) == (root == "m1"), "one that began with a message of the channel is for all"


async def test_most_lines_and_threads_are_bounded_and_what_was_left_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.extensions.thread_search.tool.MOST_THREADS", 2)
    async with a.FakeAnthropic(searches("cake")) as fake, serving(tmp_path, settings(fake)) as chat:
        for number in range(4):
            await chat.say("cake " + "x" * 2_000, thread=ThreadId("fake", "W", "C1", f"{number}.5"))
    result = await call(
        tmp_path, SimpleNamespace(name="fake", capabilities=Capabilities(), link=lambda thread: ""), ANN
    )
    assert len(result["found"]) == 2
    assert result["threads_left_out"] == 2
    assert max(map(len, result["found"])) < 500


async def test_the_doctor_says_what_can_be_searched(tmp_path):
    async with a.FakeAnthropic(searches("cake")) as fake, serving(tmp_path, settings(fake)) as chat:
        await chat.say("cake")
    context = SimpleNamespace(settings=Settings(data=tmp_path), environ={}, offload=work)
    [finding] = [finding async for finding in check_search(context)]
    assert (finding.state, finding.found) == ("ok", "reads 1 thread")
