"""Small values in PostgreSQL: one row each, replaced by whoever has seen its last revision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import anyio

from threads.errors import StoreUnavailable
from threads.store.json_file import F, State, read_state

from .session import DatabaseSession, Pool

TRIES = 20
"""Tries of a change while others change the value, or the server is away."""

PAUSE_S = 0.5

NEWER = (
    "SELECT s.name, s.rev, s.body::text FROM unnest(%s::text[], %s::bigint[]) k (name, rev) "
    "JOIN slot s ON s.name = k.name AND s.rev > k.rev"
)
REPLACE = "SELECT * FROM replace_slot(%s, %s, %s)"


class PostgresState(Generic[F]):
    """A `threads.store.json_file.State`. *changed* notifies the other workers."""

    def __init__(
        self,
        name: str,
        empty: F,
        session: DatabaseSession,
        refresh: Callable[[], Any],
        changed: Callable[[], Any],
    ) -> None:
        self.name, self.value, self.rev, self.body = name, empty, 0, ""
        self.on_change: Callable[[], None] = lambda: None
        self._session, self._refresh, self._changed = session, refresh, changed
        self._changing = anyio.Lock()

    async def change(self, function: Callable[[F], F]) -> None:
        sent = ""
        async with self._changing:
            for left in reversed(range(TRIES)):
                try:
                    await self._refresh()
                    if sent and self.body == sent:  # the server was lost after it had stored the change
                        return
                    if (value := function(self.value)) is self.value:
                        return
                    sent = value.model_dump_json()
                    if rows := await self._session.rows(REPLACE, (self.name, self.rev, sent)):
                        self.take(rows[0][0], sent)
                        await self._changed()
                        return
                except OSError as error:
                    if not left:
                        raise StoreUnavailable(f"{self.name}: {error}") from error
                    await anyio.sleep(PAUSE_S)
        raise StoreUnavailable(f"{self.name}: too many workers change it at once")

    def take(self, rev: int, body: str) -> None:
        """Read the stored value. Raises `NewerSchema` if a newer version wrote it."""
        value = read_state(body.encode(), self.value, self.name)
        self.rev, self.body, self.value = rev, body, value or type(self.value)()
        self.on_change()


class PostgresStates:
    """The `threads.store.json_file.States` of all workers. *changed* notifies the others, which `refresh`."""

    def __init__(self, pool: Pool, changed: Callable[[], Any]) -> None:
        self._session, self._changed = DatabaseSession(pool), changed
        self._states: dict[str, PostgresState[Any]] = {}

    async def open(self, name: str, empty: F) -> State[F]:
        state = PostgresState(name, empty, self._session, self.refresh, self._changed)
        self._states[name] = state
        await self.refresh()
        return state

    async def refresh(self) -> None:
        """Read the values that other workers have changed. Raises OSError and `NewerSchema`."""
        if states := list(self._states.values()):
            values = ([state.name for state in states], [state.rev for state in states])
            for name, rev, body in await self._session.rows(NEWER, values):
                if rev > self._states[name].rev:
                    self._states[name].take(rev, body)
