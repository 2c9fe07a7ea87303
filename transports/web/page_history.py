"""The threads and logs that the page shows, over the store of the settings."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from operator import attrgetter

import anyio.to_thread
from cachetools import LRUCache

from bot.config.load import secrets_of
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.host.store_reader import open_reader
from bot.reports.line_reader import Damage
from bot.reports.thread import entries, tool_calls
from bot.store.reader import Reader, Thread
from bot.tools.labels import tool_finished, tool_started
from threads.log import LogEntry
from threads.model import ThreadId, ToolFinished, ToolStarted
from transports.shared.buttons import is_control
from transports.web.events import Past

TITLE = 80
"""Characters of a thread's first message that its list shows."""

FIRST_ENTRIES = 60
"""Entries at the beginning of a log that are searched for a title."""

MOST_TITLES = 5_000


class ThreadHistory:
    """A `transports.web.talk.PastThreads`."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ = settings, environ
        self._mask = Masker(secrets_of(settings, environ))
        self._titles: LRUCache[str, str] = LRUCache(MOST_TITLES)
        self._reading = threading.Lock()

    async def threads(self, person: str, most: int) -> Sequence[tuple[str, str, float]]:
        return await anyio.to_thread.run_sync(self._threads, person, most)

    async def past(self, thread: ThreadId, most: int, before: int | None = None) -> Past:
        return await anyio.to_thread.run_sync(self._past, str(thread), most, before)

    def _threads(self, person: str, most: int) -> list[tuple[str, str, float]]:
        start = f"web::{person}:"
        with self._reading, closing(open_reader(self._settings, self._environ)) as reader:
            found = [thread for thread in reader.threads("web") if thread.name.startswith(start)][:most]

            def title(thread: Thread) -> str:
                if thread.name not in self._titles:
                    begin = islice(entries(reader, thread, Damage()), FIRST_ENTRIES)
                    said = [one for one in begin if one.kind == "message" and not is_control(one.text)]
                    if not said:
                        return ""
                    first = min(said, key=attrgetter("at"))  # a log has messages by when they ended
                    self._titles[thread.name] = " ".join(first.text.split())[:TITLE]
                return self._titles[thread.name]

            return [(one.name.removeprefix(start), title(one), one.changed_at) for one in found]

    def _past(self, name: str, most: int, before: int | None) -> Past:
        with self._reading, closing(open_reader(self._settings, self._environ)) as reader:
            thread = next((one for one in reader.find(name) if one.name == name), None)
            if thread is None:
                return Past()
            count = reader.count(thread)
            end = count if before is None else min(before, count)
            first = max(0, end - most)
            messages = list[list[LogEntry]]()
            for entry in entries(reader, thread, Damage(), last=count - first):
                if entry.kind == "message" or not messages:
                    messages.append([])
                messages[-1].append(entry)
            shown = messages[max(0, len(messages) - (count - first)) :][: end - first]
            return Past(shown, self._tools(reader, thread, shown), first)

    def _tools(
        self, reader: Reader, thread: Thread, messages: Sequence[Sequence[LogEntry]]
    ) -> dict[str, list[ToolStarted | ToolFinished]]:
        """Return the events of the tools by the message whose turn used them."""
        joined = {end.message_id: end.by for *_, end in messages if end.outcome == "merged"}
        found: dict[str, list[ToolStarted | ToolFinished]] = {}
        for source, made in tool_calls(reader, thread).items():
            about = source.partition(".")[0]  # a stage of a playbook has its name after the message's id
            events = found.setdefault(joined.get(about) or about, [])
            for one in made:
                events.append(tool_started(one.call, self._mask))
                if one.result:
                    events.append(tool_finished(one.call, one.result, self._mask))
        return found
