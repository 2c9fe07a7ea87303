"""The threads and logs that the page shows, over the store of the settings."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from time import monotonic
from typing import IO

import anyio.to_thread
from cachetools import LRUCache

from bot.config.load import secrets_of
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.host.store_reader import open_reader
from bot.page.export import write_thread
from bot.reports.line_reader import Damage, records
from bot.reports.thread import entries, in_json, tool_calls, tools_used
from bot.reports.transcript import Transcript
from bot.store.reader import Reader, Thread
from bot.tools.labels import tool_finished, tool_started
from threads.log import LogEntry, entry_adapter
from threads.model import ThreadId, ToolFinished, ToolStarted
from transports.shared.first_message import FIRST_ENTRIES, first_message
from transports.web.events import Past, is_press
from transports.web.feed import TITLE, Event
from transports.web.talk import Choose, NoSuchThread

MOST_TITLES = 5_000

SEARCH_S, MOST_HITS = 2.0, 50
"""How long a search may take, and how many threads it finds. It says how many it did not look into."""

AT_ONCE = 8
"""Lines that are searched together: most threads are done with one look."""

MOST_SEARCHES = 2
"""Searches that run at once."""

BEFORE, AROUND = 40, 140
"""Characters of a text before a word that was found, and in all."""


class ThreadHistory:
    """A `transports.web.talk.PastThreads`."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ = settings, environ
        self._mask = Masker(secrets_of(settings, environ))
        self._titles: LRUCache[str, str] = LRUCache(MOST_TITLES)
        self._reading = threading.Lock()
        self._searching = anyio.CapacityLimiter(MOST_SEARCHES)

    async def threads(self, person: str, choose: Choose) -> Sequence[tuple[str, str, float]]:
        return await anyio.to_thread.run_sync(self._threads, person, choose)

    async def past(self, thread: ThreadId, most: int, before: int | None = None) -> Past:
        return await anyio.to_thread.run_sync(self._past, str(thread), most, before)

    async def search(
        self, person: str, words: Sequence[str], titles: Mapping[str, str], hidden: Container[str]
    ) -> tuple[list[Event], int]:
        return await anyio.to_thread.run_sync(
            self._search, person, words, titles, hidden, limiter=self._searching
        )

    async def export(self, thread: ThreadId, title: str, form: str) -> tuple[str, IO[str]]:
        return await anyio.to_thread.run_sync(self._export, str(thread), title, form)

    def forget(self, thread: str) -> None:
        with self._reading:
            self._titles.pop(thread, None)

    def _threads(self, person: str, choose: Choose) -> list[tuple[str, str, float]]:
        with closing(open_reader(self._settings, self._environ)) as reader:
            found = self._of(reader, person)
            chosen = choose([(root, thread.changed_at) for root, thread in found.items()])
            titles = self._first_words(reader, [found[root] for root, _ in chosen])
            return [(root, title, at) for (root, at), title in zip(chosen, titles, strict=True)]

    def _of(self, reader: Reader, person: str) -> dict[str, Thread]:
        """Return the threads of a person by their roots, newest first."""
        place = f"web::{person}"
        return {one.name.removeprefix(f"{place}:"): one for one in reader.threads(place)}

    def _first_words(self, reader: Reader, threads: Sequence[Thread]) -> list[str]:
        """Return the first words of each thread."""
        with self._reading:
            unknown = [one for one in threads if one.name not in self._titles]
            with closing(reader.saying(unknown, (), FIRST_ENTRIES)) as said:
                for thread, lines in zip(unknown, said, strict=False):
                    if first := first_message(records(lines, entry_adapter(), Damage())):
                        self._titles[thread.name] = " ".join(first.text.split())[:TITLE]
            return [self._titles.get(one.name, "") for one in threads]

    def _search(
        self, person: str, words: Sequence[str], titles: Mapping[str, str], hidden: Container[str]
    ) -> tuple[list[Event], int]:
        until, hits = monotonic() + SEARCH_S, dict[str, Event]()
        with closing(open_reader(self._settings, self._environ)) as reader:
            found = {root: one for root, one in self._of(reader, person).items() if root not in hidden}
            left = len(found)
            with closing(reader.saying([*found.values()], words, AT_ONCE)) as said:
                for (root, thread), lines in zip(found.items(), said, strict=False):
                    if monotonic() > until or len(hits) == MOST_HITS:
                        break
                    title, hit, left = titles.get(root, ""), _hit(lines, words, until), left - 1
                    if hit or all(word in title.lower() for word in words):
                        hits[root] = {"title": title, "at": thread.changed_at, **(hit or {})}
            untitled = [root for root, hit in hits.items() if not hit["title"]]
            first = self._first_words(reader, [found[root] for root in untitled])
            for root, title in zip(untitled, first, strict=True):
                hits[root]["title"] = title
        return [{"thread": root, **hit} for root, hit in hits.items()], left

    def _export(self, name: str, title: str, form: str) -> tuple[str, IO[str]]:
        with closing(open_reader(self._settings, self._environ)) as reader:
            thread = next((one for one in reader.find(name) if one.name == name), None)
            if thread is None:
                raise NoSuchThread
            out = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - whoever reads it closes it
            shown = entries(reader, thread, Damage()), tools_used(reader, thread), reader.files(thread)
            title = title or self._first_words(reader, [thread])[0] or "A thread"
            write_thread(out, Transcript(title, *shown, self._mask), form)
            out.seek(0)
            return title, out

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


def _hit(log: Iterable[bytes], words: Sequence[str], until: float) -> Event | None:
    """Return the first line that was said with all of the words, until a time on the clock."""
    pieces, log = [in_json(word).decode().lower() for word in words], iter(log)
    while (lines := [*islice(log, AT_ONCE)]) and monotonic() <= until:
        for line in lines if _says(b"\n".join(lines), pieces) else ():
            for entry in records([line], entry_adapter(), Damage()) if _says(line, pieces) else ():
                said = " ".join(entry.text.split())
                lower, is_said = said.lower(), entry.kind in {"message", "reply"}
                if is_said and all(word in lower for word in words) and not is_press(said):
                    start = max(0, min(map(lower.find, words)) - BEFORE)
                    return {"message": entry.message_id, "text": said[start : start + AROUND]}
    return None


def _says(lines: bytes, pieces: Sequence[str]) -> bool:
    text = lines.decode("utf-8", "replace").lower()
    return all(piece in text for piece in pieces)
