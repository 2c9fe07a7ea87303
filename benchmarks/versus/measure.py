"""Measure one contender: the conversations first, then kill -9 with answers outstanding and a restart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Conditions
from benchmarks.versus import environments
from benchmarks.versus.contenders import Contender
from benchmarks.versus.environments import LeftOut
from benchmarks.versus.peers.harness import Task
from benchmarks.versus.process import Measured, running

CONVERSE_TIMEOUT_S = 1800
START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a contender gets."""

    threads: int
    messages: int
    crash_threads: int = 40
    answers_before_kill: int = 3
    silence_s: float = 10
    """After a restart, how long no further answer means that none will come."""


FULL = Size(200, 5)
QUICK = Size(40, 3, crash_threads=20, silence_s=5)


@dataclass(frozen=True, slots=True)
class Speed:
    version: str
    messages: int
    wall_s: float
    cpu_s: float
    resident_bytes: int
    fsyncs: int
    files: int
    bytes_on_disk: int


@dataclass(frozen=True, slots=True)
class Crash:
    """What became of the messages that were accepted but not answered when the process was killed."""

    pending: int
    on_disk: int
    answered: int
    twice: int


@dataclass(frozen=True, slots=True)
class Result:
    contender: Contender
    speed: Speed
    """With a model in the process."""
    http_speed: Speed | None
    crash: Crash | None


def measure(contender: Contender, conditions: Conditions, peers: Path, model_url: str, size: Size) -> Result:
    """Raises `LeftOut` if the contender cannot be installed, or fails."""
    command = contender.command(peers)
    with _home(conditions) as (data, environment):
        speed = converse(command, environment, data, "", size)
    http_speed = crash = None
    if contender.over_http:
        with _home(conditions) as (data, environment):
            http_speed = converse(command, environment, data, model_url, size)
    if contender.restarts:
        with _home(conditions) as (data, environment):
            crash = crash_and_resume(command, environment, data, size)
    return Result(contender, speed, http_speed, crash)


@contextmanager
def _home(conditions: Conditions) -> Iterator[tuple[Path, Mapping[str, str]]]:
    with TemporaryDirectory(dir=conditions.disk) as folder:
        yield Path(folder), environments.environment(Path(folder))


def converse(
    command: Sequence[str], environment: Mapping[str, str], data: Path, model_url: str, size: Size
) -> Speed:
    """Let all threads talk side by side, each message after the answer to the one before."""
    task = Task("converse", str(data), size.threads, size.messages, model_url=model_url)
    with running(command, task, environment) as process:
        event = process.next(CONVERSE_TIMEOUT_S)
    if event is None:
        raise LeftOut(f"it did not end within {CONVERSE_TIMEOUT_S} s")
    files = [path for path in data.rglob("*") if path.is_file()]
    return Speed(
        version=event["version"],
        messages=size.threads * size.messages,
        wall_s=event["wall"],
        cpu_s=event["cpu"],
        resident_bytes=event["rss"],
        fsyncs=event["fsyncs"],
        files=len(files),
        bytes_on_disk=sum(path.stat().st_size for path in files),
    )


def crash_and_resume(command: Sequence[str], environment: Mapping[str, str], data: Path, size: Size) -> Crash:
    """Kill the process with messages accepted and only some answered; start it again and see who is answered."""
    with running(command, Task("accept", str(data), size.crash_threads), environment) as process:
        accepted, answered = _until_killed(process, size)
    pending = accepted - answered.keys()
    written = b"\n".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    on_disk = {message for message in pending if message.encode() in written}
    task = Task("resume", str(data), size.crash_threads, posted=tuple(answered))
    with running(command, task, environment) as process:
        answered.update(_answers(process, len(pending), size.silence_s))
    return Crash(
        pending=len(pending),
        on_disk=len(on_disk),
        answered=len(pending & answered.keys()),
        twice=sum(count > 1 for count in answered.values()),
    )


def _until_killed(process: Measured, size: Size) -> tuple[set[str], Counter[str]]:
    accepted: set[str] = set()
    answered: Counter[str] = Counter()
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(accepted) < size.crash_threads or len(answered) < size.answers_before_kill:
        event = process.next(deadline - time.monotonic())
        if event is None:
            raise LeftOut(f"only {len(answered)} of {size.crash_threads} answered within {START_TIMEOUT_S} s")
        if event["event"] == "accepted":
            accepted.add(event["id"])
        elif event["event"] == "answered":
            answered[event["id"]] += 1
    process.kill()
    return accepted, answered


def _answers(process: Measured, pending: int, silence_s: float) -> Counter[str]:
    """Return who is answered after the restart: all that are pending, or whoever is until it falls silent."""
    answers: Counter[str] = Counter()
    patience = float(START_TIMEOUT_S)
    while (event := process.next(patience)) is not None:
        if event["event"] == "answered":
            answers[event["id"]] += 1
            if len(answers) >= pending:
                break
        patience = silence_s
    return answers
