"""A thread is told, once, that its model or its tools changed since its last answer; across real restarts."""

from __future__ import annotations

import json

import anyio

from tests.fakes import openai as o
from tests.fakes.http import Cut, Reply
from tests.serving import Chat, compatible, serving
from tests.world import ANN, T1
from threads.model import Author
from threads.store.data_folder import thread_folder

ONE, TWO = "local/one", "local/two"
BOB = Author("U2", "bob")


def settings(fake, model=ONE, tools=("files",), **more):
    return {
        "model": model,
        "providers": compatible("local", fake.base_url),
        "tools": {"enabled": list(tools)},
        **more,
    }


def fake_model(*replies):
    script = list(replies)
    return o.FakeOpenAI(lambda _: script.pop(0) if script else o.chat_answer(o.Text("ok")))


async def test_a_change_of_the_settings_is_told_once_with_the_next_answer(tmp_path):
    chat = Chat()
    async with fake_model() as fake:
        async with serving(tmp_path, settings(fake), chat=chat):
            assert (await chat.say("one")).text == "ok"
            assert (await chat.say("two")).text == "ok"
        async with serving(tmp_path, settings(fake, TWO, ("memory",)), chat=chat):
            told = (await chat.say("three")).text
            again = (await chat.say("four")).text
    assert told == (
        "(Since my last answer here: local/two is my model now, in place of local/one; I can no longer use "
        "`edit_file`, `list_files`, `read_file`, `search_files` and `write_file`; I can now use `recall` and `remember`.)"
        "\n\nok"
    )
    assert again == "ok"


async def test_a_restart_without_a_change_and_a_new_thread_are_told_nothing(tmp_path):
    chat = Chat()
    async with fake_model() as fake:
        async with serving(tmp_path, settings(fake), chat=chat):
            await chat.say("one")
        async with serving(tmp_path, settings(fake), chat=chat):
            assert (await chat.say("two")).text == "ok"
            await chat.say("/new")
        async with serving(tmp_path, settings(fake, TWO), chat=chat):
            assert (await chat.say("three")).text == "ok"


async def test_what_a_person_chose_is_no_news(tmp_path):
    chat, given = Chat(), {"models": {TWO: {}}}
    async with fake_model() as fake, serving(tmp_path, settings(fake, **given), chat=chat):
        await chat.say("one")
        await chat.say(f"/model {TWO}")
        assert (await chat.say("two")).text == "ok"
        await chat.say("/model default")
        assert (await chat.say("three")).text == "ok"


async def test_a_person_with_a_scope_of_their_own_is_no_change_for_the_others(tmp_path):
    chat, given = Chat(), {"scopes": {f"user:{BOB.id}": {"model": TWO}}}
    async with fake_model() as fake, serving(tmp_path, settings(fake, **given), chat=chat):
        said = [(await chat.say("hi", author=author)).text for author in (ANN, BOB, ANN, BOB)]
    assert said == ["ok"] * 4


async def test_what_a_failover_says_is_not_said_twice(tmp_path):
    chat, given = Chat(), {"fallback_models": [TWO], "llm_retry": {"max_retries": 0}}
    down = Reply(silent=(Cut("rst"),))
    async with fake_model(down) as fake, serving(tmp_path, settings(fake, **given), chat=chat):
        first, second = (await chat.say("one")).text, (await chat.say("two")).text
    assert "Since my last answer" not in first + second
    assert first.startswith("(local/two answered")


async def test_the_note_waits_for_an_answer_when_a_turn_fails(tmp_path):
    chat = Chat()
    async with fake_model() as fake, serving(tmp_path, settings(fake), chat=chat):
        await chat.say("one")
    refused = o.fault(400, "invalid_value")
    async with fake_model(refused) as fake, serving(tmp_path, settings(fake, TWO), chat=chat):
        await chat.say("two")
        assert chat.outcomes["m2"] == "failed"
        assert "local/two is my model now" in (await chat.say("three")).text
        assert (await chat.say("four")).text == "ok"


async def test_the_model_is_told_that_a_tool_it_used_is_gone_and_the_rest_stays_byte_for_byte(tmp_path):
    chat = Chat()
    listing = o.chat_answer(o.Tool("c1", "list_files", {}))
    async with fake_model(listing) as fake:
        async with serving(tmp_path, settings(fake), chat=chat):
            await chat.say("one")
            before = fake.requests[-1].json["messages"]
        async with serving(tmp_path, settings(fake, tools=("memory",)), chat=chat):
            await chat.say("two")
            after = fake.requests[-1].json["messages"]
    assert after[1 : len(before)] == before[1:]
    assert "You used `list_files` above. You do not have that any more" in json.dumps(after[-1])


async def test_a_compaction_does_not_forget_what_was_there(tmp_path):
    chat = Chat()
    summary = o.chat_answer(o.Text("They talked."))
    async with fake_model(o.chat_answer(o.Text("long " * 3_000)), summary) as fake:
        async with serving(tmp_path, settings(fake), chat=chat):
            await chat.say("one")
            assert "Done" in (await chat.say("/compact")).text
        async with serving(tmp_path, settings(fake, TWO), chat=chat):
            assert "local/two is my model now" in (await chat.say("two")).text
    [context] = thread_folder(tmp_path, T1).glob("context.jsonl")
    assert "They talked." in await anyio.Path(context).read_text()
