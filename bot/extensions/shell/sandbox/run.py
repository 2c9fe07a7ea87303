"""Runs one command to its end: within its time, in limited memory, until its whole process tree is dead.

| event                              | ``outcome``| what follows                                                    |
|------------------------------------|------------|-----------------------------------------------------------------|
| the command exits                  | `exited`   | what it left running is killed; its last output has 0.5 s       |
| the deadline passes                | `timeout`  | the tree is killed; what it wrote is kept                       |
| it writes too much output          | `flood`    | the same                                                        |
| its tree uses too much memory      | `memory`   | the same                                                        |
| it fills the disk                  | `disk`     | the same                                                        |
| it fills its workspace             | `full`     | the same                                                        |
| something else kills it            | `killed`   | (the kernel out of memory, or a person)                         |
| the sandbox cannot be set up       | -          | `SandboxFailed`; nothing was run                                |
| its network cannot be set up       | -          | the same                                                        |
| the caller is cancelled            | -          | the tree is killed before the cancellation continues            |
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from anyio.abc import Process

from bot.extensions.shell.network.inside import listen_inside
from bot.ports.errors import SandboxFailed
from threads.background import background_tasks
from threads.store.disk import Offload

from .layers import Launch, Layer
from .output_capture import OutputCapture
from .profile import Limits
from .resource_watch import exceeds_memory, free_share
from .workspace_meter import Meter

if TYPE_CHECKING:
    from bot.extensions.shell.network.proxy import Proxy

log = logging.getLogger(__name__)

DRAIN_S = 0.5
"""How long the last output may take after the command's end; a process that holds the pipe open cannot delay it."""

KILL_WAIT_S = 1.5
WATCH_S = 1.0
CHUNK = 65536

METER_S = 0.05
"""Pause between questions to the meter; shorter in the first moments of a command."""

Outcome = Literal["exited", "timeout", "flood", "memory", "disk", "full", "killed"]
_EXIT_CODE = re.compile(rb'"exit-code": (\d+)')
_CHILD = re.compile(rb'"child-pid": (\d+),')
_FAILED = b'"failed"'


@dataclass(frozen=True, slots=True)
class CommandResult:
    """``exit_code`` is 128 + N for a death by signal N, and None unless the command exited by itself.

    ``left_out`` counts the bytes between head and tail. ``limit_reached`` is a sentence on the limit of the
    workspace that is reached, if any.
    """

    outcome: Outcome
    exit_code: int | None
    stdout: str
    stderr: str
    left_out: int = 0
    limit_reached: str = ""


async def run(
    layer: Layer,
    command: str,
    workspace: Path,
    deadline: float,
    limits: Limits,
    offload: Offload,
    meter: Meter | None = None,
    proxy: Proxy | None = None,
) -> CommandResult:
    """Run *command* behind *layer* until *deadline* on anyio's clock; raises `SandboxFailed`.

    Without *meter* the command may fill the workspace. With *proxy* it reaches what that one lets it.
    """
    if meter:
        limits = replace(limits, file_size=min(limits.file_size, meter.file_size))
    free = await offload(free_share, workspace)  # before the command can fill it
    limits = replace(limits, min_free=min(limits.min_free, free / 2))
    with ExitStack() as stack:
        outputs = (_Output(limits, stack), _Output(limits, stack))
        try:
            launch = layer.start(command, workspace, limits, stack)
            process = await _start(launch, *outputs)
        except OSError as error:
            log.warning("sandbox.not_started: a command could not be started", exc_info=error)
            raise SandboxFailed("The sandbox could not be started.") from error
        running = _Running(process, launch, outputs, workspace, limits, offload, meter, proxy)
        outcome = await running.wait(deadline)
        if running.fault:
            log.warning("sandbox.no_network: a command was not started", exc_info=running.fault)
            raise SandboxFailed("The network of the command could not be set up.") from running.fault
        status = _read_now(launch.status)
        exit_code = _EXIT_CODE.search(status)
        if outcome == "exited" and not exit_code and (process.returncode or 0) < 0:
            outcome = "killed"
        out, err = outputs
        if _FAILED in status or (outcome == "exited" and not exit_code):
            reason = err.text()
            log.warning("sandbox.failed: %s", reason)
            raise SandboxFailed("The sandbox could not be set up.") from OSError(reason)
        code = int(exit_code[1]) if exit_code and outcome == "exited" else None
        limit_reached = await offload(meter.limit_reached) if meter else ""
        return CommandResult(
            outcome, code, out.text(), err.text(), out.left_out + err.left_out, limit_reached
        )


