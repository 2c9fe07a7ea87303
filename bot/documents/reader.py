"""Files and web pages from outside as text or as pictures that a model takes; they are read in child processes.

Each file has a child of its own, with little memory and time, no environment, and nothing to write to
(`bot.documents.extract`). It names a failure by a code alone; the sentences are here, so that no file speaks for us.

| what becomes of the child       | then                                     |
|---------------------------------|------------------------------------------|
| it answers                      | its text, or the picture, and a remark   |
| its wall clock or CPU time ends | killed: `late`                           |
| its memory ends                 | `too_large`                              |
| it crashes, or says nonsense    | `damaged`, and a line in the log         |
| whoever asked is cancelled      | killed                                   |
| the bot dies                    | the kernel kills it (Linux), or its clock |
"""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from subprocess import PIPE
from typing import Annotated, Literal

import anyio
from anyio.abc import ByteSendStream, Process
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.documents.child_process import run_child
from threads.store.attachments import Extracted, ModelImage
from threads.store.disk import Offload

__all__ = ["Documents", "Extracted", "ModelImage"]

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Children that may run side by side: each may take a core, and hundreds of megabytes."""

WAIT_S, WALL_S = 60.0, 30.0
"""How long a file waits for its turn, and how long its child may run."""

MAX_INPUT = 100_000_000
"""Bytes of a file that is looked at at all."""

MAX_OUTPUT = 5_000_000
"""Bytes that are taken from a child: more than the longest text, or the largest picture, that it may give."""

Problem = Literal[
    "", "empty", "unknown", "old_office", "password", "scanned", "damaged", "too_large", "late", "busy", "cut",
    "partly", "pixels", "unseen",
]  # fmt: skip

WHY: dict[Problem, str] = {
    "": "",
    "empty": "it is empty.",
    "unknown": "I have no way to read files of this kind.",
    "old_office": "it is in an old Office format. Saved as .docx or .xlsx I can read it.",
    "password": "it is protected by a password.",
    "scanned": "it holds no text, only pictures of its pages.",
    "damaged": "it is damaged, or not what it claims to be.",
    "too_large": "there is too much in it.",
    "late": "it took too long to read.",
    "busy": "I had too many other files to read. Send it again in a while.",
    "cut": "only the beginning of it was read.",
    "partly": "some of it could not be read, and is left out.",
    "pixels": "it has more pixels than I can take.",
    "unseen": "I cannot see pictures of this kind. As JPEG or PNG I can.",
}
"""What a person or a model reads about each code, after "I could not read …: "."""

PROGRAM = ("-B", "-X", "utf8", "-m", "bot.documents.extract")
"""What Python runs as a child; see `bot.documents.extract`."""

_MEDIA_TYPE = re.compile(
    r"[\w.+-]{1,60}/[\w.+-]{1,80}(?:\s*;\s*charset=[\"']?[\w.:-]{1,40}[\"']?)?", re.ASCII
)
_ENDING = re.compile(r"\.[a-z0-9]{1,10}", re.ASCII)


class _Said(BaseModel):
    """The first line of what a child says; what follows is the text, or the picture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: Problem = ""
    title: Annotated[str, Field(max_length=300)] = ""
    media_type: Literal["", "image/png", "image/jpeg"] = ""
    as_is: bool = False
    fault: Annotated[str, Field(max_length=100)] = ""


@dataclass(frozen=True, slots=True)
class Documents:
    """One for the whole bot. ``offload`` runs what blocks off the event loop."""

    offload: Offload
    wall_s: float = WALL_S
    _room: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))

    async def text_of(self, data: bytes | Path, media_type: str, name: str = "") -> Extracted:
        """Return what there is to read in a file: web pages as Markdown, documents and plain text as text.

        *media_type* and *name* are what somebody claims, and a hint at most; a Path must be a regular file. With a
        ``problem`` and a text, the problem is what is missing from that text. Raises OSError for a Path that cannot
        be opened.
        """
        claimed = media_type.strip() if _MEDIA_TYPE.fullmatch(media_type.strip()) else ""
        ending = PurePath(name).suffix.lower()
        said, body = await self._read(data, "text", claimed, ending if _ENDING.fullmatch(ending) else "")
        return Extracted(body.decode("utf-8", "replace"), said.title, WHY[said.problem], said.as_is)

    async def picture_of(self, data: bytes | Path) -> ModelImage:
        """Return a picture as small as models need it: a JPEG or PNG, upright, its first frame, without notes.

        Without bytes if there is a ``problem``. Raises OSError for a Path that cannot be opened.
        """
        said, body = await self._read(data, "picture")
        if not said.problem and not (body and said.media_type):
            said = _Said(problem="damaged")
        return ModelImage(b"" if said.problem else body, said.media_type, WHY[said.problem])

    async def _read(self, data: bytes | Path, *words: str) -> tuple[_Said, bytes]:
        try:
            with anyio.fail_after(WAIT_S):
                await self._room.acquire()
        except TimeoutError:
            return _Said(problem="busy"), b""
        try:
            source = await self.offload(_open, data) if isinstance(data, Path) else PIPE
            try:
                return await self._ask(source, b"" if isinstance(data, Path) else data, words)
            finally:
                if source != PIPE:
                    os.close(source)
        finally:
            self._room.release()

    async def _ask(self, source: int, data: bytes, words: tuple[str, ...]) -> tuple[_Said, bytes]:
        with anyio.move_on_after(self.wall_s):
            try:
                ours = (words[0], str(os.getpid()), *words[1:])
                async with run_child(*PROGRAM, *ours, stdin=source) as reader:
                    answer = await _exchange(reader, data)
                    code = await reader.wait() if len(answer) <= MAX_OUTPUT else None
            except OSError as error:  # no more processes, or no memory for one
                log.warning("document.not_started: a child could not be started: %s", error)
                return _Said(problem="busy"), b""
            said, body = _understood(answer, code)
            if said.fault:
                log.warning("document.failed: a %s could not be taken apart: %s", words[0], said.fault)
            return said, body
        log.warning("document.timeout: a %s took too long to take apart", words[0])
        return _Said(problem="late"), b""


def _open(path: Path) -> int:
    """Open a regular file, following no link at its end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


async def _exchange(reader: Process, data: bytes) -> bytes:
    """Give the child *data*, if that is how it gets it, and return what it says; a byte too much at most."""
    answer = bytearray()
    assert reader.stdout
    async with anyio.create_task_group() as tasks:
        if reader.stdin:
            tasks.start_soon(_feed, reader.stdin, data)
        async for chunk in reader.stdout:
            answer += chunk[: MAX_OUTPUT + 1 - len(answer)]
            if len(answer) > MAX_OUTPUT:
                break
        tasks.cancel_scope.cancel()
    return bytes(answer)


async def _feed(stream: ByteSendStream, data: bytes) -> None:
    try:
        async with stream:
            await stream.send(data[: MAX_INPUT + 1])
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.debug("document.unread: a child did not want to read all")  # it says why, or its end does


def _understood(answer: bytes, code: int | None) -> tuple[_Said, bytes]:
    """Return what a child that ended with *code* has said; None is one that would not stop talking."""
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return _Said(problem="late", fault="its time was over"), b""
    if code == -signal.SIGKILL:
        return _Said(problem="too_large", fault="it was killed: no memory"), b""
    head, _, body = answer.partition(b"\n")
    try:
        if code == 0:
            return _Said.model_validate_json(head), body
    except ValidationError:
        return _Said(problem="damaged", fault="it made no sense"), b""
    return _Said(problem="damaged", fault=f"it ended with {code}"), b""
