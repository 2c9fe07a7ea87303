"""When a streamed answer is whole in Discord after the model has said its last word, and what that costs.

A fake Discord with Discord's rate limits, over loopback; each run in its own process:

ours      2,000 deltas in 3 s through `Presence`, then the final text through `Posting`
naive     a few deltas with discord.py alone: each is an edit that the stream waits for

Counted is the time from the last delta until Discord has all of the text, and the CPU of taking a delta in.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

import anyio

from benchmarks.child import ask
from benchmarks.figures import Conditions, Figure
from threads.background import background_tasks

if TYPE_CHECKING:
    from tests.fakes.discord import FakeDiscord
    from transports.discord.api.rest import Rest

DELTAS, SECONDS = 2_000, 3.0
WITHIN_MS = 1_500
SHORT, LONG = 1, 4
"""Characters of a delta: a text of one message, and of five."""


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, naive_deltas = (1, 8) if conditions.quick else (3, 20)
    for what, size in (("", SHORT), (", five messages", LONG)):
        found = [ask("discord_stream", "ours", DELTAS, size) for _ in range(rounds)]
        late = [one["late_ms"] for one in found]
        note = (
            f"worst of {rounds}; {DELTAS:,} deltas in {SECONDS:g} s, {found[0]['calls']:.0f} posts and edits"
        )
        yield Figure(f"whole after the last delta{what}", max(late), "ms", at_most=WITHIN_MS, note=note)
        yield Figure("  CPU per delta", median(one["us"] for one in found), "us", note="taking it in")
    naive = ask("discord_stream", "naive", naive_deltas, SHORT)
    note = f"{naive_deltas} deltas in {naive_deltas * SECONDS / DELTAS * 1e3:.0f} ms, an edit for each"
    yield Figure("naive", naive["late_ms"], "ms", note=note)


async def _stream(deltas: int, size: int, take: Callable[[str], object]) -> str:
    """Say so many deltas at an even pace, each when *take* is ready for it, and return the whole text."""
    began, said = anyio.current_time(), []
    for number in range(deltas):
        said.append(f"{number % 10 ** (size - 1):0{size - 1}} " if size > 1 else "word "[number % 5])
        await anyio.sleep_until(began + number * SECONDS / DELTAS)
        if (awaited := take(said[-1])) is not None:
            await awaited  # type: ignore[misc]  # the naive one
    return "".join(said).strip()


@asynccontextmanager
async def _fake() -> AsyncIterator[FakeDiscord]:
    from tests.fakes.discord import FakeDiscord  # noqa: PLC0415  the SDK is for the child alone

    async with FakeDiscord(rate_limits=True, echo=False) as discord:
        yield discord


async def _whole(discord: FakeDiscord, channel: str, text: str, ended: float) -> float:
    """Wait until the posts there say *text*, and none can be stopped; return the milliseconds since it *ended*."""
    words = text.split()

    def is_whole() -> bool:
        posts = discord.posts(channel)
        said = [word for post in posts for word in post.content.split()]
        return said == words and not any(post.buttons for post in posts)

    await discord.until(is_whole, 60)
    return (anyio.current_time() - ended) * 1e3


async def _ours(discord: FakeDiscord, rest: Rest, deltas: int, size: int) -> dict[str, float]:
    from tests.fakes.discord import U1  # noqa: PLC0415
    from threads.model import Outgoing, TextDelta, ThreadId, TurnStarted, message_key  # noqa: PLC0415
    from transports.discord.api.options import Options  # noqa: PLC0415
    from transports.discord.live.presence import Presence  # noqa: PLC0415
    from transports.discord.post.ephemeral_answers import EphemeralAnswers  # noqa: PLC0415
    from transports.discord.post.posting import Posting  # noqa: PLC0415
    from transports.discord.post.thread_opening import Destinations  # noqa: PLC0415

    direct = discord.dm(U1)
    asked = discord.say(U1, direct, "how?").id
    thread = ThreadId("discord", "@me", direct, direct)
    destinations = Destinations(rest)
    options = Options("")
    posting = Posting(rest, destinations, EphemeralAnswers(), lambda _: 0, options, lambda: datetime.now(UTC))
    presence = Presence(rest, destinations, options)
    cpu = 0.0

    def take(delta: str) -> None:
        nonlocal cpu
        began = time.perf_counter()
        presence.show(thread, asked, TextDelta(delta))
        cpu += time.perf_counter() - began

    async with background_tasks() as tasks:
        tasks.start_soon(presence.run)
        presence.show(thread, asked, TurnStarted())
        text = await _stream(deltas, size, take)
        ended = anyio.current_time()
        outgoing = Outgoing(thread, message_key(thread, asked), text, reply_to=asked)
        draft = presence.draft_of(thread, asked)
        tasks.start_soon(posting.post, outgoing, await draft.hand_over() if draft else ())
        late = await _whole(discord, direct, text, ended)
    calls = discord.calls_to("POST /channels/{}/messages", "PATCH /channels/{}/messages/{}")
    return {"late_ms": late, "us": cpu / deltas * 1e6, "calls": len(calls)}


async def _naive(discord: FakeDiscord, deltas: int) -> dict[str, float]:
    import discord as sdk  # noqa: PLC0415
    from discord.http import Route  # noqa: PLC0415

    from tests.fakes.discord import U1  # noqa: PLC0415

    Route.BASE, direct, said = discord.api_base_url, discord.dm(U1), ""
    client = sdk.Client(intents=sdk.Intents.none(), max_messages=None)
    await client.login(discord.token)
    message = await client.get_partial_messageable(int(direct)).send("…")

    async def take(delta: str) -> None:
        nonlocal said
        said += delta
        await message.edit(content=said)

    began = anyio.current_time()
    text = await _stream(deltas, SHORT, take)
    late = await _whole(discord, direct, text, began + deltas * SECONDS / DELTAS)
    await client.close()
    return {"late_ms": late}


async def _run(what: str, deltas: int, size: int) -> dict[str, float]:
    from transports.discord.api.rest import open_rest  # noqa: PLC0415

    async with _fake() as discord:
        if what == "naive":
            return await _naive(discord, deltas)
        async with open_rest(discord.api_base_url, discord.token) as rest:
            await rest.login()
            return await _ours(discord, rest, deltas, size)


def main(what: str, deltas: str, size: str) -> None:
    print(json.dumps(anyio.run(_run, what, int(deltas), int(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
