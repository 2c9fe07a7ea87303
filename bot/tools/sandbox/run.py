"""Running one command to its end, whatever it does: the end of its whole tree, within its time, in bounded memory.

| what happens                     | ``ended``  | what is done                                                     |
|----------------------------------|------------|------------------------------------------------------------------|
| the command exits                | `exited`   | what it left running dies too; half a second for the last output |
| the deadline passes              | `timeout`  | the tree is killed; what it wrote is kept                        |
| it writes without end            | `flood`    | the same                                                         |
| all of it uses too much memory   | `memory`   | the same                                                         |
| it fills the disk                | `disk`     | the same                                                         |
| it fills its workspace           | `full`     | the same; what it wrote is kept                                  |
| something else ends it           | `killed`   | (the kernel was out of memory, or somebody's kill)               |
| the walls cannot be put up       | -          | `SandboxFailed`; nothing was run                                 |
| the caller is cancelled          | -          | the tree is killed before the cancellation goes on               |
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import Process

from bot.ports.errors import SandboxFailed
from threads.store.disk import Offload

from .layers import Launch, Layer
from .output_capture import OutputCapture
from .profile import Limits
from .resource_watch import exceeds, room
from .workspace_meter import Meter

log = logging.getLogger(__name__)

DRAIN_S = 0.5
"""How long the last output may take after the command's end: what still holds the pipe open is not waited for."""

DEATH_S = 1.5
WATCH_S = 1.0
CHUNK = 65536

LOOK_S = 0.05
"""How often it is seen whether a workspace has to be counted; a command that has just begun is looked at sooner."""

Ended = Literal["exited", "timeout", "flood", "memory", "disk", "full", "killed"]
_EXIT_CODE = re.compile(rb'"exit-code": (\d+)')
_FAILED = b'"failed"'


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command. ``left_out`` are the bytes that were not kept.

    ``full`` tells which limit of its workspace is met, in a sentence, if one is.

    ``exit_code`` is 128 + N for a death by signal N, and None unless it exited by itself.
    """

    ended: Ended
    exit_code: int | None
    stdout: str
    stderr: str
    left_out: int = 0
    full: str = ""

    @property
    def signal(self) -> str:
        """Return the name of the signal that ended it, as far as the exit code tells; empty for none."""
        with suppress(ValueError):
            return signal.Signals((self.exit_code or 0) - 128).name
        return ""


async def run(
    layer: Layer,
    command: str,
    workspace: Path,
    deadline: float,
    limits: Limits,
    offload: Offload,
    meter: Meter | None = None,
) -> CommandResult:
    """Run *command* behind *layer* until *deadline* (anyio's clock); raises `SandboxFailed`.

    *meter* measures the workspace meanwhile; without one it may be filled.
    """
    if meter:
        limits = replace(limits, file_size=min(limits.file_size, meter.file_size))
    with ExitStack() as opened:
        outputs = [_Output(limits, opened) for _ in ("stdout", "stderr")]
        try:
            start = layer.start(command, workspace, limits, opened)
            process = await _started(start, *outputs)
        except OSError as error:
            log.warning("sandbox.not_started: a command could not be started", exc_info=error)
            raise SandboxFailed("The sandbox could not be started.") from error
        running = _Running(process, start, outputs, workspace, limits, offload, meter)
        ended = await running.until(deadline)
        status = _read_now(start.status)
        said = _EXIT_CODE.search(status)
        if ended == "exited" and not said and (process.returncode or 0) < 0:
            ended = "killed"
        if _FAILED in status or (ended == "exited" and not said):
            reason = outputs[1].captured.text()
            log.warning("sandbox.failed: %s", reason)
            raise SandboxFailed("The sandbox could not be put up.") from OSError(reason)
        out, err = (output.captured for output in outputs)
        code = int(said[1]) if said and ended == "exited" else None
        full = await offload(meter.told) if meter else ""
        return CommandResult(ended, code, out.text(), err.text(), out.left_out + err.left_out, full)


class _Output:
    """One stream of a command: a pipe of our own, read as it comes."""

    def __init__(self, limits: Limits, opened: ExitStack) -> None:
        self.captured = OutputCapture(limits.kept)
        self._limit = limits.output
        self._fd, writing = os.pipe()
        opened.callback(os.close, self._fd)
        os.set_blocking(self._fd, False)
        self._writing = opened.enter_context(os.fdopen(writing, "wb", buffering=0))

    @property
    def writing(self) -> int:
        return self._writing.fileno()

    def close_writing(self) -> None:
        self._writing.close()

    async def read(self) -> bool:
        """Read to the end; return whether it came (False: there was too much)."""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                continue
            if not data:
                return True
            self.captured.add(data)
            if self.captured.total > self._limit:
                return False


class _Running:
    def __init__(
        self,
        process: Process,
        start: Launch,
        outputs: list[_Output],
        workspace: Path,
        limits: Limits,
        offload: Offload,
        meter: Meter | None,
    ) -> None:
        self._meter = meter
        self._process, self._start, self._outputs = process, start, outputs
        self._workspace, self._limits, self._offload = workspace, limits, offload
        self._cut: Ended | None = None
        self._until = anyio.CancelScope()

    async def until(self, deadline: float) -> Ended:
        """Wait for the end, and bring it about if it must be; afterwards nothing of the command lives."""
        self._until.deadline = deadline
        gone = False
        try:
            with self._until:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch)
                    if self._meter:
                        tasks.start_soon(self._measure, self._meter)
                    tasks.start_soon(self._read)
                    await self._process.wait()
                    gone = True
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()
        return "exited" if gone else self._cut or "timeout"

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._kill()
            with anyio.move_on_after(DEATH_S):
                await self._process.wait()
        with anyio.move_on_after(DRAIN_S):
            await self._read()
        if self._process.returncode is None:
            log.error("sandbox.outlived: a command outlived its kill", extra={"pid": self._process.pid})

    def _kill(self) -> None:
        if self._start.end:
            self._start.end()
        else:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self) -> None:
        async with anyio.create_task_group() as tasks:
            for output in self._outputs:
                tasks.start_soon(self._read_one, output)

    async def _read_one(self, output: _Output) -> None:
        if not await output.read():
            self._stop("flood")

    async def _watch(self) -> None:
        spare = min(self._limits.spare, await self._offload(room, self._workspace) / 2)
        while True:
            await anyio.sleep(WATCH_S)
            if await self._offload(room, self._workspace) < spare:
                self._stop("disk")
            if await self._offload(exceeds, self._process.pid, self._limits.memory):
                self._stop("memory")

    async def _measure(self, meter: Meter) -> None:
        pause = LOOK_S / 8
        while True:
            await anyio.sleep(pause)
            if await self._offload(meter.exceeded, self._process.pid):
                self._stop("full")
            pause = min(LOOK_S, 2 * pause)

    def _stop(self, cause: Ended) -> None:
        self._cut = self._cut or cause
        self._until.cancel()


async def _started(start: Launch, out: _Output, err: _Output) -> Process:
    # Not to be cancelled half-way: a process that nobody knows of would be nobody's to end.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            start.argv,
            stdin=subprocess.DEVNULL,
            stdout=out.writing,
            stderr=err.writing,
            env=start.environment,
            pass_fds=start.pass_fds,
            cwd="/",
            start_new_session=True,
        )
    out.close_writing()
    err.close_writing()
    return process


def _read_now(fd: int) -> bytes:
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        return os.read(fd, 4096)
    return b""
