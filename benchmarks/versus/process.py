"""A measured process seen from its parent: the task goes in as an argument, JSON lines come out."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from benchmarks.child import ROOT
from benchmarks.versus.environments import LeftOut, last_error
from benchmarks.versus.peers.harness import Task


class Measured:
    """A running contender."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_lines),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):  # a product may print lines of its own
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def next(self, within_s: float) -> dict[str, Any] | None:
        """Return the next event, or None if there was none in time. Raises `LeftOut` if the process ended."""
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            return None
        if line is not None:
            event: dict[str, Any] = json.loads(line)
            return event
        self.kill()
        raise LeftOut(f"it failed: {last_error(''.join(self._errors))}")

    def kill(self) -> None:
        """Kill with SIGKILL, and wait until nothing of it can write any more."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()


@contextmanager
def running(command: Sequence[str], task: Task, environment: Mapping[str, str]) -> Iterator[Measured]:
    """Run a contender's *task* until the block ends."""
    with subprocess.Popen(
        [*command, json.dumps(asdict(task))],
        cwd=ROOT,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        measured = Measured(process)
        try:
            yield measured
        finally:
            measured.kill()
