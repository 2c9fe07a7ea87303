"""What people do in one block, and what is counted meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from benchmarks.wire.meter import cpu_of
from benchmarks.wire.model import Model
from benchmarks.wire.questions import STREAM_S, Kind
from benchmarks.wire.wires import PEOPLE, Asked, Conversation, Where, Wire

SETTLE_S = 0.4
"""What a bot does after an answer counts too."""

FIFTY = 50
OPEN_PER_S = 20


@dataclass(frozen=True, slots=True)
class Block:
    """What one contender did and cost in one block, a message where nothing else is said."""

    messages: int
    cpu_ms: float
    calls: float
    sent_bytes: float
    model_calls: float
    model_bytes: float
    first_ms: Sequence[float]
    """From the event to the first text, of each message."""
    answer_ms: Sequence[float]
    """From the event to the whole answer, the model's own time not included."""


@dataclass
class Bot:
    """A bot that runs, its platform, and who has asked so far."""

    pid: int
    wire: Wire
    model: Model
    numbers: itertools.count[int]
    """Of questions, unique over all bots."""
    streams_in: Where
    people: itertools.cycle[int] = field(default_factory=lambda: itertools.cycle(range(PEOPLE)))

    async def ask(self, conversation: Conversation, kind: Kind) -> Asked:
        return await self.wire.ask(conversation, kind, next(self.numbers))

    def conversation(self, where: Where = "channel") -> Conversation:
        return Conversation(next(self.people), where)


Work = Callable[[], Awaitable[list[Asked]]]


async def measured(bot: Bot, work: Work, model_s: float = 0.0) -> Block:
    """Do the *work*, and count from before the first event until all is settled."""
    requests, given = bot.model.counted()
    calls, sent = bot.wire.sent()
    cpu = cpu_of(bot.pid)
    asked = await work()
    await anyio.sleep(SETTLE_S)
    cpu = cpu_of(bot.pid) - cpu
    calls_now, sent_now = bot.wire.sent()
    requests_now, given_now = bot.model.counted()
    count = len(asked)
    return Block(
        messages=count,
        cpu_ms=cpu / count * 1e3,
        calls=(calls_now - calls) / count,
        sent_bytes=(sent_now - sent) / count,
        model_calls=(requests_now - requests) / count,
        model_bytes=(given_now - given) / count,
        first_ms=[one.first_s * 1e3 for one in asked],
        answer_ms=[(one.answer_s - model_s) * 1e3 for one in asked],
    )


async def _one_by_one(bot: Bot, conversations: Sequence[Conversation], kind: Kind) -> list[Asked]:
    return [await bot.ask(conversation, kind) for conversation in conversations]


async def _side_by_side(
    bot: Bot, conversations: Sequence[Conversation], messages: int, over_s: float = 0.0
) -> list[Asked]:
    """Let all talk at once, each its next message after the answer; they begin one after another *over_s*."""
    asked = list[Asked]()

    async def person(conversation: Conversation, wait_s: float) -> None:
        await anyio.sleep(wait_s)
        for _ in range(messages):
            asked.append(await bot.ask(conversation, "short"))

    async with anyio.create_task_group() as people:
        for number, conversation in enumerate(conversations):
            people.start_soon(person, conversation, number * over_s / len(conversations))
    return asked


async def short(bot: Bot, size: int) -> Block:
    """Mentions in channels, each a new thread, one after another."""
    return await measured(bot, partial(_one_by_one, bot, [bot.conversation() for _ in range(size)], "short"))


async def follow_up(bot: Bot, size: int) -> Block:
    """The second and third message of threads whose first is not counted."""
    conversations = [bot.conversation() for _ in range(size // 2)]
    await _one_by_one(bot, conversations, "short")
    return await measured(bot, partial(_one_by_one, bot, [*conversations, *conversations], "short"))


async def streamed(bot: Bot, size: int) -> Block:
    """Long answers where the bot shows them as they grow, one after another."""
    conversations = [bot.conversation(bot.streams_in) for _ in range(size)]
    return await measured(bot, partial(_one_by_one, bot, conversations, "long"), STREAM_S)


async def tool_call(bot: Bot, size: int) -> Block:
    """Mentions in channels that the model answers after it has looked into a folder."""
    return await measured(bot, partial(_one_by_one, bot, [bot.conversation() for _ in range(size)], "tool"))


async def ten_at_once(bot: Bot, size: int) -> Block:
    """Ten mentions in the same moment, each a new thread, as often as it takes."""

    async def work() -> list[Asked]:
        asked = list[Asked]()
        for _ in range(size // 10):
            asked += await _side_by_side(bot, [bot.conversation() for _ in range(10)], 1)
        return asked

    return await measured(bot, work)


async def fifty(bot: Bot, size: int) -> Block:
    """Fifty threads side by side, which begin within a second."""
    conversations = [bot.conversation() for _ in range(FIFTY)]
    return await measured(bot, partial(_side_by_side, bot, conversations, size // FIFTY, 1.0))


async def fifty_paced(bot: Bot, size: int) -> Block:
    """Twenty messages a second over fifty threads, whatever is answered meanwhile."""
    conversations = [bot.conversation() for _ in range(FIFTY)]

    async def work() -> list[Asked]:
        asked = list[Asked]()

        async def person(conversation: Conversation) -> None:
            asked.append(await bot.ask(conversation, "short"))

        began = anyio.current_time()
        async with anyio.create_task_group() as people:
            for number in range(size):
                await anyio.sleep_until(began + number / OPEN_PER_S)
                people.start_soon(person, conversations[number % FIFTY])
        return asked

    return await measured(bot, work)


@dataclass(frozen=True, slots=True)
class Scenario:
    """``size`` is the messages of a block, ``quick_size`` those of a rough one."""

    name: str
    block: Callable[[Bot, int], Awaitable[Block]]
    size: int
    quick_size: int
    rounds: int
    needs_tool: bool = False


SCENARIOS = (
    Scenario("short", short, 20, 10, 5),
    Scenario("follow-up", follow_up, 20, 10, 5),
    Scenario("streamed", streamed, 1, 1, 3),
    Scenario("tool call", tool_call, 10, 6, 5, needs_tool=True),
    Scenario("ten at once", ten_at_once, 20, 10, 5),
    Scenario("fifty", fifty, 150, 100, 3),
    Scenario("fifty, 20 a second", fifty_paced, 100, 60, 3),
)
QUICK_ROUNDS = 2
