"""Memory over PostgreSQL: each `MEMORY.md` is a row that all workers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic_core import from_json, to_json

from threads.delivery import retry_until_stored

from .session import DatabaseSession, Pool, Together, as_unavailable
from .states import REPLACE

TRIES = 20
"""Tries of a change while other workers change the same text."""

READ = "SELECT name, rev, body::text FROM slot WHERE name = ANY (%s)"

T = TypeVar("T")


class PostgresMemory:
    """A `bot.agent.prompt.memory.MemoryStore`."""

    def __init__(self, pool: Pool) -> None:
        self._session, self._reads = DatabaseSession(pool), Together(self._read_all)

    async def read(self, paths: Sequence[Path]) -> list[str | None]:
        """Return the texts. Waits for the server, because a turn needs it anyway."""

        async def try_read() -> list[str | None]:
            with as_unavailable("memory: "):
                return [text for _, text in await self._read(paths)]

        return await retry_until_stored(try_read)

    async def change(self, path: Path, function: Callable[[str], tuple[str | None, T]]) -> T:
        for _ in range(TRIES):
            [(rev, before)] = await self._read([path])
            text, result = function(before)
            if text is None or await self._session.rows(REPLACE, (str(path), rev, encode_text(text))):
                return result
        raise OSError("too many workers change it at once")

    async def _read(self, paths: Sequence[Path]) -> list[tuple[int, str]]:
        return await self._reads.ask([str(path) for path in paths])

    async def _read_all(self, asked: list[list[str]]) -> list[list[tuple[int, str]]]:
        rows = await self._session.rows(READ, (list({name for names in asked for name in names}),))
        found = {name: (rev, decode_text(body)) for name, rev, body in rows}
        return [[found.get(name, (0, "")) for name in names] for names in asked]


def encode_text(text: str) -> str:
    """Return the JSON of a text for its row."""
    return to_json({"text": text}).decode()


def decode_text(body: str) -> str:
    return str(from_json(body)["text"])
