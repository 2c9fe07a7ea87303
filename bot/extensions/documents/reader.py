"""Files and web pages from outside as text, or as pictures that a model takes; child processes read them.

Each file has its own child, with little memory and time, no environment, and no file to write (`extract/`). It
reports a failure by a code, so that no file speaks for us; the sentences are in `problems.py`.

| event                            | outcome                                     |
|----------------------------------|---------------------------------------------|
| it answers                       | the text or the picture, maybe a problem    |
| its wall clock or CPU time ends  | killed: `late`                              |
| its memory ends                  | `too_large`                                 |
| it crashes, or its answer is bad | `damaged`, and a line in the log            |
| the caller is cancelled          | killed                                      |
| the bot dies                     | killed by the kernel (Linux), or its alarm  |
"""

from __future__ import annotations

import logging
import math
import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from subprocess import PIPE
from typing import Annotated, Literal

import anyio
from anyio.abc import ByteSendStream, Process
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.extensions.documents.child_process import run_child
from bot.extensions.documents.problems import WHY, LeftOut, Problem, left_out
from bot.ports.documents import open_regular
from threads.background import background_tasks
from threads.store.attachments import Extracted, ModelImage
from threads.store.disk import Offload

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Children at once: each may take a core, and hundreds of megabytes."""

WAIT_S, WALL_S = 60.0, 30.0
"""Seconds that a file waits for its turn, and that its child may run."""

MAX_INPUT = 100_000_000
"""Bytes of a file that are read."""

MAX_OUTPUT = 5_000_000
"""Bytes that are read from a child: more than the longest text or the largest picture."""

PROGRAM = ("-B", "-X", "utf8", "-m", "bot.extensions.documents.extract")
"""Python's arguments for a child; see `bot.extensions.documents.extract`."""

_MEDIA_TYPE = re.compile(
    r"[\w.+-]{1,60}/[\w.+-]{1,80}(?:\s*;\s*charset=[\"']?[\w.:-]{1,40}[\"']?)?", re.ASCII
)
_PACKED = re.compile(r"\.(?:gz|bz2|xz)\Z", re.IGNORECASE)
_ENDING = re.compile(r"\.[a-z0-9]{1,10}", re.ASCII)


class _Header(BaseModel):
    """The first line from a child; the text or the picture follows."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    problem: Problem = ""
    left_out: tuple[LeftOut, ...] = ()
    title: Annotated[str, Field(max_length=300)] = ""
    media_type: Literal["", "image/png", "image/jpeg"] = ""
    as_is: bool = False
    fault: Annotated[str, Field(max_length=100)] = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """One for the whole bot. ``offload`` runs what blocks off the event loop."""

    offload: Offload
    wall_s: float = WALL_S
    _slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))

    async def text_of(
        self, data: bytes | Path, media_type: str, name: str = "", *, site: bool = False
    ) -> Extracted:
        """Return the text of a file: web pages as Markdown, documents and plain text as text.

        Of a *site*'s page only the main part is read: no menus, no margins.

        *media_type* and *name* are the sender's claim, and only a hint; a Path must be a regular file. With a
        ``problem`` and a text, something is missing from the text. Raises OSError for a Path that cannot be opened.
        """
        claimed = media_type.strip() if _MEDIA_TYPE.fullmatch(media_type.strip()) else ""
        ending = PurePath(_PACKED.sub("", name)).suffix.lower()
        header, body = await self._read(
            data, "site" if site else "text", claimed, ending if _ENDING.fullmatch(ending) else ""
        )
        why = WHY[header.problem] or left_out(header.left_out)
        return Extracted(body.decode("utf-8", "replace"), header.title, why, header.as_is)

    async def picture_of(self, data: bytes | Path) -> ModelImage:
        """Return a picture as small as models need it: a JPEG or PNG, upright, its first frame, without metadata.

        With a ``problem`` it has no bytes. Raises OSError for a Path that cannot be opened.
        """
        header, body = await self._read(data, "picture")
        if not header.problem and not (body and header.media_type):
            header = _Header(problem="damaged")
        missing = left_out(header.left_out)
        return ModelImage(b"" if header.problem else body, header.media_type, WHY[header.problem], missing)

    async def _read(self, data: bytes | Path, kind: str, *claims: str) -> tuple[_Header, bytes]:
        with anyio.move_on_after(WAIT_S) as waiting:
            async with self._slots:
                waiting.deadline = math.inf
                if not isinstance(data, Path):
                    return await self._run(PIPE, data, kind, claims)
                source = await self.offload(open_regular, data)
                try:
                    return await self._run(source, b"", kind, claims)
                finally:
                    os.close(source)
        return _Header(problem="busy"), b""

    async def _run(
        self, source: int, data: bytes, kind: str, claims: tuple[str, ...]
    ) -> tuple[_Header, bytes]:
        with anyio.move_on_after(self.wall_s):
            try:
                async with run_child(*PROGRAM, kind, str(os.getpid()), *claims, stdin=source) as child:
                    output = await _exchange(child, data)
                    code = await child.wait() if len(output) <= MAX_OUTPUT else None
            except OSError as error:  # no more processes, or no memory for one
                log.warning("document.not_started: a child could not be started: %s", error)
                return _Header(problem="busy"), b""
            header, body = _parse(output, code)
            if header.fault:
                log.warning("document.failed: a %s could not be taken apart: %s", kind, header.fault)
            return header, body
        log.warning("document.timeout: a %s took too long to take apart", kind)
        return _Header(problem="late"), b""


async def _exchange(child: Process, data: bytes) -> bytes:
    """Give the child *data* if its input is a pipe, and return its output, up to a byte over `MAX_OUTPUT`."""
    output = bytearray()
    assert child.stdout
    async with background_tasks() as tasks:
        if child.stdin:
            tasks.start_soon(_feed, child.stdin, data)
        async for chunk in child.stdout:
            output += chunk[: MAX_OUTPUT + 1 - len(output)]
            if len(output) > MAX_OUTPUT:
                break
    return bytes(output)


async def _feed(stream: ByteSendStream, data: bytes) -> None:
    try:
        async with stream:
            await stream.send(data[: MAX_INPUT + 1])
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.debug("document.unread: a child did not want to read all")  # its output or its exit code says why


def _parse(output: bytes, code: int | None) -> tuple[_Header, bytes]:
    """Return the header and the body from a child that ended with *code*; None is for too much output."""
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return _Header(problem="late", fault="its time was over"), b""
    if code == -signal.SIGKILL:
        return _Header(problem="too_large", fault="it was killed: no memory"), b""
    head, _, body = output.partition(b"\n")
    try:
        if code == 0:
            return _Header.model_validate_json(head), body
    except ValidationError:
        return _Header(problem="damaged", fault="it made no sense"), b""
    return _Header(problem="damaged", fault=f"it ended with {code}"), b""
