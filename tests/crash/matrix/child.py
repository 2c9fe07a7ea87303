"""The bot process of the crash run in Matrix: the real transport and nio, and a model that writes numbered rows.

    python -m tests.crash.matrix.child --data D --port P --seed S

Waits and paces that are there for a real homeserver's limits are scaled by ``--waits``. How answers are streamed is
drawn anew for each process.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import anyio.to_thread

from bot.wiring.app import utc_now
from tests.crash import child
from tests.crash.matrix import ACCOUNT
from tests.crash.rows import Rows
from threads.model import TurnLimits
from threads.store.disk import Disk
from threads.store.json_file import JsonFiles
from transports.matrix import live, posting
from transports.matrix.client import Matrix, Options
from transports.matrix.intake import SyncState
from transports.matrix.settings import MatrixSettings
from transports.shared.link import supervisor
from transports.shared.live import background_calls

STREAMING = ("edits", "edits", "progress", "off")
MAX_AGE_S = 600.0


def matrix(args: argparse.Namespace, disk: Disk, _: object) -> Matrix:
    hurry(args.waits)
    if args.broken:
        BROKEN[args.broken]()
    streaming = random.Random(f"{args.seed} streaming").choice(STREAMING)
    settings = MatrixSettings(homeserver=f"http://127.0.0.1:{args.port}", streaming=streaming)
    options = Options(settings, (args.data.parent / ACCOUNT).read_text(), MAX_AGE_S)
    edge = Matrix(options, args.data, disk=disk, offload=anyio.to_thread.run_sync, now=utc_now)
    states = JsonFiles(disk, args.data, anyio.to_thread.run_sync)
    edge.open_state = partial(states.open, "matrix-sync", SyncState())
    return edge


def hurry(scale: float) -> None:
    """Make the transport's waits, and the distances of its calls, so much shorter."""
    live.EVERY_S *= scale
    live.FIRST_AFTER_S *= scale
    background_calls.AGAIN_S = tuple(pause * scale for pause in background_calls.AGAIN_S)
    supervisor.PROBE_EVERY_S *= scale
    supervisor.FIRST_PAUSE_S *= scale


def keyless() -> None:
    """Send each message as a new one."""
    posting.transaction = lambda *_: uuid4().hex


BROKEN: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in (keyless,)}


if __name__ == "__main__":
    child.main(matrix, Rows(), TurnLimits(running_turns=12, turn_timeout_s=4.0))
