"""A real llama.cpp: what it answers is read, and what it refuses is recognised, in its own words."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from bot.config.settings import Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.build import build_adapter
from bot.ports.errors import ContextOverflow, ToolsUnsupported, VisionUnsupported
from bot.ports.model import Request, ToolSpec
from tests.bot.extensions.documents.hostile_files import png
from tests.patience import WITHIN_S
from tests.real_servers.installed import PYTHON, model_file, needs_servers
from tests.serving import compatible
from tests.tool_context import unheard
from threads.model import Image, Message, Text

pytestmark = [needs_servers, pytest.mark.anyio]

LLAMA = Path(__file__).parent / "llama.py"
WINDOW = 2_048
TOOLS = (ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "number"}}}),)


@contextmanager
def serving(*more: str):
    """Serve the model, and yield the base URL of its API."""
    process = subprocess.Popen(
        [PYTHON, LLAMA, model_file(), str(WINDOW), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield f"{process.stdout.readline().strip()}/v1"
    finally:
        process.communicate(timeout=WITHIN_S)


@pytest.fixture(scope="module")
def with_tools():
    with serving("jinja") as url:
        yield url


@pytest.fixture(scope="module")
def without_tools():
    with serving() as url:
        yield url


async def answer(url, request, **more):
    settings = Settings(providers=compatible("local", url), **more)
    http = SharedHttp()
    try:
        model = build_adapter("local/small", settings, {}, http=http, now=lambda: datetime.now(UTC))
        with anyio.fail_after(WITHIN_S):
            return await model.complete(request, unheard)
    finally:
        await http.aclose()


def ask(text="Say hello.", **more):
    return Request("", (Message("user", (Text(text),)),), max_tokens=24, **more)


async def test_it_answers_and_its_tokens_are_counted(with_tools):
    completion = await answer(with_tools, ask())
    assert completion.message.text.strip()
    assert completion.usage.output > 0 and completion.usage.input > 0


async def test_an_answer_that_is_cut_by_its_limit_says_so(with_tools):
    completion = await answer(with_tools, replace(ask("Count from one to a hundred in words."), max_tokens=4))
    assert completion.stop == "length"


async def test_tools_are_taken_or_refused_in_words_that_are_known(with_tools, without_tools):
    assert await answer(with_tools, ask(tools=TOOLS))
    with pytest.raises(ToolsUnsupported):
        await answer(without_tools, ask(tools=TOOLS))


async def test_what_is_longer_than_its_window_is_known_for_that(with_tools):
    with pytest.raises(ContextOverflow):
        await answer(with_tools, ask("word " * 2 * WINDOW))


async def test_a_picture_is_refused_in_words_that_are_known(with_tools):
    picture = Message("user", (Image("x.png", "image/png", png()), Text("What is this?")))
    with pytest.raises(VisionUnsupported):
        await answer(with_tools, Request("", (picture,), max_tokens=8))


async def test_a_whole_bot_answers_by_it_without_a_price(with_tools, tmp_path):
    fields = {
        "model": "local/small",
        "providers": compatible("local", with_tools),
        "tools": {"enabled": []},
        "system": "Be short.",
        "max_tokens": 64,
    }
    (tmp_path / "settings.json").write_text(json.dumps(fields))
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-m", "bot", "ask", "Say hello."],
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHONPATH": str(LLAMA.parent.parent.parent),
            },
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
    )
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
