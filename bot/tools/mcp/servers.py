"""All configured MCP servers: their tools come from a stored list, their connections when a tool is called.

The tools of a server are part of the prompt, which must not change during a conversation. So they are listed once and
stored in `mcp.json`; a server is started at boot only if nothing is stored for its settings. A list from a later
connection takes effect at the next start. No server can keep the bot from starting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from pydantic import Field

from bot.config.settings import McpServer, Settings
from bot.guards.redaction import mask
from bot.tools.mcp.connection import settings_digest
from bot.tools.mcp.credentials import BOT, CredentialStore
from bot.tools.mcp.personal import PersonalServers
from bot.tools.mcp.server import DEFAULT_TIMEOUTS, Server, Timeouts
from bot.tools.mcp.sign_in import OFFER_S, Account, SignIns
from bot.tools.mcp.tool import Connections, McpTool, Save, make_tool
from bot.tools.mcp.tool_list import MAX_ALL, Listing, assign_names, clean, count_tools
from threads.errors import StoreUnavailable
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonFiles, JsonState, States

log = logging.getLogger(__name__)

LEARN_S = 5.0
"""Seconds that a start waits for servers whose tools are not known yet."""


class StoredListings(JsonState):
    """The last list of each server."""

    servers: dict[str, Listing] = Field(default_factory=dict)


def _offer_nothing(_: Sequence[McpTool]) -> None:
    pass


@dataclass(slots=True)
class Servers:
    """The servers of a running bot, by name, and their tools, which stay the same until it ends.

    Except for a server that nobody had signed in at: ``on_tools`` gets its tools once somebody has.
    """

    tools: Sequence[McpTool]
    by_name: Mapping[str, Connections]
    sign_ins: SignIns
    on_tools: Callable[[Sequence[McpTool]], None] = _offer_nothing

    @property
    def servers(self) -> Sequence[Server]:
        return [server for one in self.by_name.values() for server in one.connections()]

    def trouble(self) -> str:
        """Return a line for each server that is down, for a status."""
        counts = Counter(tool.server.name for tool in self.tools)
        down = {server.name: server.reason for server in self.servers if server.is_down}
        return "\n".join(
            f"{name}: {count_tools(counts[name])}, down: {reason}" for name, reason in down.items()
        )

    def end(self, name: str, person: str) -> None:
        """End a person's own connection to a server."""
        if isinstance(own := self.by_name[name], PersonalServers):
            own.end(person)

    async def add(self, tools: Sequence[McpTool]) -> None:
        self.tools = [*self.tools, *tools]
        self.on_tools(tools)


@dataclass(frozen=True)
class _Maker:
    """Makes accounts and connections."""

    configured: Mapping[str, McpServer]
    environ: Mapping[str, str]
    credentials: CredentialStore
    offload: Offload
    mask: Callable[[str], str]
    on_listed: Callable[[str, Listing], Awaitable[None]]
    private_hosts: Sequence[str]
    times: Timeouts = DEFAULT_TIMEOUTS

    def account(self, name: str, person: str) -> Account:
        """Return the account of a person at a server; where the bot has one for all, that."""
        settings = self.configured[name]
        who = person if is_personal(settings) else BOT
        return Account(name, settings, who, self.credentials, self.environ, self.offload, self.private_hosts)

    def connection(self, name: str, person: str) -> Server:
        account = self.account(name, person) if self.configured[name].oauth else None
        return self._connection(name, account, self.times)

    def signing_in(self, account: Account) -> Server:
        """Return a connection that waits for a person on its way."""
        return self._connection(account.name, account, replace(self.times, address=OFFER_S))

    def _connection(self, name: str, account: Account | None, times: Timeouts) -> Server:
        return Server(
            name,
            self.configured[name],
            self.environ,
            offload=self.offload,
            mask=self.mask,
            on_listed=self.on_listed,
            times=times,
            sign_in=account,
        )


@asynccontextmanager
async def open_sign_ins(
    settings: Settings, environ: Mapping[str, str], states: States
) -> AsyncIterator[SignIns]:
    """Yield the sign-ins alone, for a command beside a running bot. What a server lists is left to the bot."""
    credentials = CredentialStore(states, lambda _: None)
    offload, private = anyio.to_thread.run_sync, settings.tools.private_hosts
    make = _Maker(settings.mcp_servers, environ, credentials, offload, mask, _ignore_list, private)
    async with anyio.create_task_group() as tasks:
        yield SignIns(tasks, make.account, make.signing_in)
        tasks.cancel_scope.cancel()


async def _ignore_list(_name: str, _listing: Listing) -> None:
    pass


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
    states: States | None = None,
    learn: Callable[[Collection[str]], None] = lambda _: None,
    private_hosts: Sequence[str] = (),
    learn_s: float = LEARN_S,
    times: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[Servers]:
    """Yield the servers; leaving ends them all. *save* saves the pictures that tools return.

    *states* has what people are granted, and *learn* gets it for masking. *private_hosts* are those of the settings.

    Raises `threads.errors.NewerSchema` and OSError for the stored lists.
    """
    store = _ListingStore(configured, JsonFile(disk, data / "mcp.json", offload, StoredListings()))
    await offload(store.open)
    credentials = CredentialStore(states or JsonFiles(disk, data, offload), learn)
    make = _Maker(configured, environ, credentials, offload, mask, store.save, private_hosts, times)
    async with anyio.create_task_group() as tasks:
        sign_ins = SignIns(tasks, make.account, make.signing_in)
        servers: dict[str, Connections] = {}
        for name, settings in sorted(configured.items()):
            if is_personal(settings):
                servers[name] = PersonalServers(name, partial(make.connection, name), tasks)
            else:
                servers[name] = server = make.connection(name, BOT)
                tasks.start_soon(server.run)
        shared = [one for one in servers.values() if isinstance(one, Server)]
        await _learn([server for server in shared if server.name not in store.known], learn_s)

        def tools_of(listings: Mapping[str, Listing]) -> list[McpTool]:
            return [
                make_tool(servers[name], ours, tool, save)
                for ours, name, tool in assign_names(list(listings.items()))
            ]

        listings = store.offer()
        tools = tools_of(listings)
        if (beyond := sum(len(listing.tools) for listing in listings.values()) - len(tools)) > 0:
            log.warning("mcp.too_many: %d tools left out: all of them may have %d", beyond, MAX_ALL)
        opened = Servers(tools, servers, sign_ins)

        async def add(name: str) -> None:
            await opened.add([tool for tool in tools_of(store.offered) if tool.server.name == name])

        store.on_first = add
        yield opened
        tasks.cancel_scope.cancel()


def is_personal(settings: McpServer) -> bool:
    """Return whether each person has an account of their own at this server."""
    return settings.oauth is not None and settings.oauth.account == "person"


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
        self._signed = {name for name, settings in configured.items() if settings.oauth}
        self._offered: dict[str, Listing] | None = None
        self.on_first: Callable[[str], Awaitable[None]] | None = None
        """Called with a server that had no list at the start, because nobody had signed in."""
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

    @property
    def offered(self) -> Mapping[str, Listing]:
        return self._offered or {}

    async def save(self, name: str, listing: Listing) -> None:
        """Store the new list of a server, and log the changes."""
        if self.known.get(name) == listing:
            return
        self.known[name] = listing
        if self._offered is not None and name in self._signed - self._offered.keys() and self.on_first:
            log.info("mcp.listed: %s lists %s", name, count_tools(len(listing.tools)))
            self._offered[name] = listing
            await self.on_first(name)
        else:
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
