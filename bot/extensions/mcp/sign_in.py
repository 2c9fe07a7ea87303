"""Sign-ins at MCP servers: from the link that a person gets to the tokens that their calls use.

| an offer is | event                                                | then                                         |
|-------------|------------------------------------------------------|----------------------------------------------|
| none        | `/mcp connect NAME`, or `threadfast mcp login NAME`  | open for 10 min; the SDK waits with its PKCE |
| open        | its person hands over the address that they came to  | the code is exchanged, the tokens are stored |
| open        | somebody else does, or it is in another conversation | refused; it stays open for its person        |
| open        | its time ends, a newer offer, a restart              | over; its link leads to nothing              |
| over        | its address again                                    | refused                                      |

The redirect address is on 127.0.0.1, where the person's browser is. Where the bot runs on the same machine (the
console, the command line), it listens there; otherwise the person copies the address out of the browser. The bot has
no public address for this: that could not tell whose browser has come, and somebody could send their own link to
another person and then act as them.

An address travels through the stored credentials of the person who handed it over. So it may reach another worker
than the one that waits, and can only match an offer to the same person.
"""

from __future__ import annotations

import hmac
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from bot import wording
from bot.config.load import resolve_secret
from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.credentials import (
    BOT,
    Credentials,
    CredentialStore,
    SignInOffer,
    parameters,
    person_of,
)
from bot.extensions.mcp.redirect_listener import listen
from bot.extensions.mcp.server import Server
from bot.extensions.mcp.settings import McpServer
from bot.ports.tool import ToolContext
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.model import ThreadId
from threads.store.disk import Offload

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

    from bot.extensions.mcp.http import Guard
    from bot.extensions.mcp.oauth import Auth

log = logging.getLogger(__name__)

OFFER_S = 600.0
"""Seconds that a link is good for."""
LINK_S = 30.0
"""Seconds in which a server has to say where to sign in."""
EXCHANGE_S = 60.0
"""Seconds from the address to the tokens."""
LOOK_S = 0.25
"""Seconds between two looks at the stored credentials."""

PAUSE_S = 5.0
"""Seconds until the next look at stored credentials that could not be read."""


class SignInFailed(Exception):
    """``str(error)`` says why, in a clause for people."""


@dataclass(frozen=True)
class ServerAccount:
    """The account of a ``person`` at the server ``name``: a `bot.extensions.mcp.server.Authenticator`.

    ``flow`` is the sign-in that it takes part in; without one, only stored credentials are used.
    """

    name: str
    settings: McpServer
    person: str
    store: CredentialStore
    environ: Mapping[str, str]
    offload: Offload
    private_hosts: Sequence[str] = ()
    flow: Flow | None = None

    @property
    def how(self) -> str:
        """Return how somebody signs in, for the model."""
        if self.person == BOT:
            return f"whoever runs this bot runs `threadfast mcp login {self.name}`"
        return f"the person who asks says `/mcp connect {self.name}`"

    @property
    def url(self) -> str:
        assert self.settings.url, "valid settings with oauth have one"
        return self.settings.url

    @cached_property
    def guard(self) -> Guard:
        from bot.extensions.mcp.oauth import OriginGuard  # noqa: PLC0415 - the SDK

        return OriginGuard(self.url, self.private_hosts)

    async def authenticate(self) -> Auth:
        """Return the authentication of one connection. Raises `StoreUnavailable` and `ConfigInvalid`."""
        sdk = await self.offload(importlib.import_module, "bot.extensions.mcp.oauth")
        oauth = self.settings.oauth
        assert oauth, "only such servers have accounts"
        secret = (
            await self.offload(resolve_secret, oauth.client_secret, self.environ)
            if oauth.client_secret
            else None
        )
        handlers = (self.flow.show, self.flow.wait) if self.flow else ()
        auth: Auth = await sdk.make_auth(self.url, oauth, self.store, self.person, secret, *handlers)
        return auth

    async def read(self) -> Credentials:
        return await self.store.read(self.url, self.person)

    async def change(self, function: Callable[[Credentials], Credentials]) -> Credentials:
        return await self.store.change(self.url, self.person, function)

    async def take(self, address: str, place: str) -> bool:
        """Take the address that the person came to; returns whether it belongs to an open offer to them."""
        state, now, taken = (parameters(address).get("state", ""), time.time(), False)

        def with_address(old: Credentials) -> Credentials:
            nonlocal taken
            offer = old.offer
            taken = (
                offer is not None
                and hmac.compare_digest(offer.state.encode(), state.encode())
                and (offer.place, offer.redirect, offer.outcome) == (place, "", None)
                and offer.until > now
            )
            if offer is None or not taken:
                return old
            return old.model_copy(update={"offer": offer.model_copy(update={"redirect": address})})

        await self.change(with_address)
        return taken


