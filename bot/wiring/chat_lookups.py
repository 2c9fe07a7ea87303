"""What a chat in the terminal looks up: earlier chats in the store, and the models that a thread may choose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TypeVar

from bot.config.load import secrets_of
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.host.store_reader import open_reader
from bot.llm.catalog import Catalog
from bot.reports.line_reader import Damage
from bot.reports.safe_text import line
from bot.reports.thread import entries, waiting
from bot.routing.commands import parse
from bot.store.reader import Reader, Thread
from threads.errors import NewerSchema
from threads.model import ThreadId
from transports.console import Exchange, Lookups
from transports.shared.first_message import first_message

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_SEARCHED = 50
"""Messages at a thread's end among which the last answer is looked for: the others are commands."""

MOST_LISTED = 50
"""Threads, the newest."""

TITLE = 60
"""Characters of a thread's first words."""


def lookups(settings: Settings, environ: Mapping[str, str], models: Sequence[str]) -> Lookups:
    """Return what a terminal looks up with these settings; a thread may choose one of *models*."""
    past = PastChats(partial(open_reader, settings, environ), Masker(secrets_of(settings, environ)))
    return Lookups(past.asked, past.last, past.threads, partial(described, settings, models))


@dataclass(frozen=True, slots=True)
class PastChats:
    """Earlier chats, as the store has them. What cannot be read is left out. All methods block."""

    open: Callable[[], Reader]
    mask: Callable[[str], str]
    titles: dict[str, str] = field(default_factory=dict)

    def asked(self, thread: ThreadId, message_id: str) -> str:
        return self._read(partial(self._asked, str(thread), message_id), "")

    def last(self, thread: ThreadId) -> Exchange | None:
        return self._read(partial(self._last, str(thread)), None)

    def threads(self) -> Mapping[str, str]:
        return self._read(self._threads, {})

    def _read(self, look: Callable[[Reader], T], otherwise: T) -> T:
        try:
            with closing(self.open()) as reader:
                return look(reader)
        except (OSError, NewerSchema) as error:
            log.warning("chat.past_unread: earlier chats cannot be read: %s", error)
            return otherwise

    def _asked(self, thread: str, message_id: str, reader: Reader) -> str:
        texts = (one.text for one in waiting(reader, thread) if one.message_id == message_id)
        return self.mask(next(texts, ""))

    def _last(self, thread: str, reader: Reader) -> Exchange | None:
        asked, found = "", None
        logs = (entries(reader, one, Damage(), MOST_SEARCHED) for one in reader.find(thread))
        for entry in chain.from_iterable(logs):
            match entry.kind:
                case "message":
                    command = parse(entry.text)
                    asked = entry.text or ", ".join(name for name, _ in entry.files)
                    if command and command.name == "new":
                        found = None  # the model knows nothing of it any more
                case "reply" | "error":
                    at = _local(datetime.fromisoformat(entry.at))
                    found = Exchange(at, self.mask(asked), self.mask(entry.text))
                case _:
                    pass
        return found

    def _threads(self, reader: Reader) -> Mapping[str, str]:
        found = dict[str, str]()
        for thread in reader.threads("console")[:MOST_LISTED]:
            at = _local(datetime.fromtimestamp(thread.changed_at, UTC))
            found[ThreadId.parse(thread.name).root] = f"{at}  {self._title(reader, thread)}"
        return found

    def _title(self, reader: Reader, thread: Thread) -> str:
        """Return the first words of a thread: a terminal gives it no other title than its name."""
        if thread.name not in self.titles and (first := first_message(entries(reader, thread, Damage()))):
            self.titles[thread.name] = line(self.mask(first.text), TITLE)
        return self.titles.get(thread.name, "")


def _local(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


def described(settings: Settings, models: Sequence[str]) -> Mapping[str, str]:
    """Return the models, each with its window and its prices in USD per million tokens, as far as they are known."""
    catalog = Catalog.of(settings)
    return {"default": "the usual one", **{name: _described(catalog, name) for name in models}}


def _described(catalog: Catalog, name: str) -> str:
    window, prices = catalog.info(name).context_window, catalog.prices(name)
    words = [f"{window // 1_000}k tokens"] if window else []
    if prices:
        words.append("${:g} / ${:g} a million".format(*prices) if any(prices) else "free")
    return ", ".join(words)
