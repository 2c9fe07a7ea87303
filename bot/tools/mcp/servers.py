"""All configured MCP servers: their tools come from a stored list, their connections when a tool is called.

The tools of a server are part of the prompt, which must not change during a conversation. So they are listed once and
stored in `mcp.json`; a server is started at boot only if nothing is stored for its settings. A list from a later
connection takes effect at the next start. No server can keep the bot from starting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import Field

from bot.config.settings import McpServer
from bot.tools.mcp.connection import settings_digest
from bot.tools.mcp.server import DEFAULT_TIMEOUTS, Server, Timeouts
from bot.tools.mcp.tool import McpTool, Save, make_tool
from bot.tools.mcp.tool_list import MAX_ALL, Listing, assign_names, clean, count_tools
from threads.errors import StoreUnavailable
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonState

log = logging.getLogger(__name__)

LEARN_S = 5.0
"""Seconds that a start waits for servers whose tools are not known yet."""


class StoredListings(JsonState):
    """The last list of each server."""

    servers: dict[str, Listing] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a running bot, and their tools, which stay the same until it ends."""

    tools: Sequence[McpTool]
    servers: Sequence[Server]

    def trouble(self) -> str:
        """Return a line for each server that is down, for a status."""
        counts = Counter(tool.server.name for tool in self.tools)
        return "\n".join(
            f"{server.name}: {count_tools(counts[server.name])}, down: {server.reason}"
            for server in self.servers
            if server.is_down
        )


@asynccontextmanager
async def open_servers(
    configured: Mapping[str, McpServer],
    environ: Mapping[str, str],
    data: Path,
    *,
    disk: Disk,
    offload: Offload,
    mask: Callable[[str], str],
    save: Save,
    learn_s: float = LEARN_S,
    times: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[Servers]:
    """Yield the servers; leaving ends them all. *save* saves the pictures that tools return.

    Raises `threads.errors.NewerSchema` and OSError for the stored lists.
    """
    store = _ListingStore(configured, JsonFile(disk, data / "mcp.json", offload, StoredListings()))
    await offload(store.open)
    servers = {
        name: Server(name, settings, environ, offload=offload, mask=mask, on_listed=store.save, times=times)
        for name, settings in sorted(configured.items())
    }
    async with anyio.create_task_group() as tasks:
        for server in servers.values():
            tasks.start_soon(server.run)
        await _learn([server for name, server in servers.items() if name not in store.known], learn_s)
        listings = store.offer()
        tools = [
            make_tool(servers[name], ours, tool, save)
            for ours, name, tool in assign_names(list(listings.items()))
        ]
        if (beyond := sum(len(listing.tools) for listing in listings.values()) - len(tools)) > 0:
            log.warning("mcp.too_many: %d tools left out: all of them may have %d", beyond, MAX_ALL)
        yield Servers(tools, tuple(servers.values()))
        tasks.cancel_scope.cancel()


async def _learn(unknown: Sequence[Server], within_s: float) -> None:
    """Start the servers whose tools are not known, and wait up to *within_s* seconds for their lists."""
    for server in unknown:
        server.request_connection()
    with anyio.move_on_after(within_s):
        for server in unknown:
            await server.attempted.wait()
    for server in unknown:
        if server.listing is None:
            log.warning(
                "mcp.unknown: %s: its tools are not known yet; a later start will have them", server.name
            )


class _ListingStore:
    """The lists of the configured servers, and those that are offered until the bot ends."""

    def __init__(self, configured: Mapping[str, McpServer], file: JsonFile[StoredListings]) -> None:
        self._digests = {name: settings_digest(settings) for name, settings in sorted(configured.items())}
        self._file = file
        self._offered: dict[str, Listing] | None = None
        self.known: dict[str, Listing] = {}
        """The lists that belong to the present settings, by server."""

    def open(self) -> None:
        """Read the stored lists. Blocking. Raises as `JsonFile.open` does."""
        self._file.open()
        stored = self._file.value.servers.items()
        self.known = {name: listing for name, listing in stored if listing.digest == self._digests.get(name)}

    def offer(self) -> dict[str, Listing]:
        self._offered = dict(sorted(self.known.items()))
        return self._offered

    async def save(self, name: str, listing: Listing) -> None:
        """Store the new list of a server, and log the changes."""
        if self.known.get(name) == listing:
            return
        self.known[name] = listing
        self._report(name, listing)
        try:
            await self._file.change(lambda _: StoredListings(servers=dict(self.known)))
        except StoreUnavailable as error:
            log.warning("mcp.not_kept: %s: what it lists could not be kept: %s", name, error)

    def _report(self, name: str, listing: Listing) -> None:
        if self._offered is None:
            log.info("mcp.listed: %s lists %s", name, count_tools(len(listing.tools)))
        else:
            lists = (self._offered.get(name, Listing()), listing)
            old, new = ({tool.name: tool for tool in listing.tools} for listing in lists)
            changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            log.warning(
                "mcp.changed: %s lists other tools now, which takes effect at the next start: %s",
                name,
                clean(", ".join(changed))[:500],
            )
        if listing.left_out:
            log.warning("mcp.left_out: %s: %s", name, "; ".join(listing.left_out)[:1000])
