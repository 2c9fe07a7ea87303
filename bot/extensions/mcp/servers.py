"""All configured MCP servers: their tools come from a stored list, their connections when a tool is called.

The tools of a server are part of the prompt, which should not change during a conversation. So they are listed once
and stored in `mcp.json`; a server is started at boot only if nothing is stored for its settings. No server can keep
the bot from starting.

| a server                                       | then                                                          |
|------------------------------------------------|---------------------------------------------------------------|
| is not there at the start                      | it is tried until it is                                       |
| lists tools for the first time                 | they are accepted: the settings name their server             |
| lists new tools, or others under the same name | a person is asked before the first use of each                |
| does not list a tool any more                  | it is not offered any more                                    |
| lists the same                                 | nothing, so the prompt stays the same                         |

A change holds from the next turn on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
from pydantic import Field

from bot.config.settings import Settings
from bot.extensions.mcp.connection import settings_digest
from bot.extensions.mcp.credentials import BOT, CredentialStore
from bot.extensions.mcp.personal import PersonalServers
from bot.extensions.mcp.plain_text import clean
from bot.extensions.mcp.server import DEFAULT_TIMEOUTS, Server, Timeouts
from bot.extensions.mcp.settings import MCP_SERVERS, McpServer
from bot.extensions.mcp.sign_in import OFFER_S, ServerAccount, SignIns
from bot.extensions.mcp.tool import Connections, McpTool, News, Save, make_tool
from bot.extensions.mcp.tool_list import MAX_ALL, ListedTool, Listing, assign_names, count_tools
from bot.guards.redaction import mask
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonFiles, JsonState, States

log = logging.getLogger(__name__)

LISTINGS = "mcp.json"
LEARN_S = 5.0
"""Seconds that a start waits for servers whose tools are not known yet."""


class StoredListings(JsonState):
    """The last list of each server."""

    servers: dict[str, Listing] = Field(default_factory=dict)


async def _tell_nobody(*_: object) -> None:
    pass


@dataclass(slots=True)
class Servers:
    """The servers of a running bot, by name, and their ``tools``.

    ``on_tools`` gets a server and all of its tools whenever they are others; ``on_arrival`` a server that had none.
    """

    tools: Sequence[McpTool]
    by_name: Mapping[str, Connections]
    sign_ins: SignIns
    listings: Mapping[str, Listing]
    on_tools: Callable[[str, Sequence[McpTool]], None] = lambda *_: None
    on_arrival: Callable[[str], Awaitable[None]] = _tell_nobody

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

    def replace(self, name: str, tools: Sequence[McpTool]) -> None:
        """Offer these tools of a server, and no others of it."""
        self.tools = [*(tool for tool in self.tools if tool.server.name != name), *tools]
        self.on_tools(name, tools)


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

    def account(self, name: str, person: str) -> ServerAccount:
        """Return the account of a person at a server; where the bot has one for all, that."""
        settings = self.configured[name]
        who = person if is_personal(settings) else BOT
        return ServerAccount(
            name, settings, who, self.credentials, self.environ, self.offload, self.private_hosts
        )

    def connection(self, name: str, person: str) -> Server:
        account = self.account(name, person) if self.configured[name].oauth else None
        return self._connection(name, account, self.times)

    def signing_in(self, account: ServerAccount) -> Server:
        """Return a connection that waits for a person on its way."""
        return self._connection(account.name, account, replace(self.times, address=OFFER_S))

    def _connection(self, name: str, account: ServerAccount | None, times: Timeouts) -> Server:
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
    make = _Maker(MCP_SERVERS.of(settings), environ, credentials, offload, mask, _tell_nobody, private)
    async with background_tasks() as tasks:
        yield SignIns(tasks, make.account, make.signing_in)


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
    store = _ListingStore(configured, JsonFile(disk, data / LISTINGS, offload, StoredListings()))
    await offload(store.open)
    credentials = CredentialStore(states or JsonFiles(disk, data, offload), learn)
    make = _Maker(configured, environ, credentials, offload, mask, store.save, private_hosts, times)
    async with background_tasks() as tasks:
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

        def tools_of(listings: Mapping[str, Listing], others: Collection[str] = ()) -> list[McpTool]:
            tools = [
                make_tool(servers[name], ours, tool, save, store.news(name, tool))
                for ours, name, tool in assign_names([*listings.items()], others)
            ]
            if (beyond := sum(len(listing.tools) for listing in listings.values()) - len(tools)) > 0:
                log.warning("mcp.too_many: %d tools left out: all of them may have %d", beyond, MAX_ALL)
            return tools

        opened = Servers(tools_of(store.known), servers, sign_ins, store.known)

        async def tell_arrival(name: str) -> None:
            await opened.on_arrival(name)

        def changed(name: str, *, is_first: bool) -> None:
            others = [tool.name for tool in opened.tools if tool.server.name != name]
            opened.replace(name, tools_of({name: store.known[name]}, others))
            if is_first:
                tasks.start_soon(tell_arrival, name)

        store.on_changed = changed
        yield opened


def stored_listings(settings: Settings) -> Mapping[str, Listing]:
    """Return the last lists of the servers in the settings, for a command beside a running bot. Blocking."""
    try:
        stored = StoredListings.model_validate_json((settings.data / LISTINGS).read_bytes()).servers
    except (OSError, ValueError):  # not written yet, or the bot will put it aside
        return {}
    digests = {name: settings_digest(server) for name, server in MCP_SERVERS.of(settings).items()}
    return {name: listing for name, listing in stored.items() if listing.digest == digests.get(name)}


def is_personal(settings: McpServer) -> bool:
    """Return whether each person has an account of their own at this server."""
    return settings.oauth is not None and settings.oauth.account == "person"


async def _learn(unknown: Sequence[Server], within_s: float) -> None:
    """Start the servers whose tools are not known, and wait up to *within_s* seconds for their lists."""
    for server in unknown:
        server.learn()
    with anyio.move_on_after(within_s):
        for server in unknown:
            await server.attempted.wait()
    for server in unknown:
        if server.listing is None:
            log.warning(
                "mcp.unknown: %s: its tools are not known yet; they are offered once it lists them",
                server.name,
            )


class OnChanged(Protocol):
    """Takes note of the new list of the server *name*; *is_first* if it had none."""

    def __call__(self, name: str, *, is_first: bool) -> None: ...


class _ListingStore:
    """The lists of the configured servers. *personal* are those at which each person has an account."""

    def __init__(self, configured: Mapping[str, McpServer], file: JsonFile[StoredListings]) -> None:
        self._digests = {name: settings_digest(settings) for name, settings in sorted(configured.items())}
        self._personal = {name for name, settings in configured.items() if is_personal(settings)}
        self._file = file
        self.on_changed: OnChanged | None = None
        """Called for each list that is new or has changed while the bot runs."""
        self.known: dict[str, Listing] = {}
        """The lists that belong to the present settings, by server."""

    def open(self) -> None:
        """Read the stored lists. Blocking. Raises as `JsonFile.open` does."""
        self._file.open()
        stored = sorted(self._file.value.servers.items())
        self.known |= {name: listing for name, listing in stored if listing.digest == self._digests.get(name)}

    def news(self, name: str, tool: ListedTool) -> News:
        """Return what is new about a tool since a person accepted it, and how it is accepted."""

        async def accept() -> None:
            if name in self.known and self.known[name].news(tool):
                log.info("mcp.accepted: %s: %s", name, clean(tool.name)[:80])
                await self._store(name, self.known[name].accepting([tool]))

        return News(lambda: self.known[name].news(tool), accept)

    async def save(self, name: str, listing: Listing) -> None:
        """Take the new list of a server: store it, log the changes, and offer its tools."""
        before = self.known.get(name)
        listing = (listing.joined(before) if name in self._personal else listing).taken_up(before)
        if listing == before:
            return
        self._report(name, before, listing)
        await self._store(name, listing)
        if self.on_changed and (before is None or listing.tools != before.tools):
            self.on_changed(name, is_first=before is None)

    async def _store(self, name: str, listing: Listing) -> None:
        self.known[name] = listing
        try:
            await self._file.change(lambda _: StoredListings(servers=dict(self.known)))
        except StoreUnavailable as error:
            log.warning("mcp.not_kept: %s: what it lists could not be kept: %s", name, error)

    def _report(self, name: str, before: Listing | None, listing: Listing) -> None:
        if before is None:
            log.info("mcp.listed: %s lists %s", name, count_tools(len(listing.tools)))
        else:
            old, new = ({tool.name: tool for tool in one.tools} for one in (before, listing))
            if changed := sorted(tool for tool in {*old, *new} if old.get(tool) != new.get(tool)):
                log.warning(
                    "mcp.changed: %s lists other tools now: %s", name, clean(", ".join(changed))[:500]
                )
        if listing.left_out:
            log.warning("mcp.left_out: %s: %s", name, "; ".join(listing.left_out)[:1000])
        if listing.reduced:
            log.warning("mcp.reduced: %s: offered with less: %s", name, "; ".join(listing.reduced)[:1000])
