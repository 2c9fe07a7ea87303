"""Who takes part, how each is started, and what each keeps on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.versus import environments


@dataclass(frozen=True, slots=True)
class Contender:
    """``command`` installs what is missing under the folder for peers; it raises `environments.LeftOut`."""

    name: str
    keeps: str
    command: Callable[[Path], Sequence[str]]
    over_http: str = "over HTTP"
    """What it is called in the row where its model is behind HTTP; blank for no such row."""
    restarts: bool = True
    """Whether there is anything to start again after kill -9."""


def _ours(module: str) -> Callable[[Path], Sequence[str]]:
    return lambda _: [sys.executable, "-m", f"benchmarks.versus.peers.{module}"]


CONTENDERS = (
    Contender(
        "Threadfast, core",
        "journal, context, log; synced before a message is accepted",
        _ours("threadfast"),
        over_http="whole bot, over HTTP",
    ),
    Contender(
        "bare loop",
        "what Threadfast writes, without its code",
        _ours("bare"),
        over_http="",
        restarts=False,
    ),
    Contender(
        "nanobot",
        "a session file a thread, synced only at a clean stop",
        environments.nanobot,
    ),
    Contender(
        "Chat SDK, no agent",
        "nothing: the state that needs no server is in memory",
        environments.chat_sdk,
    ),
)
