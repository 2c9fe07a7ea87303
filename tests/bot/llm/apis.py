"""The adapters of all APIs, and one server for all of them."""

import pytest

from bot.config.settings import StreamTimeouts
from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters.http_client import SharedHttp
from bot.ports.model import ToolSpec
from tests.fakes import anthropic, openai
from tests.fakes.http import FakeHttp

TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
NO_COUNTS = (float("nan"), float("inf"), -5, 1.5, 10**40, "7", [7], True)
"""What a server may say in place of a count of tokens."""

APIS = {"messages": AnthropicModel, "responses": OpenAIResponsesModel, "chat": OpenAIChatModel}
each_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS)
ANSWERS = {
    AnthropicModel: anthropic.answer,
    OpenAIResponsesModel: openai.response_answer,
    OpenAIChatModel: openai.chat_answer,
}
HELLO = {api: answer(anthropic.Text("Hello, world")) for api, answer in ANSWERS.items()}
UP_TO_SECOND_DELTA = {AnthropicModel: 5, OpenAIResponsesModel: 5, OpenAIChatModel: 3}
"""Steps of `HELLO` up to the second of its three text deltas."""


class FakeProvider(FakeHttp):
    """One server for all three APIs."""

    paths = ("/v1/messages", "/v1/responses", "/v1/chat/completions")


def model_at(
    base_url: str, api: type, http: SharedHttp, name: str = "m", *, key=lambda: "sk-fake", now=None, **limits
):
    """Return the model "p/*name*" of a server; *limits* are its time-outs."""
    url = base_url + ("" if issubclass(api, AnthropicModel) else "/v1")
    timeouts = StreamTimeouts(**limits)
    return api("p", name, api_key=key, base_url=url, http=http, timeouts=timeouts, now=now)
