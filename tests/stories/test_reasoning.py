"""How much a model reasons, through whole turns: chosen by people and settings, checked by the provider, kept on disk."""

from __future__ import annotations

import pytest

from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Reply, Seen
from tests.serving import anthropic, compatible, openai, serving
from tests.world import T2

SONNET, OPUS, OLD_GPT = "anthropic/claude-sonnet-5-5", "anthropic/claude-opus-5-5", "openai/gpt-4o"


def claude(seen: Seen) -> Reply:
    return a.thinking_fault(seen.json) or a.answer(a.Think("hm", "c2ln"), a.Text("done"))


def settings(url: str, **more: object) -> dict[str, object]:
    providers = {**anthropic(url, model_map={}), **openai("http://127.0.0.1:9/v1")}
    return {"model": SONNET, "providers": providers, "models": {OPUS: {}, OLD_GPT: {}}, **more}


def effort_of(seen: Seen) -> str | None:
    return seen.json.get("output_config", {}).get("effort")


async def test_a_person_chooses_how_much_the_model_of_a_thread_reasons_and_a_restart_keeps_it(tmp_path):
    async with a.FakeAnthropic(claude) as fake:
        async with serving(tmp_path, settings(fake.base_url)) as chat:
            await chat.say("hello")
            chosen = await chat.say("/model high")
            assert (
                chosen.text
                == f"From the next message on, {SONNET} answers in this thread, with high reasoning."
            )
            await chat.say("harder")
            await chat.say("elsewhere", thread=T2)
        async with serving(tmp_path, settings(fake.base_url)) as chat:
            chat.sent = 10
            assert (
                await chat.say("/status")
            ).text == f"Idle; 0 waiting. Model: {SONNET}, with high reasoning."
            await chat.say("and now?")
            assert (await chat.say("/model default")).text == f"This thread uses {SONNET} again."
            await chat.say("easier")
    assert [effort_of(seen) for seen in fake.requests] == [None, "high", None, "high", None]


async def test_a_model_and_its_effort_are_chosen_together(tmp_path):
    async with a.FakeAnthropic(claude) as fake, serving(tmp_path, settings(fake.base_url)) as chat:
        chosen = await chat.say(f"/model {OPUS} low")
        assert chosen.text == f"From the next message on, {OPUS} answers in this thread, with low reasoning."
        assert (await chat.say("hello")).text == "done"
        await chat.say("/model off", thread=T2)
        await chat.say("hello", thread=T2)
    assert (fake.requests[0].json["model"], effort_of(fake.requests[0])) == ("claude-opus-5-5", "low")
    assert fake.requests[1].json["thinking"] == {"type": "between_tools"}


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (f"{OLD_GPT} high", f"Nothing has changed: {OLD_GPT} cannot reason, so there is nothing to choose."),
        (
            f"{OPUS} off",
            f"Nothing has changed: {OPUS} always reasons, so it cannot be off; it takes low, medium, high.",
        ),
        (f"{SONNET} much", "Say /model NAME, /model high, or both: /model NAME high."),
        ("much", "I know no model of that name here. /model lists them."),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(tmp_path, words, reply):
    async with a.FakeAnthropic(claude) as fake, serving(tmp_path, settings(fake.base_url)) as chat:
        assert (await chat.say(f"/model {words}")).text == reply
        await chat.say("hello")
    assert (fake.requests[0].json["model"], effort_of(fake.requests[0])) == ("claude-sonnet-5-5", None)


async def test_the_settings_of_a_model_go_before_the_general_one_and_a_person_before_both(tmp_path):
    given = {"reasoning": "low", "models": {OPUS: {"reasoning": "medium"}}}
    async with a.FakeAnthropic(claude) as fake, serving(tmp_path, settings(fake.base_url, **given)) as chat:
        await chat.say("hello")
        await chat.say(f"/model {OPUS}")
        await chat.say("hello")
        await chat.say("/model high")
        await chat.say("hello")
    assert [effort_of(seen) for seen in fake.requests] == ["low", "medium", "high"]


async def test_the_requests_of_a_thread_differ_only_in_what_was_said(tmp_path):
    given = {"reasoning": "high"}
    async with a.FakeAnthropic(claude) as fake, serving(tmp_path, settings(fake.base_url, **given)) as chat:
        await chat.say("one")
        await chat.say("two")
    first, second = (seen.json for seen in fake.requests)
    assert {**first, "messages": ()} == {**second, "messages": ()}
    thought = second["messages"][1]["content"][0]
    assert thought == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


async def test_a_server_that_refuses_it_answers_all_the_same_and_is_not_asked_so_again(tmp_path):
    def server(seen: Seen) -> Reply:
        if "reasoning_effort" in seen.json:
            return o.fault(400, None, '"x" does not support thinking', kind="invalid_request_error")
        return o.chat_answer(o.Text("done"))

    async with o.FakeOpenAI(server) as fake:
        given = {"model": "local/x", "providers": compatible("local", fake.base_url), "reasoning": "high"}
        async with serving(tmp_path, given) as chat:
            first, second = await chat.say("hello"), await chat.say("again")
            assert (await chat.say("/model high")).text == (
                "Nothing has changed: the provider of local/x has refused that."
            )
    note = "(local/x refuses to answer with high reasoning, so it reasoned as it usually does.)"
    assert (first.text, second.text) == (f"{note}\n\ndone", "done")
    assert ["reasoning_effort" in seen.json for seen in fake.requests] == [True, False, False]
