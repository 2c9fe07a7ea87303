"""What the first answer after a start costs beside the tenth: what it needs is imported once the bot is ready.

Each bot is a fresh process, with its API on loopback in the same process. Counted are the CPU of the process, the
time that goes by, and the modules that the first answer imports.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Conditions, Figure
from bot.config.extensions import settings_model
from bot.observe.live_parts import LiveParts
from bot.wiring.app import serve
from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer
from tests.fakes.http import FakeHttp, Reply, error
from tests.fakes.openai import FakeOpenAI, chat_answer, response_answer
from tests.serving import KEYS, Chat, anthropic, compatible, openai
from tests.transports.web.site import Visitor, serving_page
from tests.unprivileged import run_unprivileged
from threads.background import background_tasks

LATER_S = 0.1
"""By how much the first answer may take longer than the tenth."""

MCP_PROGRAM = Path(__file__).parent.parent / "tests/bot/extensions/mcp/program.py"


OPENAI = "openai/gpt-6.1-sol"
CLAUDE = "anthropic/claude-sonnet-5-5"

ADDRESS = {"anthropic": partial(anthropic, requests_per_minute=100_000), "openai": openai}

ADD, ECHO = Tool("t1", "shop__add", {"a": 1, "b": 2}), Tool("t2", "shell", {"command": "echo hello"})
SHOP = {"mcp_servers": {"shop": {"command": sys.executable, "args": [str(MCP_PROGRAM)]}}}
ALLOWED = {"profile": "trusted", "policy": {"*": "allow"}, "after_outside_text": "allow"}
FALLBACK = {
    "fallback_models": [OPENAI],
    "llm_retry": {"max_retries": 0},
    "breaker": {"failure_threshold": 999},
}


def _saying(reply: Callable[..., Reply], *calls: Tool) -> Callable[[object], Reply]:
    """Return the script of an API: for each question these calls, one after the other, and then a word."""
    script = itertools.cycle([*(reply(call) for call in calls), reply(Text("hi"))])
    return lambda _: next(script)


def _claude(*calls: Tool) -> Callable[[], Mapping[str, FakeHttp]]:
    return lambda: {"anthropic": FakeAnthropic(_saying(answer, *calls))}


def _down(*calls: Tool) -> Callable[[], Mapping[str, FakeHttp]]:
    """Return the APIs of a first provider that is overloaded, and of the second one."""
    overloaded = error(529, {"error": {"type": "overloaded_error"}})
    return lambda: {
        "anthropic": FakeAnthropic(lambda _: overloaded),
        "openai": FakeOpenAI(_saying(response_answer, *calls)),
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """A bot with this model and these fields of its settings; ``apis`` returns those of its providers, by name."""

    model: str
    apis: Callable[[], Mapping[str, FakeHttp]]
    fields: Mapping[str, object] = field(default_factory=dict)
    on_page: bool = False


KINDS = {
    "anthropic": Kind(CLAUDE, _claude()),
    "openai": Kind(OPENAI, lambda: {"openai": FakeOpenAI(_saying(response_answer))}),
    "compatible": Kind("gateway/llama", lambda: {"gateway": FakeOpenAI(_saying(chat_answer))}),
    "second provider": Kind(CLAUDE, _down(), FALLBACK),
    "MCP server": Kind(CLAUDE, _claude(ADD), {**SHOP, "tools": {"enabled": ["files"], **ALLOWED}}),
    "sandbox": Kind(CLAUDE, _claude(ECHO), {"tools": {"enabled": ["files", "shell"], **ALLOWED}}),
    "page": Kind(CLAUDE, _claude(), on_page=True),
}
ALL_OF_THEM = Kind(
    CLAUDE,
    _down(ADD, ECHO),
    {**FALLBACK, **SHOP, "tools": {"enabled": ["files", "shell"], **ALLOWED}},
    on_page=True,
)
"""On the page, with tools of a server and of the sandbox, by the second provider."""


def measure(conditions: Conditions) -> Iterator[Figure]:
    for kind in KINDS:
        found = [measured(kind) for _ in range(1 if conditions.quick else 3)]
        middle = {name: median(one[name] for one in found) for name in found[0]}
        note = "first {first:.3f} s, tenth {tenth:.3f} s of CPU; {modules:.0f} modules".format_map(middle)
        later = middle["first"] - middle["tenth"]
        yield Figure(f"first answer less the tenth, {kind}", later, "s", at_most=LATER_S, note=note)
        calm = min(found, key=lambda one: one["first_s"] - one["tenth_s"])  # others use the machine too
        note = "first {first_s:.3f} s, tenth {tenth_s:.3f} s".format_map(calm)
        yield Figure("  of time", calm["first_s"] - calm["tenth_s"], "s", at_most=LATER_S, note=note)


def measured(kind: str = "") -> dict[str, float]:
    """Measure all of them, or one, in a fresh process, not as root, who has no sandbox. Raises `Unreachable`."""
    done = run_unprivileged("-m", "benchmarks.first_answer", kind)
    print(done.stderr, end="", file=sys.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@asynccontextmanager
async def _prepared(live: LiveParts) -> AsyncIterator[None]:
    """Let nobody write before the preparation is over."""
    await live.prepare()
    yield


@asynccontextmanager
async def _chatting(
    fields: Mapping[str, object], model: str
) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    settings, chat = settings_model().model_validate(fields, strict=False), Chat()

    async def run() -> None:
        await serve(settings, KEYS, model=model, make_transports=lambda _: [chat], watch=_prepared)

    async with background_tasks() as tasks:
        tasks.start_soon(run)
        await chat.ready.wait()
        yield chat.say


@asynccontextmanager
async def _on_page(
    fields: Mapping[str, object], model: str
) -> AsyncIterator[Callable[[str], Awaitable[object]]]:
    data = fields["data"]
    assert isinstance(data, Path)
    async with serving_page(data, fields, model=model, watch=_prepared) as site, Visitor(site) as visitor:

        async def say(text: str) -> None:
            """Sign in, open a thread as a browser does, and write there."""
            thread = uuid.uuid4().hex[:16]
            await visitor.enter()
            assert (await visitor.get("/")).status_code == 200
            async with visitor.events(thread) as events:
                await visitor.say(text, thread)
                await events.until("settled", outcome="answered")

        yield say


async def _answers(kind: Kind) -> dict[str, float]:
    costs, times, new = list[float](), list[float](), set[str]()
    async with AsyncExitStack() as stack:
        providers: dict[str, object] = {}
        for name, fake in kind.apis().items():
            api = await stack.enter_async_context(fake)
            at = ADDRESS[name](api.base_url) if name in ADDRESS else compatible(name, api.base_url)
            providers |= at
        folder = Path(stack.enter_context(TemporaryDirectory()))
        fields = {"tools": {"enabled": ["files"]}, **kind.fields, "data": folder / "data"}
        fields |= {"model": kind.model, "providers": providers}
        opened = _on_page if kind.on_page else _chatting
        say = await stack.enter_async_context(opened(fields, kind.model))
        for number in range(10):
            known, cpu, now = {*sys.modules}, time.process_time(), time.perf_counter()
            await say(f"hello {number}")
            costs.append(time.process_time() - cpu)
            times.append(time.perf_counter() - now)
            new |= {name for name in {*sys.modules} - known if not name.startswith("encodings.")}
    if new:
        print("imported:", *sorted(new), file=sys.stderr)
    return {
        "first": costs[0],
        "tenth": costs[9],
        "first_s": times[0],
        "tenth_s": times[9],
        "modules": len(new),
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(_answers, KINDS.get(sys.argv[1], ALL_OF_THEM))))
