"""A bot in one file that keeps the promises of the core on the way from a message to its answer, and has no more.

It does to the disk what the bare loop does, through the same writers. What it writes can be read back: JSON lines
with a checksum. A message that comes again later is not taken again. Each thread has a task, which answers one
message at a time and has a limit for the turn, for the post and for its own idleness. A failure ends the turn with a
text.

It has no commands, tools, attachments, budgets, retries, recovery, events or logs of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from benchmarks.bare_loop import Writer, append_journal, append_logs, replace_files
from threads.model import Incoming

TURN_S, POST_S, IDLE_S = 900, 120, 3600

Ask = Callable[[list[Mapping[str, str]]], Awaitable[str]]
"""Returns the answer to a conversation."""

Post = Callable[[str, str, str], Awaitable[str]]
"""Posts a text to a thread, in answer to a message, and returns the platform's id."""


class PlainBot:
    """The bot over one folder, for the event loop that it is made in; `close` it in the end."""

    def __init__(self, folder: str, ask: Ask, post: Post) -> None:
        os.mkdir(folder)  # noqa: PTH102 - as the bare loop
        self._folder, self._ask, self._post = folder, ask, post
        self._fd = os.open(f"{folder}/journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._journal, self._logs = Writer(partial(append_journal, self._fd)), Writer(append_logs)
        self._checkpoints = Writer(replace_files)
        self._known, self._seq = set[str](), 0
        self._settled = asyncio.get_running_loop().create_future()
        self._mailboxes: dict[str, asyncio.Queue[Incoming]] = {}
        self._actors: dict[str, asyncio.Task[None]] = {}

    async def receive(self, incoming: Incoming) -> None:
        """Take a message. It is durable when this returns."""
        thread, key = str(incoming.thread), f"{incoming.thread}/{incoming.id}"
        if key in self._known:
            return
        author = asdict(incoming.author)
        received = {"author": author, "text": incoming.text, "sent_at": incoming.sent_at}
        await self._journal.put("", self._record(incoming, "received", **received))
        self._known.add(key)
        if thread not in self._actors:
            self._mailboxes[thread] = asyncio.Queue(50)
            self._actors[thread] = asyncio.create_task(self._serve(thread))
        self._mailboxes[thread].put_nowait(incoming)

    async def settle(self, incoming: Incoming) -> None:
        """Return when all messages of its thread are answered and settled."""
        await self._mailboxes[str(incoming.thread)].join()
        await self._settled

    async def _serve(self, thread: str) -> None:
        messages: list[Mapping[str, str]] = []
        lines = bytearray()
        while True:
            async with asyncio.timeout(IDLE_S):
                incoming = await self._mailboxes[thread].get()
            try:
                async with asyncio.timeout(TURN_S):
                    await self._answer(incoming, messages, lines)
            except (OSError, TimeoutError) as error:
                await self._post(thread, incoming.id, f"Sorry, something failed: {type(error).__name__}")
            self._mailboxes[thread].task_done()

    async def _answer(self, incoming: Incoming, messages: list[Mapping[str, str]], lines: bytearray) -> None:
        thread, place = str(incoming.thread), f"{self._folder}/{incoming.thread.channel}"
        self._journal.put("", self._record(incoming, "started", attempt=1))
        asked = {"role": "user", "text": incoming.text, "source": incoming.id, "at": _now()}
        messages.append(asked)
        text = await self._ask(messages)
        answer = {"role": "assistant", "text": text, "source": incoming.id, "at": _now()}
        messages.append(answer)
        intent = self._journal.put("", self._record(incoming, "intent", text=text, outcome="answered"))
        lines += _line(asked) + _line(answer)
        await self._checkpoints.put(place, lines)
        await intent
        async with asyncio.timeout(POST_S):
            platform_id = await self._post(thread, incoming.id, text)
        posted = self._record(incoming, "posted", platform_id=platform_id)
        self._settled = self._journal.put("", posted + self._record(incoming, "settled", outcome="answered"))
        self._logs.put(place, _line(asked) + _line(answer))

    def _record(self, incoming: Incoming, kind: str, **fields: object) -> bytes:
        self._seq += 1
        ids = {"thread_id": str(incoming.thread), "message_id": incoming.id}
        return _line({"v": 1, "seq": self._seq, "at": _now(), "kind": kind, **ids, **fields})

    async def close(self) -> None:
        """Return when all is written."""
        for actor in self._actors.values():
            actor.cancel()
        await asyncio.gather(*self._actors.values(), return_exceptions=True)
        for writer in (self._journal, self._checkpoints, self._logs):
            writer.end()
        os.close(self._fd)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _line(fields: Mapping[str, object]) -> bytes:
    body = json.dumps(fields, ensure_ascii=False)[:-1].encode()
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))