@dataclass(eq=False)
class Flow:
    """One sign-in that this process waits for. ``link`` is blank until the server has named it."""

    account: ServerAccount
    place: str
    link: str = ""
    state: str = ""
    outcome: str = "it took too long"
    ready: anyio.Event = field(default_factory=anyio.Event)
    """Set when there is a link, or an outcome without one."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def show(self, link: str) -> None:
        """Open the offer: the server has named this link."""
        self.state = parameters(link).get("state", "")
        offer = SignInOffer(state=self.state, place=self.place, until=time.time() + OFFER_S)
        await self.account.change(lambda old: old.model_copy(update={"offer": offer}))
        self.link = link
        self.ready.set()

    async def wait(self) -> AuthorizationCodeResult:
        """Return the code once the person has handed over their address. Raises `ConnectionLost`."""
        from mcp.shared.auth import AuthorizationCodeResult  # noqa: PLC0415 - the SDK

        while True:
            offer = (await self.account.read()).offer
            if offer is None or offer.state != self.state:
                raise ConnectionLost("a newer sign-in has begun")
            if offer.redirect:
                found = parameters(offer.redirect)
                if not found.get("code"):
                    raise ConnectionLost("the sign-in was refused there")
                return AuthorizationCodeResult(
                    code=found["code"], state=found.get("state"), iss=found.get("iss")
                )
            await anyio.sleep(LOOK_S)


class SignIns:
    """The sign-ins of a running bot.

    *account* returns a person's account at a server, and *connect* a connection that tries it.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        account: Callable[[str, str], ServerAccount],
        connect: Callable[[ServerAccount], Server],
    ) -> None:
        self._tasks, self.account, self._connect = tasks, account, connect
        self._flows: dict[tuple[str, str], Flow] = {}

    async def begin(self, name: str, person: str, place: str) -> str:
        """Return a new link for the person; an earlier one is over. Raises `SignInFailed`."""
        flow = Flow(self.account(name, person), place)
        flow.account = replace(flow.account, flow=flow)
        if earlier := self._flows.get((name, person)):
            earlier.scope.cancel()
            await earlier.ended.wait()
        self._flows[name, person] = flow
        self._tasks.start_soon(self._run, flow)
        with anyio.move_on_after(LINK_S):
            await flow.ready.wait()
        if not flow.link:
            flow.scope.cancel()
            raise SignInFailed(
                flow.outcome if flow.ended.is_set() else "it did not say in time where to sign in"
            )
        return flow.link

    async def outcome(self, name: str, person: str) -> str:
        """Return how the sign-in ended whose address was taken: blank if it has worked, else why not."""
        with anyio.move_on_after(EXCHANGE_S):
            while True:
                offer = (await self.account(name, person).read()).offer
                if offer is None or offer.outcome is not None:
                    return "there is no such sign-in" if offer is None else str(offer.outcome)
                await anyio.sleep(LOOK_S)
        return "nobody waits for it any more, perhaps because the bot was restarted"

    async def ended(self, name: str, person: str) -> str:
        """Return the outcome of a sign-in of this process once it has one."""
        if flow := self._flows.get((name, person)):
            await flow.ended.wait()
        return await self.outcome(name, person)

    async def sign_out(self, name: str, person: str) -> bool:
        """Forget the tokens and any open offer; returns whether there were tokens. Raises `StoreUnavailable`."""
        had = False

        def cleared(old: Credentials) -> Credentials:
            nonlocal had
            had = old.tokens is not None
            return Credentials()

        await self.account(name, person).change(cleared)
        return had

    def of_call(self, name: str, context: ToolContext) -> CallSignIn:
        """Return the sign-in of the asker of a call."""
        person = person_of(context.thread, context.asker)
        return CallSignIn(self, name, person, place_of(context.thread), context.private)

    async def link(self, name: str, person: str, place: str) -> str:
        """Return the link of a sign-in that is open there, else a new one. Raises `SignInFailed`."""
        flow = self._flows.get((name, person))
        if flow and flow.link and flow.place == place:
            return flow.link
        return await self.begin(name, person, place)

    @contextmanager
    def watching(self, account: ServerAccount, on_tokens: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Call *on_tokens* once the account has tokens, if that is within the block."""
        scope = anyio.CancelScope()

        async def watch() -> None:
            with scope:
                await _until_signed_in(account)
                await on_tokens()

        self._tasks.start_soon(watch)
        try:
            yield
        finally:
            scope.cancel()

    async def _run(self, flow: Flow) -> None:
        account = flow.account
        try:
            with flow.scope:
                flow.scope.deadline = anyio.current_time() + OFFER_S
                flow.outcome = await self._connected(flow)
            if flow.state:
                await account.change(lambda old: old.with_outcome(flow.state, flow.outcome))
        except StoreUnavailable as error:
            flow.outcome = "my disk refuses to save"
            log.warning("mcp.not_signed_in: %s: %s", account.name, error)
        finally:
            flow.ended.set()
            flow.ready.set()
            self._flows.pop((account.name, account.person), None)
        log.info("mcp.sign_in_ended: %s: %s", account.name, flow.outcome or "signed in")

    async def _connected(self, flow: Flow) -> str:
        """Connect, with the sign-in on the way; returns why that has failed, or a blank."""
        account, oauth = flow.account, flow.account.settings.oauth
        server = self._connect(account)
        async with AsyncExitStack() as stack:
            if oauth and is_local(flow.place):
                take = lambda address: account.take(address, flow.place)  # noqa: E731
                await stack.enter_async_context(listen(oauth.redirect_port, take))
            tasks = await stack.enter_async_context(background_tasks())
            tasks.start_soon(server.run)
            server.request_connection()
            await server.attempted.wait()
            connected = server.state == "connected"
        if connected and not flow.link:
            return "it wants no sign-in"
        return "" if connected else server.reason


@dataclass(frozen=True)
class CallSignIn:
    """A `bot.tools.recovery.SignIn` of the ``person`` who asks for a call, in the conversation ``place``."""

    sign_ins: SignIns
    server: str
    person: str
    place: str
    private: bool

    @property
    def account(self) -> ServerAccount:
        return self.sign_ins.account(self.server, self.person)

    async def is_done(self) -> bool:
        return (await self.account.read()).tokens is not None

    async def instructions(self) -> str:
        if not self.private:
            return wording.sign_in_in_private(self.server)
        try:
            link = await self.sign_ins.link(self.server, self.person, self.place)
        except SignInFailed as failed:
            return wording.no_sign_in_link(self.server, str(failed))
        return wording.sign_in_link(self.server, link, local=is_local(self.place))

    def watching(self, on_done: Callable[[], Awaitable[None]]) -> AbstractContextManager[None]:
        return self.sign_ins.watching(self.account, on_done)


async def _until_signed_in(account: ServerAccount) -> None:
    while True:
        try:
            if (await account.read()).tokens:
                return
        except StoreUnavailable as error:
            log.warning("mcp.not_signed_in: %s: %s", account.name, error)
            await anyio.sleep(PAUSE_S)
        await anyio.sleep(LOOK_S)  # another process may write them


def place_of(thread: ThreadId) -> str:
    """Return the conversation that an offer is bound to: a channel, with all its threads."""
    return f"{thread.transport}:{thread.workspace}:{thread.channel}"


def is_local(place: str) -> bool:
    """Return whether the person of this conversation sits at this machine."""
    return place.startswith("console:")
