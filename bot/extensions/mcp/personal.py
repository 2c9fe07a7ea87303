"""The connections to a server at which each person has an account: one for each person who uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from bot.extensions.mcp.server import Server
from bot.ports.errors import ToolBusy

MAX_CONNECTIONS = 200
"""Connections to one server. The one that was unused for longest makes room."""


class PersonalServers:
    """*connect* returns the connection of a person, which is run in *tasks*."""

    def __init__(self, name: str, connect: Callable[[str], Server], tasks: TaskGroup) -> None:
        self.name = name
        self._connect, self._tasks = connect, tasks
        self._servers: dict[str, tuple[Server, anyio.CancelScope]] = {}

    def of(self, person: str) -> Server:
        """Return the connection of a person. Raises `ToolBusy` if too many are in use."""
        known = self._servers.pop(person) if person in self._servers else self._start(person)
        self._servers[person] = known  # the last one used is the last
        return known[0]

    def connections(self) -> Sequence[Server]:
        return [server for server, _ in self._servers.values()]

    def end(self, person: str) -> None:
        """End the connection of a person, if there is one."""
        if person in self._servers:
            self._servers.pop(person)[1].cancel()

    def _start(self, person: str) -> tuple[Server, anyio.CancelScope]:
        if len(self._servers) >= MAX_CONNECTIONS:
            idle = next(
                (who for who, (server, _) in self._servers.items() if server.state == "stopped"), None
            )
            if idle is None:
                raise ToolBusy(
                    f"Too many people use the MCP server {self.name} now.", suggestion="Try again later."
                )
            self.end(idle)
        server, scope = self._connect(person), anyio.CancelScope()

        async def run() -> None:
            with scope:
                await server.run()

        self._tasks.start_soon(run)
        return server, scope
