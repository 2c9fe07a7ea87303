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
    restarts: bool = True
    """Whether there is anything to start again after kill -9."""


def _ours(module: str) -> Callable[[Path], Sequence[str]]:
    return lambda _: [sys.executable, "-m", f"benchmarks.versus.peers.{module}"]


CONTENDERS = (
    Contender(
        "Threadfast",
        "journal, context and log; a message is synced before it is accepted",
        _ours("threadfast"),
    ),
    Contender("bare loop", "what Threadfast writes, without its code", _ours("bare"), restarts=False),
    Contender(
        "nanobot",
        "a session file a thread, replaced whole, synced only at a clean stop",
        environments.nanobot,
    ),
    Contender("Chat SDK", "nothing: its state is in memory (no agent)", environments.chat_sdk),
)
