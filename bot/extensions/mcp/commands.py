"""What people do with MCP servers: `/mcp`, and messages that name a prompt or a resource."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio
from cachetools import LRUCache

from bot import wording
from bot.extensions.mcp.credentials import person_of
from bot.extensions.mcp.references import LIST_S, References, Unusable, unknown, usage
from bot.extensions.mcp.server import Server
from bot.extensions.mcp.servers import Servers, is_personal
from bot.extensions.mcp.settings import McpServer
from bot.extensions.mcp.sign_in import CallSignIn, SignInFailed, SignIns, is_local, place_of
from bot.extensions.mcp.tool_list import count_tools, describe_losses
from bot.ports.errors import SignInNeeded, ToolError
from bot.ports.tool import ToolContext
from threads.errors import PostFailed
from threads.model import (
    Block,
    Edited,
    Inbound,
    Incoming,
    Message,
    Outcome,
    Outgoing,
    Sink,
    Text,
    ThreadId,
    Turn,
)

log = logging.getLogger(__name__)

Post = Callable[[Outgoing], Awaitable[object]]
"""Posts a notice. Raises `PostFailed`."""

REMEMBERED = 100
"""Messages whose prompt or resources are fetched, and that have not begun yet; and those that asked for a server."""

HELP = (
    "Say `/mcp` for a list, `/mcp connect NAME` or `/mcp disconnect NAME`, or in a thread "
    "`/mcp NAME:PROMPT argument=value`. A message may name a resource: `@NAME:URI`."
)

TAKEN, HIDDEN = "[address]", "[sign-in-address]"
"""What stands for an address with a code in everything that is stored: one that has been taken, and any other."""


@dataclass(frozen=True)
class McpCommands:
    """The servers as people use them."""

    configured: Mapping[str, McpServer]
    servers: Servers
    references: References
    post: Post
    _prepared: LRUCache[str, Sequence[Block]] = field(default_factory=lambda: LRUCache(REMEMBERED))
    _waiting: LRUCache[tuple[str, ThreadId], str] = field(default_factory=lambda: LRUCache(REMEMBERED))
    """The message that asked for a server, by that server and the thread, until the server is there."""

    @property
    def sign_ins(self) -> SignIns:
        return self.servers.sign_ins

    async def command(self, words: str, incoming: Incoming) -> str:
        """Carry out `/mcp` with these words, and return the reply. Raises `StoreUnavailable`."""
        verb, name, address, *_ = *words.split(maxsplit=2), "", "", ""
        if not verb:
            return await self._list(incoming)
        if verb not in ("connect", "disconnect"):
            return HELP
        if HIDDEN in (name, address):
            return (
                "That address belongs to no sign-in that is open for you here. `/mcp` shows where to sign in."
            )
        if (problem := self._no_account(name)) or verb == "disconnect":
            return problem or await self._disconnect(name, incoming)
        return await (self._connected if address == TAKEN else self._connect)(name, incoming)

    def _no_account(self, name: str) -> str:
        """Return why people have no account of their own at such a server, or a blank."""
        if name not in self.configured:
            return unknown("MCP server", name, self.configured)
        own = is_personal(self.configured[name])
        return "" if own else f"Nobody signs in at {name} here: one account, or none, serves all who ask."

    async def hide_addresses(self, event: Inbound) -> Inbound:
        """Return the event without the address of a sign-in, whose code must not be stored.

        The sign-in that the address belongs to goes on. Raises `StoreUnavailable`.
        """
        if (address := _addresses(self.configured)) is None or not isinstance(event, Incoming | Edited):
            return event
        if address.search(event.quoted):
            event = replace(event, quoted=address.sub(HIDDEN, event.quoted))
        if not (found := address.search(event.text)):
            return event
        if isinstance(event, Edited):
            return replace(event, text=address.sub(HIDDEN, event.text))
        person, place = person_of(event.thread, event.author), place_of(event.thread)
        for name, settings in self.configured.items():
            if is_personal(settings) and await self.sign_ins.account(name, person).take(found[0], place):
                return replace(event, text=f"/mcp connect {name} {TAKEN}")
        rest = address.sub(HIDDEN, event.text)
        return replace(event, text=f"/mcp connect {HIDDEN}" if rest.strip() == HIDDEN else rest)

    def hiding_addresses(self, sink: Sink) -> Sink:
        """Return a sink that conceals each event before it passes it on; see `hide_addresses`."""

        async def receive(event: Inbound) -> Outcome | None:
            return await sink(await self.hide_addresses(event))

        return receive

    def sign_in(self, server: str, context: ToolContext) -> CallSignIn | None:
        """Return the sign-in of the asker of a call; None where there is nothing that the asker could do."""
        personal = server in self.configured and is_personal(self.configured[server])
        return self.sign_ins.of_call(server, context) if personal else None

    async def prepare(self, turn: Turn) -> str:
        """Fetch the prompt and the resources that a message names; return why that is not possible, or a blank."""
        incoming = turn.incoming
        if any(message.source == incoming.id for message in turn.messages):
            return ""  # it is in the conversation already
        try:
            self._prepared[incoming.key] = await self.references.blocks(incoming)
        except Unusable as problem:
            names = [name for name in self.configured if f"{name}:" in incoming.text]
            return "\n".join(
                [str(problem), *filter(None, (self._wait_for(name, incoming) for name in names))]
            )
        return ""

    async def tell_arrival(self, name: str) -> None:
        """Say that a server is there now, where somebody asked for it."""
        asked = [key for key in self._waiting if key[0] == name]
        for thread, message in [(key[1], self._waiting.pop(key)) for key in asked]:
            text = f"The MCP server {name} is there now, with {self._count(name)}."
            try:
                await self.post(Outgoing(thread, f"mcp:{name}:{message}", text, "notice"))
            except PostFailed as error:
                log.info("mcp.not_told: %s: %s", name, error)

    def _wait_for(self, name: str, incoming: Incoming) -> str:
        """Promise to say when a server is there, if nothing is known of it yet; else return ""."""
        server = self.servers.by_name[name]
        if name in self.servers.listings or not isinstance(server, Server):
            return ""
        self._waiting[name, incoming.thread] = incoming.id
        why = f" ({server.reason})" if server.reason else ""
        return f"{name} is not there yet{why}. I say so here when it is."

    async def extend(self, incoming: Incoming, message: Message) -> Message:
        """Return a person's message for the model with the prompt and the resources that it names."""
        try:
            blocks = self._prepared.pop(incoming.key, None)
            blocks = await self.references.blocks(incoming) if blocks is None else blocks
        except Unusable as problem:  # it joined a turn: the model says so
            blocks = [Text(f"({problem})")]
        return self._without_addresses(replace(message, blocks=(*message.blocks, *blocks)))

    def _without_addresses(self, message: Message) -> Message:
        """Return the message without addresses of a sign-in: what was said earlier in a thread may have one."""
        if (address := _addresses(self.configured)) is None:
            return message
        blocks = (
            replace(block, text=address.sub(HIDDEN, block.text)) if isinstance(block, Text) else block
            for block in message.blocks
        )
        return replace(message, blocks=tuple(blocks))

    async def _connect(self, name: str, incoming: Incoming) -> str:
        if not _is_private(incoming):
            return f"The link is for you alone: say `/mcp connect {name}` in a direct message, or as a slash command."
        place = place_of(incoming.thread)
        try:
            link = await self.sign_ins.begin(name, person_of(incoming.thread, incoming.author), place)
        except SignInFailed as failed:
            return f"I cannot sign in at {name}: {failed}."
        return wording.sign_in_link(name, link, local=is_local(place))

    async def _connected(self, name: str, incoming: Incoming) -> str:
        why = await self.sign_ins.outcome(name, person_of(incoming.thread, incoming.author))
        return f"That did not work at {name}: {why}." if why else f"You are signed in at {name}."

    async def _disconnect(self, name: str, incoming: Incoming) -> str:
        person = person_of(incoming.thread, incoming.author)
        had = await self.sign_ins.sign_out(name, person)
        self.servers.end(name, person)
        if not had:
            return f"You are not signed in at {name}."
        return f"I have forgotten your sign-in at {name}. Its own pages can also revoke what it has granted."

    async def _list(self, incoming: Incoming) -> str:
        person = person_of(incoming.thread, incoming.author)
        lines = {name: [await self._summary(name, person, incoming)] for name in sorted(self.configured)}

        async def add_prompts(name: str) -> None:
            try:
                prompts = await self.references.prompts(self.servers.by_name[name].of(person))
                lines[name] += [f"- {usage(name, prompt)}" for prompt in prompts]
            except ToolError as error:
                if name in self.servers.listings and not isinstance(error, SignInNeeded):
                    lines[name].append(f"- its prompts are not known now: {error}")

        with anyio.move_on_after(LIST_S):
            async with anyio.create_task_group() as tasks:
                for name in self.configured:
                    tasks.start_soon(add_prompts, name)
        return "\n".join(line for about in lines.values() for line in about)

    def _count(self, name: str) -> str:
        """Return how many tools of a server are offered, and what is not."""
        count = count_tools(sum(tool.server.name == name for tool in self.servers.tools))
        listing = self.servers.listings.get(name)
        return f"{count}{describe_losses(listing)}" if listing else count

    async def _summary(self, name: str, person: str, incoming: Incoming) -> str:
        if not is_personal(self.configured[name]):
            return self._wait_for(name, incoming) or f"{name}: {self._count(name)}"
        signed_in = (await self.sign_ins.account(name, person).read()).tokens is not None
        state = "you are signed in" if signed_in else f"you are not signed in: `/mcp connect {name}`"
        return f"{name}: {self._count(name)}; {state}"


def _addresses(configured: Mapping[str, McpServer]) -> re.Pattern[str] | None:
    """Return a pattern of the addresses that people come back to, None if nobody signs in."""
    ports = {str(server.oauth.redirect_port) for server in configured.values() if server.oauth}
    if not ports:
        return None
    return re.compile(
        rf"http://(?:127\.0\.0\.1|localhost):(?:{'|'.join(sorted(ports))})/callback\?[^\s<>|\"'`]{{1,8000}}"
    )


def _is_private(incoming: Incoming) -> bool:
    """Return whether nobody else sees the reply: to a direct message, a slash command, a press of a button."""
    return incoming.via == "direct" or incoming.id.startswith(("slash-", "press-"))
