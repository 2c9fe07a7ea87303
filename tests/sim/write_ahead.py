"""What must be on the platter before anybody sees an effect of a turn.

A word, a tool or a question: that the turn has started. The post: the intent, and the conversation with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.judge.records import NOT_SAVED, Fields, key_of, read_lines
from threads.model import Outgoing, ThreadId
from threads.store.data_folder import thread_folder

from .disk import SimDisk
from .record import Record


class WriteAhead:
    """Looks at the disk whenever there is an effect, and enters into the record what is not durable by then."""

    def __init__(self, disk: SimDisk, data: Path, record: Record) -> None:
        self._disk, self._data, self._record = disk, data, record

    def before_effect(self, key: str, effect: str) -> None:
        if not any(line["kind"] == "started" for line in self._journal(key)):
            self._record.violations.append(f"{key}: {effect} before its start is durable")

    def before_post(self, outgoing: Outgoing) -> None:
        if outgoing.key.endswith("+left"):
            return  # of the scheduler: it belongs to no turn
        key, question, _ = outgoing.key.partition("?")
        if question:
            self.before_effect(key, "a question")
            return
        intents = [line for line in self._journal(key) if line["kind"] == "intent"]
        intent = intents[-1] if intents else None  # an answer that became too old has a note after it
        if intent is None:
            self._record.violations.append(f"{key}: a post before its intent is durable")
        elif intent["outcome"] == "answered" and NOT_SAVED not in outgoing.text:
            self._answer(outgoing.thread, key, intent["message_id"])

    def _answer(self, thread: ThreadId, key: str, message_id: str) -> None:
        if self._record.sent[key].command:
            return
        folder = thread_folder(self._data, thread)
        files = [self._disk.durable(folder / name) for name in ("context.jsonl", "context.old.jsonl")]
        messages = [line["message"] for data in files for line in read_lines(data) if line]
        if not any(m["role"] == "assistant" and m.get("source") == message_id for m in messages):
            self._record.violations.append(f"{key}: a post before its answer is durable")

    def _journal(self, key: str) -> Iterator[Fields]:
        for line in read_lines(self._disk.durable(self._data / "journal.jsonl")):
            if line and key_of(line["thread_id"], line["message_id"]) == key:
                yield line
