"""A real LiteLLM proxy: before a real llama.cpp, and before a server of ours that refuses things."""

from __future__ import annotations

import subprocess
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bot.ports.errors import ContextOverflow, VisionUnsupported
from bot.ports.model import Request
from tests.bot.extensions.documents.hostile_files import png
from tests.fakes import openai as o
from tests.patience import WITHIN_S
from tests.real_servers.installed import PYTHON, needs_servers
from tests.real_servers.test_llama import TOOLS, WINDOW, answer, ask
from tests.real_servers.test_llama import serving as serving_llama
from tests.serving import compatible, serving
from tests.stories.test_servers import LONG, NO_MAX_TOKENS, limited, refusing
from threads.model import Image, Message, Text

pytestmark = [needs_servers, pytest.mark.anyio]

PROXY = Path(__file__).parent / "litellm_proxy.py"


@contextmanager
def proxying(url: str):
    """Serve the proxy before the server at *url*, and yield the base URL of its API."""
    process = subprocess.Popen(
        [PYTHON, PROXY, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = next(line.strip() for line in process.stdout if line.startswith("http"))
        # The socket listens already, so this waits until the proxy is ready.
        with closing(HTTPConnection(address.removeprefix("http://"), timeout=WITHIN_S)) as http:
            http.request("GET", "/health/liveliness")
            assert http.getresponse().status == 200
        yield f"{address}/v1"
    finally:
        process.communicate(timeout=WITHIN_S)


@pytest.fixture(scope="module")
def before_llama():
    with serving_llama("jinja") as llama, proxying(llama) as url:
        yield url


async def test_it_answers_takes_tools_and_counts_tokens(before_llama):
    completion = await answer(before_llama, ask())
    assert completion.message.text.strip()
    assert completion.usage.output > 0 and completion.usage.input > 0
    assert await answer(before_llama, ask(tools=TOOLS))


async def test_too_long_is_known_for_that_with_the_window_of_the_server_behind_it(before_llama):
    with pytest.raises(ContextOverflow) as caught:
        await answer(before_llama, ask("word " * 2 * WINDOW))
    assert caught.value.window == WINDOW


async def test_a_picture_that_the_server_behind_it_refuses_is_known_for_that(before_llama):
    picture = Message("user", (Image("x.png", "image/png", png()), Text("What is this?")))
    with pytest.raises(VisionUnsupported):
        await answer(before_llama, Request("", (picture,), max_tokens=8))


def settings(url: str) -> dict[str, object]:
    return {"model": "local/small", "providers": compatible("local", url), "tools": {"enabled": []}}


async def test_too_long_is_summed_up_and_answered_in_the_same_turn(tmp_path):
    def say(_: str):
        return o.fault(400, None, "request (9000 tokens) exceeds the available context size (4096 tokens)")

    async with o.FakeOpenAI(limited(1_000_000, say)) as fake:
        with proxying(fake.base_url) as url:
            async with serving(tmp_path, settings(url)) as chat:
                for n in range(5):
                    await chat.say(f"{n} {LONG}")
                fake.script = limited(30_000, say)
                told = await chat.say("and now?")
    assert told.text.endswith("done")
    assert "I summarised the earlier part of our conversation" in told.text


async def test_a_parameter_that_the_server_behind_it_refuses_costs_one_request(tmp_path):
    async with o.FakeOpenAI(refusing(max_tokens=NO_MAX_TOKENS)) as fake:
        with proxying(fake.base_url) as url:
            async with serving(tmp_path, settings(url)) as chat:
                assert (await chat.say("hello")).text == "done"
                assert (await chat.say("again")).text == "done"
    assert len(fake.requests) == 3
    assert "max_tokens" not in fake.requests[-1].json
