"""The tool `search_threads`. It finds what the asker could read themselves, and nothing else.

| searched                       | what of it                                                                       |
|--------------------------------|----------------------------------------------------------------------------------|
| the bot's threads              | the others of this channel or direct message, as they are kept now               |
| where threads may be private   | of those, only such as began with a message of the channel, or have the asker's  |
| the platform's own search      | with the rights of who asks, where the platform has one and lets the bot use it  |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.config.settings import Settings
from bot.host.store_reader import open_reader
from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from bot.reports.line_reader import Damage
from bot.reports.thread import entries, in_json
from bot.store.reader import Reader, Thread
from threads.errors import PostFailed
from threads.log import STAYED, LogEntry
from threads.model import ThreadId, with_quoted
from threads.store.disk import Offload
from transports.base.transport import SearchableTransport, Transport

SEARCH_S, MOST_THREADS, MOST_LINES = 5.0, 20, 30
"""How long the threads are searched, and how many of them and of their lines are found."""

MOST_WORDS, AT_ONCE = 10, 8
BEFORE, AROUND = 100, 400
"""Characters of a line before a word that was found, and in all."""


class SearchArguments(Arguments):
    words: str = Field(min_length=1, max_length=200, description="Words that all stand in what was said")


@dataclass(frozen=True)
class SearchThreads:
    settings: Settings
    environ: Mapping[str, str]
    work: Offload
    transports: Sequence[Transport]
    name: ClassVar[str] = "search_threads"
    description: ClassVar[str] = (
        "Find what was said in other threads of this channel, and on platforms that allow it elsewhere, by plain "
        "words. Each line has its link: give it when you use one."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = SearchArguments

    async def __call__(self, arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        edge = next((one for one in self.transports if one.name == context.thread.transport), None)
        try:
            found, left = await self.work(self._search, arguments.words.lower().split(), context, edge)
        except OSError as error:
            raise ToolError("The threads cannot be read now.", suggestion="Say so.") from error
        result: dict[str, JsonValue] = {"found": [*found], "threads_left_out": left}
        if edge and isinstance(edge, SearchableTransport):
            try:
                found = await edge.search_platform(context.thread, context.message_id, arguments.words)
                result["found_by_the_platform"] = [*found]
            except PostFailed as error:
                result["not_searched_by_the_platform"] = getattr(error, "friendly", "") or str(error)
        return ToolOutput(result, origin="other conversations")

    def _search(
        self, words: Sequence[str], context: ToolContext, edge: Transport | None
    ) -> tuple[Sequence[str], int]:
        """Return the lines with all of the words, each below its link, and how many threads were not looked into."""
        until, place, words = monotonic() + SEARCH_S, context.thread, words[:MOST_WORDS]
        lines = list[str]()
        with closing(open_reader(self.settings, self.environ)) as reader:
            others = [*reader.threads(f"{place.transport}:{place.workspace}:{place.channel}")]
            others = [one for one in others if one.name != str(place)]
            holding, left = _holding(reader, others, words, until)
            for thread in holding:
                log, id_ = [*entries(reader, thread, Damage())], ThreadId.parse(thread.name)
                hidden = edge and edge.capabilities.hides_threads
                if hidden and not _open_to(context.asker.id, id_.root, log):
                    continue
                link = edge.link(id_) if edge else ""
                lines += (f"{link or thread.name}\n{said}" for said in _said(log, words))
        return lines[:MOST_LINES], left


def _holding(
    reader: Reader, threads: Sequence[Thread], words: Sequence[str], until: float
) -> tuple[list[Thread], int]:
    """Return the threads that may say all of the words, newest first, and how many were not looked into."""
    pieces, found = [in_json(word).decode().lower() for word in words], list[Thread]()
    left = len(threads)
    with closing(reader.saying(threads, words, AT_ONCE)) as said:
        for thread, log in zip(threads, said, strict=False):
            if monotonic() > until or len(found) == MOST_THREADS:
                break
            left -= 1
            texts = (line.decode("utf-8", "replace").lower() for line in log)
            if any(all(piece in text for piece in pieces) for text in texts):
                found.append(thread)
    return found, left


def _open_to(asker: str, root: str, log: Sequence[LogEntry]) -> bool:
    """Return whether a person surely sees a thread: it began with a message of its channel, or they spoke in it."""
    return any(entry.message_id == root or entry.author == asker for entry in log if entry.kind == "message")


def _said(log: Sequence[LogEntry], words: Sequence[str]) -> Iterator[str]:
    """Yield what was said with all of the words, when and by whom; what people took back is not said."""
    gone = {entry.message_id for entry in log if entry.outcome in STAYED}
    for entry in log:
        text = " ".join(with_quoted(entry.text, entry.quoted).split())
        lower = text.lower()
        told = entry.kind in ("message", "reply") and entry.message_id not in gone
        if told and all(word in lower for word in words):
            start = max(0, min(map(lower.find, words)) - BEFORE)
            yield f"{entry.at[:16]} {entry.author or 'you'}: {text[start : start + AROUND]}"
