"""The wire to a server that is a program: its standard streams, its environment, and its end.

The SDK's own wire has no bound for a line, passes on parts of our environment, and leaves behind what a server
started. Here a shell leads the server's process group. It waits at a pipe, the lifeline, whose other end is ours:
when that closes, by our hand or because we were killed, the shell ends the group. A process that leaves its group
escapes; only a sandbox would hold it.

| step of the end              | when                                                |
|------------------------------|-----------------------------------------------------|
| standard input is closed     | at once                                             |
| the group is killed          | when standard output ends, as is usual              |
| else the group gets SIGTERM  | after 1 s                                           |
| and is killed                | 0.5 s later                                         |
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bot.extensions.mcp.connection import MAX_MESSAGE, ConnectionLost, StderrLog
from bot.extensions.mcp.json_text import repair
from threads.background import background_tasks

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, but only a type

MAX_INVALID = 1000
"""Lines that look like a message but are not, before a server is given up."""
END_S = 1.0
"""Seconds that a server has to end by itself once its standard input is closed."""
KILLED_S = 2.0
"""Seconds that the leader has to end its group; then it is killed from here."""
SLOWED_S = 0.05
"""Pause between two reads of a standard error that is no longer logged: a flood costs next to nothing."""

# $1 is the lifeline. A background command has no standard input unless it is named, so ours is saved as 4.
LEADER = """
life=/dev/fd/$1; shift; exec 4<&0
"$@" <&4 4<&- &
exec 0</dev/null 4<&- >/dev/null 2>&1
read -r _ <"$life"
trap '' TERM; kill -TERM 0; sleep 0.5; kill -KILL 0
"""


@asynccontextmanager
async def stdio(
    command: str, args: Sequence[str], env: Mapping[str, str], stderr_log: StderrLog
) -> AsyncIterator[TransportStreams]:
    """Start the server and yield its streams; *stderr_log* reads its standard error.

    Raises `ConnectionLost`, maybe within an exception group, if it cannot be started or ends.
    """
    if (program := shutil.which(command, path=env.get("PATH"))) is None:
        raise ConnectionLost("its program was not found")
    with ExitStack() as ours:
        child = await _start(program, args, env, ours)
        to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with background_tasks() as tasks, to_us, read, write, from_us:
                tasks.start_soon(_read_messages, child.stdout, to_us)
                tasks.start_soon(_write_messages, child.stdin.fileno(), from_us)
                tasks.start_soon(_read_stderr, child.stderr, stderr_log)
                yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                await _end(child)
                with suppress(OSError):  # nothing more to read
                    stderr_log.feed(os.read(child.stderr.fd, MAX_MESSAGE))


@dataclass(frozen=True, slots=True)
class _Child:
    """The group's leader, and our ends of its pipes."""

    process: Process
    stdin: IO[bytes]
    stdout: _Pipe
    stderr: _Pipe
    lifeline: IO[bytes]


async def _start(program: str, args: Sequence[str], env: Mapping[str, str], ours: ExitStack) -> _Child:
    """Start the group; *ours* closes our ends of its pipes. Raises `ConnectionLost`."""
    with ExitStack() as theirs:
        try:
            its_in, stdin = _open_pipe(theirs, ours)
            its_lifeline, lifeline = _open_pipe(theirs, ours)
            stdout, its_out = _open_pipe(ours, theirs)
            stderr, its_err = _open_pipe(ours, theirs)
            for pipe in (stdin, stdout, stderr):
                os.set_blocking(pipe.fileno(), False)
            with anyio.CancelScope(shield=True):  # a half started group would have nobody to end it
                process = await anyio.open_process(
                    ["/bin/sh", "-c", LEADER, "mcp", str(its_lifeline.fileno()), program, *args],
                    stdin=its_in,
                    stdout=its_out,
                    stderr=its_err,
                    env=dict(env),
                    start_new_session=True,
                    pass_fds=(its_lifeline.fileno(),),
                )
        except (OSError, ValueError) as error:
            raise ConnectionLost("it could not be started") from error
    return _Child(process, stdin, _Pipe(stdout.fileno()), _Pipe(stderr.fileno()), lifeline)


def _open_pipe(readers: ExitStack, writers: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Return the two ends of a pipe; these stacks close them."""
    reader, writer = os.pipe()
    return (
        readers.enter_context(os.fdopen(reader, "rb", buffering=0)),
        writers.enter_context(os.fdopen(writer, "wb", buffering=0)),
    )


async def _end(child: _Child) -> None:
    """End the group in the steps of the table above, and reap its leader."""
    child.stdin.close()
    with anyio.move_on_after(END_S) as patience, suppress(OSError):
        async for _ in child.stdout:
            pass
    if patience.cancelled_caught:
        child.lifeline.close()
        with anyio.move_on_after(KILLED_S):
            await child.process.wait()
    if child.process.returncode is None:  # its leader lives, so the group's number is still its own
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        await child.process.wait()
    await child.process.aclose()


class _Pipe(ByteReceiveStream):
    """The reading end of a pipe, which its `ExitStack` closes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while True:
            await anyio.wait_readable(self.fd)
            with suppress(BlockingIOError):
                if data := os.read(self.fd, max_bytes):
                    return data
                raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Leave the pipe open."""


async def _read_messages(stdout: _Pipe, to_us: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Pass on the messages; skips debug prints among them."""
    lines = BufferedByteReceiveStream(stdout)
    invalid = 0
    while True:
        try:
            line = await lines.receive_until(b"\n", MAX_MESSAGE)
        except anyio.DelimiterNotFound:
            raise ConnectionLost(f"it sent a message of more than {MAX_MESSAGE:,} bytes") from None
        except anyio.IncompleteRead:
            raise ConnectionLost("it ended") from None
        line = repair(line).strip()
        if not line.startswith(b"{"):
            continue
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            invalid += 1
            if invalid > MAX_INVALID:
                raise ConnectionLost("what it writes on its standard output is not MCP") from None
            continue
        await to_us.send(SessionMessage(message))


async def _write_messages(fd: int, from_us: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for sent in from_us:
        left = memoryview(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        while left:
            await anyio.wait_writable(fd)
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ConnectionLost("it ended") from error


async def _read_stderr(stderr: _Pipe, stderr_log: StderrLog) -> None:
    async for data in stderr:
        if not stderr_log.feed(data):
            await anyio.sleep(SLOWED_S)
