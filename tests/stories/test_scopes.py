"""Channels, guilds and people with settings of their own, through the whole bot: real settings, sockets and ledger."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.fakes import openai as o
from tests.serving import Chat, compatible, serving
from tests.world import ANN, message
from threads.model import Author, ThreadId

BOB, BOSS = Author("U2", "bob"), Author("U9", "boss")
OPS = ThreadId("slack", "T1", "C1", "1.0")
LOUNGE = ThreadId("slack", "T1", "C2", "2.0")
GUESTS = ThreadId("slack", "T2", "C3", "3.0")


class Slack(Chat):
    name = "slack"


def settings(fake, scopes, **more):
    return {
        "model": "local/usual",
        "providers": compatible("local", fake.base_url),
        "access": {"admins": [BOSS.id]},
        "tools": {"enabled": ["files", "memory", "skills"]},
        "scopes": scopes,
        **more,
    }


def answers(*_):
    return o.chat_answer(o.Text("ok"))


def system_of(seen):
    return next(message["content"] for message in seen.json["messages"] if message["role"] == "system")


def tools_of(seen):
    return {tool["function"]["name"] for tool in seen.json.get("tools", [])}


async def test_a_channel_has_its_own_model_text_length_and_tools_and_a_person_even_there(tmp_path):
    scopes = {
        "slack:T1": {"system": "You are Acme's bot.", "max_tokens": 111},
        "slack:T1:C1": {
            "model": "local/strong",
            "system": "You are on call.",
            "tools": {"enabled": ["files"]},
        },
        "user:U2": {"model": "local/cheap"},
    }
    async with o.FakeOpenAI(answers) as fake, serving(tmp_path, settings(fake, scopes), chat=Slack()) as chat:
        for thread, author in ((OPS, ANN), (LOUNGE, ANN), (OPS, BOB), (GUESTS, ANN)):
            assert (await chat.say("hello", thread=thread, author=author)).text == "ok"
        ops, lounge, bob, guests = fake.requests
        assert [seen.json["model"] for seen in fake.requests] == ["strong", "usual", "cheap", "usual"]
        assert [seen.json["max_tokens"] for seen in fake.requests] == [111, 111, 111, 8192]
        assert "You are on call." in system_of(ops)
        assert "Acme" not in system_of(ops)
        assert "You are Acme's bot." in system_of(lounge)
        assert "Who you are" not in system_of(guests)
        assert system_of(bob) == system_of(ops), "the prompt of a place is the same bytes for everybody"
        assert tools_of(ops) == {"read_file", "list_files", "search_files", "write_file", "edit_file"}
        assert {"remember", "load_skill"} < tools_of(lounge)
        assert "local/strong" in (await chat.say("/status", thread=OPS)).text
        assert "local/cheap" in (await chat.say("/model", thread=OPS, author=BOB)).text
        assert "local/usual" in (await chat.say("/model", thread=LOUNGE)).text


async def test_what_a_thread_has_chosen_goes_before_the_model_of_its_channel(tmp_path):
    scopes = {"slack:T1:C1": {"model": "local/strong", "fallback_models": ["local/spare"]}}
    async with o.FakeOpenAI(answers) as fake, serving(tmp_path, settings(fake, scopes), chat=Slack()) as chat:
        assert "local/spare" in (await chat.say("/model local/spare", thread=OPS)).text
        await chat.say("hello", thread=OPS)
        assert "I know no model" in (await chat.say("/model local/spare", thread=LOUNGE)).text
        await chat.say("/model default", thread=OPS)
        await chat.say("hello", thread=OPS)
        assert [seen.json["model"] for seen in fake.requests] == ["spare", "strong"]


async def test_a_tool_that_only_one_channel_has_runs_there_and_nowhere_else(tmp_path):
    def reply(seen):
        if any(message["role"] == "tool" for message in seen.json["messages"]):
            return o.chat_answer(o.Text(seen.json["messages"][-1]["content"]))
        return o.chat_answer(o.Tool("c1", "recall", {"query": "x"}))

    scopes = {"slack:T1:C1": {"tools": {"enabled": ["memory"]}}}
    everybody = {"tools": {"enabled": ["files"]}}
    async with (
        o.FakeOpenAI(reply) as fake,
        serving(tmp_path, settings(fake, scopes, **everybody), chat=Slack()) as chat,
    ):
        assert "There is no tool named" in (await chat.say("look", thread=LOUNGE)).text
        assert '"success":true' in (await chat.say("look", thread=OPS)).text.replace(" ", "")
        assert tools_of(fake.requests[0]) & {"recall", "read_file"} == {"read_file"}
        assert tools_of(fake.requests[2]) == {"recall", "remember"}


async def test_a_channel_has_its_own_rules(tmp_path):
    def reply(seen):
        if seen.json["messages"][-1]["role"] == "tool":
            return o.chat_answer(o.Text(seen.json["messages"][-1]["content"]))
        return o.chat_answer(o.Tool("c1", "write_file", {"path": "a.txt", "content": "x"}))

    scopes = {"slack:T1:C1": {"tools": {"policy": {"write_file": "deny"}}}}
    async with o.FakeOpenAI(reply) as fake, serving(tmp_path, settings(fake, scopes), chat=Slack()) as chat:
        assert "do not allow" in (await chat.say("write", thread=OPS)).text
        assert "do not allow" not in (await chat.say("write", thread=LOUNGE)).text


async def test_access_is_that_of_the_place_for_messages_and_commands(tmp_path):
    scopes = {
        "slack:T1:C1": {"access": {"users": ["U2"]}},
        "slack:T2": {"access": {"channels": []}},
        "user:U3": {"access": {"users": []}},
    }
    async with o.FakeOpenAI(answers) as fake, serving(tmp_path, settings(fake, scopes), chat=Slack()) as chat:
        served = {}
        for author in (ANN, BOB, Author("U3"), BOSS):
            for thread in (OPS, LOUNGE, GUESTS):
                for text in ("hello", "/status"):
                    incoming = message(len(served), text, thread, author)
                    await chat.sink(replace(incoming, via="mention"))
                    await chat.settled(incoming.id)
                    served[author.id, thread.channel, text] = chat.outcomes[incoming.id] == "answered"
    expected = {("U2", "C1"), ("U1", "C2"), ("U2", "C2"), ("U9", "C1"), ("U9", "C2")}
    assert {key[:2] for key, yes in served.items() if yes} == expected
    assert {key[:2] for key, yes in served.items() if not yes}.isdisjoint(expected)
    assert len(fake.requests) == len(expected)


PRICED = {"providers": {}, "prices": {"local/usual": {"input": 100, "output": 100}}, "max_tokens": 1000}
"""At most 0.10 USD for an answer and something for the prompt."""


def priced(fake, scopes, **limits):
    providers = compatible("local", fake.base_url, free=False)
    given = {"turn": None, "thread": None, "user_day": None, "day": None, **limits}
    more = {**PRICED, "providers": providers, "budget": {"limit_usd": given}}
    return {**settings(fake, scopes), **more}


def asked(chat):
    return [post for post in chat.posts if post.choices]


async def test_a_channel_that_has_spent_its_day_asks_and_the_others_go_on(tmp_path):
    scopes = {"slack:T1:C1": {"budget": {"limit_usd": {"day": 0.01}}}}
    async with o.FakeOpenAI(answers) as fake, serving(tmp_path, priced(fake, scopes), chat=Slack()) as chat:
        assert (await chat.say("hello", thread=LOUNGE)).text == "ok"
        await chat.send("hello", thread=OPS)
        await chat.until(lambda: asked(chat))
        assert "this channel today" in asked(chat)[0].text
        assert len(fake.requests) == 1
        assert "this channel today" in (await chat.say("/usage", thread=OPS)).text
        assert "this channel" not in (await chat.say("/usage", thread=LOUNGE)).text
        await chat.say(asked(chat)[0].choices[0].command, thread=OPS, author=BOSS)
        await chat.settled("m2")
        assert chat.outcomes["m2"] == "answered"
    written = b"".join(file.read_bytes() for file in (tmp_path / "usage").iterdir())
    lines = [json.loads(line) for line in written.splitlines()]
    [grant] = [line for line in lines if line["kind"] == "grant"]
    assert (grant["scope"], grant["key"].partition(" ")[2]) == ("scope_day", "slack:T1:C1")


async def test_a_channel_has_its_own_limit_for_a_turn_and_none_lifts_the_day_of_everybody(tmp_path):
    scopes = {"slack:T1:C1": {"budget": {"limit_usd": {"turn": None, "day": 1000}}}}
    async with o.FakeOpenAI(answers) as fake:
        limits = {"turn": 0.01, "day": 5}
        async with serving(tmp_path, priced(fake, scopes, **limits), chat=Slack()) as chat:
            assert (await chat.say("hello", thread=OPS)).text == "ok", "its turn has no limit"
            await chat.send("hello", thread=LOUNGE)
            await chat.until(lambda: asked(chat))
            assert "this message" in asked(chat)[0].text
        async with serving(tmp_path, priced(fake, scopes, turn=0.01, day=0.02), chat=Slack()) as chat:
            await chat.send("again", thread=OPS)
            await chat.until(lambda: asked(chat))
            assert "everyone today" in " ".join(post.text for post in asked(chat))
