"""A server with less room for the answer than was asked for is asked for less, and remembered."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.extensions.openai.chat import OpenAIChatModel
from bot.llm.answer_room import answer_room
from bot.llm.policies.answer_room import LEAST, TRIES, AnswerRoomModel
from bot.llm.server_traits import ServerTraits
from bot.ports.errors import ContextOverflow, NoAnswerRoom
from bot.store.learned_servers import KEPT_FOR, LearnedServers, ServersFile
from tests.bot.llm.apis import HELLO, FakeProvider, model_at
from tests.bot.llm.conftest import ask
from tests.fakes import openai as o
from tests.world import FaultyDisk, state_file

OTHERS = {
    "another name": "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
    "the prompt": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000.",
    "the prompt alone": "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens "
    "(5000 in the messages, 4000 in the completion).",
    "too small": "max_tokens must be at least 1",
    "the prompt, at Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "words": "no",
}


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
