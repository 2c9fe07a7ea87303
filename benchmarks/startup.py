"""What start-up costs: `threadfast chat` with one line to `offline/demo`, and commands that only look."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.child import ROOT
from benchmarks.figures import Conditions, Figure
from benchmarks.stopwatch import Cost

BARE = "import pydantic, anyio, click"
LOOKS = {"--help": 0, "status": 4, "why": 1}
"""Commands that only look, each with its exit code where no bot has served a message."""
SETTINGS = '{"model": "offline/demo"}'


def once(arguments: Sequence[str], folder: Path, expect: str, code: int = 0) -> Cost:
    """Run Python once with ``hello`` on its input; return its own CPU time and what a person waits."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdin.write("hello\n")
        child.stdin.close()
        output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == code, f"exit code {child.returncode}"
    assert expect in output, output
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)


def measure(conditions: Conditions) -> Iterator[Figure]:
    runs = 3 if conditions.quick else 7
    chat, bare = [], []
    with TemporaryDirectory(dir=conditions.disk) as folder:
        Path(folder, "settings.json").write_text(SETTINGS)
        for n in range(runs + 1):
            ours = once(["-m", "bot", "chat", "--data", f"data{n}"], Path(folder), "offline/demo")
            imports = once(["-c", BARE], Path(folder), "")
            if n:  # the first run of each only fills the caches
                chat.append(ours)
                bare.append(imports)
    least, middle = min(cost.cpu for cost in chat), median(cost.cpu for cost in chat)
    yield Figure(
        "CPU of `chat` with one line", middle, "s", at_most=0.5, note=f"median of {runs}; least {least:.2f} s"
    )
    yield Figure("  wall until it ended", median(cost.wall for cost in chat), "s")
    with TemporaryDirectory(dir=conditions.disk) as folder:
        Path(folder, "settings.json").write_text(SETTINGS)
        Path(folder, "data").mkdir()
        for name, code in LOOKS.items():
            more = {"status": ["--data", "data"], "why": ["none", "--data", "data"]}.get(name, [])
            looks = [once(["-m", "bot", name, *more], Path(folder), "", code).wall for _ in range(runs)]
            yield Figure(f"Wall of `{name}`", median(looks), "s", at_most=0.25, note=f"median of {runs}")
    yield Figure("  CPU of the bare imports", min(cost.cpu for cost in bare), "s", note=f"`{BARE}`")
