"""A server with less room for the answer than was asked for is asked for less, and remembered."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.llm.adapters.openai_chat import OpenAIChatModel
from bot.llm.answer_room import answer_room
from bot.llm.policies.answer_room import LEAST, TRIES, AnswerRoomModel
from bot.llm.server_traits import ServerTraits
from bot.ports.errors import ContextOverflow, NoAnswerRoom
from bot.ports.model import AnswerRoom
from bot.store.learned_servers import KEPT_FOR, LearnedServers, ServersFile
from tests.bot.llm.conftest import HELLO, FakeProvider, ask, model_at
from tests.fakes import openai as o
from tests.world import FaultyDisk, state_file

REFUSALS = {
    "Anthropic": (
        "max_tokens: 4096 > 2048, which is the maximum allowed number of output tokens for claude-x",
        AnswerRoom(2048),
    ),
    "OpenAI": (
        "max_tokens is too large: 5000. This model supports at most 4096 completion tokens, whereas you provided 5000.",
        AnswerRoom(4096),
    ),
    "OpenAI, a range": (
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.",
        AnswerRoom(4096),
    ),
    "DeepSeek": ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", AnswerRoom(8192)),
    "Qwen": ("<400> InternalError: Range of max_tokens should be [1, 2048]", AnswerRoom(2048)),
    "Groq": (
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the window",
        AnswerRoom(8192),
    ),
    "Bedrock": (
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower value.",
        AnswerRoom(4096),
    ),
    "Gemini": (
        (
            "Unable to submit request because it has a maxOutputTokens value of 9000 but the supported range is from "
            "1 (inclusive) to 8193 (exclusive)."
        ),
        AnswerRoom(8192),
    ),
    "vLLM": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 "
            "tokens and your request has 1200 input tokens (8192 > 4096 - 1200)."
        ),
        AnswerRoom(2896, 4096),
    ),
    "vLLM, before": (
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (1000 in the "
            "messages, 4000 in the completion). Please reduce the length of the messages or completion."
        ),
        AnswerRoom(3096, 4096),
    ),
    "vLLM, later": (
        (
            "This model's maximum context length is 4096 tokens. However, you requested 4096 output tokens and your "
            "prompt contains at least 96 input tokens, for a total of at least 4192 tokens."
        ),
        AnswerRoom(4000, 4096),
    ),
    "vLLM, with the input it was passed": (
        (
            "You passed 3073 input tokens and requested 128000 output tokens. However, the model's context length is "
            "only 131072 tokens, resulting in a maximum input length of 3072 tokens."
        ),
        AnswerRoom(127999, 131072),
    ),
    "vLLM, its window": (
        "max_tokens=4096 cannot be greater than max_model_len=max_total_tokens=2048",
        AnswerRoom(2048),
    ),
    "SGLang": (
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
            "5000 tokens: 1000 tokens from the input messages and 4000 tokens for the completion."
        ),
        AnswerRoom(3096, 4096),
    ),
    "OpenRouter": (
        (
            "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens (1000 of "
            "text input, 8000 in the output)."
        ),
        AnswerRoom(7192, 8192),
    ),
    "Anthropic, both together": (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease either",
        AnswerRoom(10000, 200000),
    ),
    "Text Generation Inference": (
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 2000 `inputs` tokens and 4000 `max_new_tokens`",
        AnswerRoom(2097, 4097),
    ),
    "no number": ("max_completion_tokens is too large", AnswerRoom()),
}
OTHERS = {
    "another name": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
    "the prompt": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000.",
    "the prompt alone": "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens "
    "(5000 in the messages, 4000 in the completion).",
    "too small": "max_tokens must be at least 1",
    "the prompt, at Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "words": "no",
}


@pytest.mark.parametrize(("text", "room"), REFUSALS.values(), ids=REFUSALS)
def test_the_room_is_read_from_the_refusal(text, room):
    assert answer_room(text) == room


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_other_refusals_name_no_room(text):
    assert answer_room(text) is None


class Server(FakeProvider):
    """Takes prompts of 1,000 tokens, and no more for an answer than *most*."""

    def __init__(self, most: int, text: str) -> None:
        super().__init__(self.answer)
        self.most, self.text = most, text

    def answer(self, seen):
        asked = seen.json["max_tokens"]
        if asked <= self.most:
            return HELLO[OpenAIChatModel]
        return o.fault(400, None, self.text.format(asked=asked, most=self.most), kind="invalid_request_error")

    @property
    def asked(self) -> list[int]:
        return [seen.json["max_tokens"] for seen in self.requests]


def roomy(fake, http, learned, size=1000) -> AnswerRoomModel:
    server = ServerTraits(learned, "p m", {})
    return AnswerRoomModel(model_at(fake.base_url, OpenAIChatModel, http), server, lambda _: size)


LIMIT = "max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens"
WINDOW = "This model's maximum context length is 4096 tokens and your request has 1096 input tokens"


async def test_a_limit_is_asked_about_once_and_remembered(http, listener):
    learned = LearnedServers()
    async with Server(2048, LIMIT) as fake:
        for _ in range(3):
            done = await roomy(fake, http, learned).complete(ask(), listener)
        await roomy(fake, http, learned).complete(ask(max_tokens=99), listener)
    assert done.message.text == "Hello, world"
    assert fake.asked == [8192, 2048, 2048, 2048, 99]


async def test_a_window_leaves_less_as_the_prompt_grows(http, listener):
    learned = LearnedServers()
    async with Server(3000, WINDOW) as fake:
        await roomy(fake, http, learned).complete(ask(), listener)
        await roomy(fake, http, learned, 2000).complete(ask(), listener)
        await roomy(fake, http, learned, 5000).complete(ask(), listener)
    assert fake.asked == [8192, 3000, 4096 - 2000, LEAST]


async def test_without_a_number_the_room_is_halved_within_bounds_and_remembered(http, listener):
    learned = LearnedServers()
    async with Server(2048, "max_tokens is too large") as fake:
        for _ in range(2):
            await roomy(fake, http, learned).complete(ask(), listener)
    assert fake.asked == [8192, 4096, 2048, 2048]
    async with Server(0, "max_tokens is too large") as fake:
        with pytest.raises(NoAnswerRoom):
            await roomy(fake, http, LearnedServers()).complete(replace(ask(), max_tokens=1_000_000), listener)
    assert len(fake.asked) == TRIES


async def test_a_room_that_was_never_answered_is_not_remembered(http, listener):
    learned = LearnedServers()
    async with Server(0, "max_tokens is too large") as fake:
        for _ in range(2):
            with pytest.raises(NoAnswerRoom):
                await roomy(fake, http, learned).complete(ask(max_tokens=1000), listener)
    assert fake.asked == [1000, 500, 1000, 500]


@pytest.mark.parametrize(("age", "asked"), [(KEPT_FOR - timedelta(seconds=1), 2048), (KEPT_FOR, 8192)])
async def test_the_room_outlives_a_restart_and_is_asked_about_again_after_thirty_days(
    tmp_path, http, listener, age, asked
):
    def learned(now):
        file = state_file(tmp_path / "servers.json", ServersFile(), FaultyDisk())
        return LearnedServers(file, now=lambda: now)

    began = datetime(2026, 11, 1, tzinfo=UTC)
    async with Server(2048, LIMIT) as fake:
        await roomy(fake, http, learned(began)).complete(ask(), listener)
        await roomy(fake, http, learned(began + age)).complete(ask(), listener)
    assert fake.asked[2] == asked


async def test_with_hardly_any_room_the_conversation_has_to_become_shorter(http, listener):
    async with Server(90, WINDOW.replace("1096", "4006")) as fake:
        with pytest.raises(ContextOverflow) as caught:
            await roomy(fake, http, LearnedServers()).complete(ask(), listener)
    assert fake.asked == [8192]
    assert caught.value.code == "context_overflow"