class _Output(OutputCapture):
    """One output stream of a command: a pipe that is read at once."""

    def __init__(self, limits: Limits, stack: ExitStack) -> None:
        super().__init__(limits.captured)
        self._limit = limits.output
        self._fd, writing = os.pipe()
        stack.callback(os.close, self._fd)
        os.set_blocking(self._fd, False)
        self.writing = stack.enter_context(os.fdopen(writing, "wb", buffering=0))

    async def read(self) -> bool:
        """Read to the end; return False if there was too much."""
        while True:
            await anyio.wait_readable(self._fd)
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                continue
            if not data:
                return True
            self.add(data)
            if self.total > self._limit:
                return False


@dataclass(slots=True)
class _Running:
    process: Process
    launch: Launch
    outputs: tuple[_Output, _Output]
    workspace: Path
    limits: Limits
    offload: Offload
    meter: Meter | None
    proxy: Proxy | None = None
    fault: Exception | None = None
    stopped: Outcome | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def wait(self, deadline: float) -> Outcome:
        """Wait for the end of the command, or end it; afterwards its whole tree is dead."""
        self.scope.deadline = deadline
        exited = False
        try:
            with self.scope:
                async with background_tasks() as tasks:
                    tasks.start_soon(self._watch)
                    if self.meter:
                        tasks.start_soon(self._measure, self.meter)
                    tasks.start_soon(self._read)
                    if self.proxy:
                        tasks.start_soon(self._connect, self.proxy)
                    await self.process.wait()
                    exited = True
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()
        return "exited" if exited else self.stopped or "timeout"

    async def _connect(self, proxy: Proxy) -> None:
        """Let the command begin once our proxy listens in its network, and serve it."""
        try:
            begun = b""
            while not (child := _CHILD.search(begun)):
                await anyio.wait_readable(self.launch.status)
                begun += os.read(self.launch.status, 4096)
            listener = await listen_inside(int(child[1]))
        except (OSError, SandboxFailed) as error:
            self.fault = error
            self.scope.cancel()
            return
        os.write(self.launch.gate, b".")
        await proxy.serve(listener)

    async def _end(self) -> None:
        if self.process.returncode is None:
            self._kill()
            with anyio.move_on_after(KILL_WAIT_S):
                await self.process.wait()
        with anyio.move_on_after(DRAIN_S):
            await self._read()
        if self.process.returncode is None:
            log.error("sandbox.outlived: a command outlived its kill", extra={"pid": self.process.pid})

    def _kill(self) -> None:
        if self.launch.end:
            self.launch.end()
        else:
            with suppress(ProcessLookupError):
                self.process.kill()

    async def _read(self) -> None:
        async with anyio.create_task_group() as tasks:
            for output in self.outputs:
                tasks.start_soon(self._read_one, output)

    async def _read_one(self, output: _Output) -> None:
        if not await output.read():
            self._stop("flood")

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(WATCH_S)
            if await self.offload(free_share, self.workspace) < self.limits.min_free:
                self._stop("disk")
            if await self.offload(exceeds_memory, self.process.pid, self.limits.memory):
                self._stop("memory")

    async def _measure(self, meter: Meter) -> None:
        pause = METER_S / 8
        while True:
            await anyio.sleep(pause)
            if await self.offload(meter.exceeded, self.process.pid):
                self._stop("full")
            pause = min(METER_S, 2 * pause)

    def _stop(self, cause: Outcome) -> None:
        self.stopped = self.stopped or cause
        self.scope.cancel()


async def _start(launch: Launch, out: _Output, err: _Output) -> Process:
    # A cancellation here would leave a process that nothing ends.
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=out.writing,
            stderr=err.writing,
            env=launch.environment,
            pass_fds=launch.pass_fds,
            cwd="/",
            start_new_session=True,
        )
    out.writing.close()
    err.writing.close()
    return process


def _read_now(fd: int) -> bytes:
    os.set_blocking(fd, False)
    with suppress(BlockingIOError):
        return os.read(fd, 4096)
    return b""
