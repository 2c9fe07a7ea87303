"""One question from the command line: its answer goes to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass

import anyio

from threads.errors import StoreUnavailable
from threads.model import (
    Attachment,
    Outgoing,
    OutgoingKind,
    Sink,
    StagesChanged,
    ThreadId,
    TurnEvent,
    TurnSettled,
)
from transports.console import parse
from transports.console.streams import Streams

EX_FAILED, EX_MISMATCH = 1, 4
"""The exit codes of a message without an answer, and of an answer that does not follow its schema."""


@dataclass(frozen=True, slots=True)
class OneQuestion:
    """What is asked in which thread, with which files.

    An answer ``as_json`` is printed without notes above it. With ``yes`` each question of the bot gets a yes, and the
    stages of a playbook are noted.
    """

    text: str
    thread: str
    files: tuple[Attachment, ...] = ()
    as_json: bool = False
    yes: bool = False


class Ask:
    """Serves one question, whose id is ``message_id``. ``exit_code`` is 0 if it was answered."""

    def __init__(self, sender: parse.Sender, streams: Streams, question: OneQuestion) -> None:
        self.exit_code = EX_FAILED
        self._streams, self._question = streams, question
        self._incoming = sender.message(question.text, question.thread, question.files)
        self._send, self._events = anyio.create_memory_object_stream[TurnSettled | StagesChanged](math.inf)
        self._sender = sender
        self._sink: Sink
        is_command = question.text.startswith(("/", "!"))
        self._answers: tuple[OutgoingKind, ...] = ("notice", "reply") if is_command else ("reply",)
        """What the answer to a command can be, and to anything else."""

    async def serve(self, sink: Sink) -> None:
        """Return when the question is settled."""
        self._sink = sink
        with self._send, self._events:
            try:
                await sink(self._incoming)
            except StoreUnavailable:
                await self._streams.note("This was not asked: it could not be saved to disk.")
                return
            while isinstance(event := await self._events.receive(), StagesChanged):
                if self._question.yes:
                    await self._streams.note(event.text)

    async def post(self, outgoing: Outgoing) -> None:
        """Write a post. Raises `TransportRejected` when standard output takes no more."""
        if outgoing.reply_to != self._incoming.id:  # what a process left that was killed
            await self._streams.note(f"[{outgoing.thread.root}] {outgoing.text}")
        elif outgoing.choices and self._question.yes:
            choice = outgoing.choices[0]
            await self._streams.note(f"{outgoing.text}\n→ {choice.label}")
            await self._sink(self._sender.message(choice.command, self._question.thread))
        elif outgoing.kind not in self._answers:
            await self._streams.note(outgoing.text)
        else:
            notes, answer = _json_below(outgoing.text) if self._question.as_json else ("", outgoing.text)
            if notes:
                await self._streams.note(notes)
            await self._streams.print(answer)

    def show(self, _: ThreadId, message_id: str, event: TurnEvent) -> None:
        if message_id != self._incoming.id or not isinstance(event, TurnSettled | StagesChanged):
            return
        if isinstance(event, TurnSettled):
            if event.outcome == "answered":
                self.exit_code = 0
            elif event.code == "schema_mismatch":
                self.exit_code = EX_MISMATCH
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # settled already
            self._send.send_nowait(event)


def _json_below(text: str) -> tuple[str, str]:
    """Return the notes above an answer that is JSON, and the answer."""
    for start in (0, *(found.end() for found in re.finditer("\n\n", text))):
        with suppress(ValueError):
            json.loads(text[start:])
            return text[:start].rstrip(), text[start:]
    return "", text
