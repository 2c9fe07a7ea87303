"""One word of a model, over the wire: what comes back when it answers, and for each way in which it does not."""

import pytest

from bot.config.settings import Provider, Settings
from bot.llm.verify import QUESTION, verify
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ModelConnection, ModelTimeout, PaymentRequired, Unauthorized
from tests.fakes import openai
from tests.fakes.http import Reply, Stall
from tests.fakes.openai import FakeOpenAI

KEY = {"MINE_KEY": "sk-canary-0123456789"}


def settings(url):
    return Settings(providers={"mine": Provider(base_url=url, api_key="env:MINE_KEY")})


async def test_a_model_that_answers_is_verified():
    async with FakeOpenAI([openai.chat_answer(openai.Text("OK\nand\tmore"))]) as fake:
        found = await verify("mine/llama", settings(fake.base_url), KEY)
    assert (found.ok, found.error) == (True, None)
    assert found.took_s > 0
    assert fake.requests[0].json["messages"][-1]["content"] == QUESTION
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY['MINE_KEY']}"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (openai.fault(401, "invalid_api_key"), Unauthorized),
        (openai.fault(429, "insufficient_quota"), PaymentRequired),
    ],
)
async def test_a_refusal_is_told_and_not_tried_again(reply, error):
    async with FakeOpenAI([reply, reply]) as fake:
        found = await verify("mine/llama", settings(fake.base_url), KEY)
    assert (found.ok, type(found.error), len(fake.requests)) == (False, error, 1)


async def test_silence_ends_in_time():
    async with FakeOpenAI([Reply(silent=(Stall(),))]) as fake:
        found = await verify("mine/llama", settings(fake.base_url), KEY, within_s=0.2)
    assert isinstance(found.error, ModelTimeout)


async def test_nobody_there_is_a_failed_connection():
    async with FakeOpenAI([]) as fake:
        url = fake.base_url
    assert isinstance((await verify("mine/llama", settings(url), KEY)).error, ModelConnection)


@pytest.mark.parametrize("model", ["mine/llama", "nobody/knows", "anthropic/claude-sonnet-5-5"])
async def test_a_key_or_a_provider_that_is_missing_is_told_without_a_call(model):
    found = await verify(model, settings("http://127.0.0.1:9/v1"), {})
    assert (found.ok, isinstance(found.error, ConfigInvalid)) == (False, True)
