"""`threadfast run` as it is, with a probe: ``python -m tests.soak.child PROBES run --settings …``.

For each SIGUSR1 a line of JSON is added to the file PROBES: what the process holds, as it sees it itself, since nobody
else may look into it (`bot.guards.hardening.seal`). Every tenth line counts all objects by type, which takes a while.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

BEAT_S = 0.2
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Probe:
    def __init__(self, path: Path) -> None:
        self._path, self._count, self._worst, self._beating = path, 0, 0.0, False

    def __call__(self, *_: object) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # not yet, or not any more
        if not self._beating:
            self._beating = True
            self._beat(loop, loop.time())
        tasks = asyncio.all_tasks(loop)
        line = {"at": time.time(), "pid": os.getpid(), "tasks": len(tasks), "lag_s": round(self._worst, 3)}
        line |= {"actors": sum(task.get_name().startswith("actor ") for task in tasks)}
        opened = Counter(map(_what, Path("/proc/self/fd").iterdir()))
        line |= {"fds": opened.total() - opened["closed"], "sockets": opened["socket"]}
        line |= {"threads": threading.active_count(), **_memory()}
        if self._count % 10 == 0:
            found = Counter(type(one).__name__ for one in gc.get_objects())
            names = Counter(task.get_name().partition(" ")[0] for task in tasks)
            line |= {"objects": found.total(), "types": dict(found.most_common(60)), "names": dict(names)}
            line |= {"open": dict(opened)}
        self._count, self._worst = self._count + 1, 0.0
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._worst = max(self._worst, loop.time() - due)
        due = loop.time() + BEAT_S
        loop.call_at(due, self._beat, loop, due)


def _what(descriptor: Path) -> str:
    """Return what a descriptor is open for: a file's name, or the kind of anything else."""
    try:
        found = str(descriptor.readlink())
    except FileNotFoundError:
        return "closed"
    return Path(found).name if found.startswith("/") else found.partition(":[")[0]


def _memory() -> dict[str, int]:
    """Return what is resident, in bytes; and the share of it that is ours alone, with half of what two share."""
    found = dict.fromkeys(("Rss", "Pss", "Private_Dirty"), 0)
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) * 1024
    return {"rss": found["Rss"], "pss": found["Pss"], "dirty": found["Private_Dirty"]}


def main() -> None:
    # a soak that is killed leaves no bot behind
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGUSR1, Probe(Path(sys.argv[1])))
    sys.argv[1:2] = []
    from bot.cli import main as threadfast  # noqa: PLC0415 - who asks too early must not end it

    threadfast()


if __name__ == "__main__":
    main()
