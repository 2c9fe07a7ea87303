"""The bot process of the crash run in Discord: the real transport and library, and a model that writes numbered rows.

    python -m tests.crash.discord.child --data D --port P --seed S

Waits and paces that are there for the real Discord are scaled by ``--waits``. How answers are streamed is drawn anew for
each process.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

import anyio.to_thread

from bot.routing.commands import with_extensions
from bot.wiring.app import utc_now
from tests.crash import child
from tests.crash.discord import IN_PLACE
from tests.crash.rows import Rows
from tests.fakes.discord import TOKEN
from threads.model import TurnLimits
from threads.store.data_folder import recent_threads
from threads.store.disk import Disk
from threads.store.mark_file import MarkFile
from transports.discord import client
from transports.discord.api import gateway_link
from transports.discord.api.options import Options, Streaming
from transports.discord.client import Discord
from transports.discord.live import draft, draft_content, pacing, reactions, typing_indicator
from transports.discord.post import posting
from transports.discord.post.post_lookup import PostState
from transports.discord.post.posting import Posting
from transports.shared import downloads
from transports.shared.backfill import catch_up, marks
from transports.shared.delivery import rewrite
from transports.shared.link import supervisor
from transports.shared.live import background_calls

STREAMING: tuple[Streaming, ...] = ("edits", "edits", "progress", "off")


def discord(args: argparse.Namespace, disk: Disk, _: object) -> Discord:
    hurry(args.waits)
    if args.broken:
        BROKEN[args.broken]()

    async def recent(within_s: float, most: int):
        return await anyio.to_thread.run_sync(recent_threads, args.data, "discord", within_s, most)

    options = Options(
        TOKEN,
        f"http://127.0.0.1:{args.port}/api/v10",
        f"ws://127.0.0.1:{args.port}/gateway",
        streaming=random.Random(f"{args.seed} streaming").choice(STREAMING),
        commands=with_extensions(()),
        in_place=frozenset((args.data.parent / IN_PLACE).read_text().split()),
    )
    return Discord(
        options,
        args.data,
        disk=disk,
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=recent,
        marks=MarkFile(disk, args.data / "discord-marks.json"),
    )


def hurry(scale: float) -> None:
    """Make the transport's waits, and the distances of its calls, so much shorter."""
    pacing.CHANNEL_S *= scale
    pacing.EVERY_S *= scale
    client.TIDY_AFTER_S *= scale
    reactions.PAUSE_S *= scale
    typing_indicator.EVERY_S *= scale
    draft_content.FIRST_AFTER_S *= scale
    draft.PAUSE_S *= scale
    posting.UPLOAD_PAUSE_S *= scale
    downloads.PAUSE_S *= scale
    rewrite.PAUSES_S = tuple(pause * scale for pause in rewrite.PAUSES_S)
    marks.SAVE_EVERY_S *= scale
    background_calls.AGAIN_S = tuple(pause * scale for pause in background_calls.AGAIN_S)
    gateway_link.GUILDS_S *= scale
    catch_up.PAUSES_S = tuple(pause * scale for pause in catch_up.PAUSES_S)
    MarkFile.overlap_s = max(1, round(MarkFile.overlap_s * scale))
    supervisor.PROBE_EVERY_S *= scale
    supervisor.FIRST_PAUSE_S *= scale


def blind() -> None:
    """Find no post again."""

    async def find(*_: object, **__: object) -> None:
        return None

    Posting.find = find  # type: ignore[method-assign,assignment]


def untidy() -> None:
    """Leave what a killed process was about to write."""
    PostState.unfinished = lambda *_: []  # type: ignore[method-assign,assignment]


def deaf() -> None:
    """Never look for what was missed."""

    async def nothing(*_: object, **__: object) -> None:
        pass

    catch_up.CatchUp.run = nothing  # type: ignore[method-assign]


BROKEN: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in (blind, untidy, deaf)}


if __name__ == "__main__":
    child.main(discord, Rows(), TurnLimits(running_turns=12, turn_timeout_s=4.0))
