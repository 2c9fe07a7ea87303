"""What the first answer after a start costs beside the tenth: the SDK is imported once the bot is ready.

Each provider's bot is a fresh process, with its API on loopback in the same process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.child import ask
from benchmarks.figures import Conditions, Figure
from bot.config.settings import Settings
from bot.observe.live_parts import LiveParts
from bot.wiring.app import serve
from tests.fakes.anthropic import FakeAnthropic, Text, answer
from tests.fakes.openai import FakeOpenAI, chat_answer, response_answer
from tests.serving import KEYS, Chat, anthropic, compatible, openai

LATER_S = 0.2
"""By how much the first answer may take longer than the tenth."""

KINDS = ("anthropic", "openai", "compatible")


def measure(conditions: Conditions) -> Iterator[Figure]:
    for kind in KINDS:
        found = [ask("first_answer", kind) for _ in range(1 if conditions.quick else 3)]
        first, tenth = (median(one[name] for one in found) for name in ("first", "tenth"))
        note = f"first {first:.3f} s, tenth {tenth:.3f} s of CPU"
        yield Figure(f"first answer less the tenth, {kind}", first - tenth, "s", at_most=LATER_S, note=note)


@asynccontextmanager
async def _prepared(live: LiveParts) -> AsyncIterator[None]:
    """Let nobody write before the preparation is over."""
    await live.prepare()
    yield


async def _answers(kind: str) -> dict[str, float]:
    match kind:
        case "anthropic":
            fake, at, model = (
                FakeAnthropic(lambda _: answer(Text("hi"))),
                anthropic,
                "anthropic/claude-sonnet-5-5",
            )
        case "openai":
            fake, at, model = FakeOpenAI(lambda _: response_answer(Text("hi"))), openai, "openai/gpt-6.1-sol"
        case _:
            fake, model = FakeOpenAI(lambda _: chat_answer(Text("hi"))), "gateway/llama"

            def at(url: str) -> dict[str, object]:
                return compatible("gateway", url)

    async with fake as api, anyio.create_task_group() as tasks:
        with TemporaryDirectory() as folder:
            given = {"data": Path(folder), "model": model, "providers": at(api.base_url)}
            settings, chat = Settings.model_validate(given, strict=False), Chat()

            async def run() -> None:
                await serve(settings, KEYS, model=model, make_transports=lambda _: [chat], watch=_prepared)

            tasks.start_soon(run)
            await chat.ready.wait()
            costs = []
            for n in range(10):
                before = time.process_time()
                await chat.say(f"hello {n}")
                costs.append(time.process_time() - before)
            tasks.cancel_scope.cancel()
    return {"first": costs[0], "tenth": costs[9]}


if __name__ == "__main__":
    print(json.dumps(anyio.run(_answers, sys.argv[1])))
