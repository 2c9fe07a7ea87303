"""Sign-in at a server by the SDK's own client for OAuth 2.1: discovery, registration, PKCE, resource indicators.

What is added here: credentials that outlive the process, with all that a refresh needs; one refresh before a person
is asked again; and addresses that a server names are reached only where they are public.

| the server answers 401, and                   | then                                                        |
|-----------------------------------------------|-------------------------------------------------------------|
| there is a refresh token that was not tried   | it is tried, once, and the request is made again            |
| the refresh is refused, or there is no token  | the tokens are forgotten; `signed_out` tells the connection |
| the authorization server fails                | the connection fails; the tokens stay                       |
| it names no way to sign in, within a session  | nothing: the session is lost                                |
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import httpx2
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.credentials import Credentials, CredentialStore
from bot.extensions.mcp.settings import McpOAuth
from bot.guards.egress import Egress
from bot.ports.errors import ToolDenied, ToolError

logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # it writes what token endpoints answer

CLIENT_NAME = "Threadfast"
PRIVATE = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
"""Networks that a server in one of them may name."""
EXPIRED = 1.0
"""An instant long ago: the SDK refreshes a token that ended then."""

ShowLink = Callable[[str], Awaitable[None]]
WaitForCode = Callable[[], Awaitable[AuthorizationCodeResult]]


class SignedOut(Exception):
    """The server wants a sign-in, and nobody is there for it."""


def redirect_uri(settings: McpOAuth) -> str:
    return f"http://127.0.0.1:{settings.redirect_port}/callback"


class _Storage(TokenStorage):
    """The SDK's view of one person's credentials. *fresh*: there are no tokens yet, as for a new sign-in."""

    def __init__(
        self,
        store: CredentialStore,
        url: str,
        person: str,
        client: OAuthClientInformationFull | None,
        *,
        fresh: bool,
    ) -> None:
        self._store, self._url, self._person, self._client, self._fresh = store, url, person, client, fresh
        self.auth: Auth

    async def get_tokens(self) -> OAuthToken | None:
        tokens = None if self._fresh else (await self._store.read(self._url, self._person)).tokens
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.auth.context
        update = {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": context.token_expiry_time,
            "metadata": _dump(context.oauth_metadata),
            "resource": _dump(context.protected_resource_metadata),
        }
        # Somebody may have signed out while a token was refreshed: then there is nothing to keep.
        kept = self._fresh
        await self._change(lambda old: old.model_copy(update=update) if kept or old.tokens else old)
        self._fresh, self.auth.access_token = False, tokens.access_token

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._client:
            return self._client
        known = (await self._store.read(self._url, self._person)).client
        client = OAuthClientInformationFull.model_validate(known) if known else None
        ours = self.auth.context.client_metadata.redirect_uris or []
        return client if client and all(uri in (client.redirect_uris or ours) for uri in ours) else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        client = client_info.model_dump(mode="json", exclude_none=True)
        await self._change(lambda old: old.model_copy(update={"client": client}))

    async def forget(self) -> None:
        """Forget the tokens, unless a sign-in has brought others meanwhile."""
        ours = self.auth.access_token

        def without(old: Credentials) -> Credentials:
            same = old.tokens is not None and old.tokens.get("access_token") == ours
            return old.model_copy(update={"tokens": None, "expires_at": None}) if same else old

        await self._change(without)

    async def _change(self, function: Callable[[Credentials], Credentials]) -> None:
        await self._store.change(self._url, self._person, function)


class Auth(OAuthClientProvider):
    """Signs each request of one connection; ``signed_out`` is set once only a person can go on."""

    def __init__(
        self,
        url: str,
        metadata: OAuthClientMetadata,
        storage: _Storage,
        known: Credentials,
        show: ShowLink | None,
        wait: WaitForCode | None,
        read: Callable[[], Awaitable[Credentials]] | None,
    ) -> None:
        # Without a person, the SDK's own flow begins only where a token has too few rights.
        super().__init__(url, metadata, storage, show or self._refuse, wait or self._wait_for_nobody)
        self.signed_out, self.access_token = False, str((known.tokens or {}).get("access_token", ""))
        self._storage, self._read = storage, read
        context = self.context
        # The SDK reads tokens and client again by itself, but not what a refresh after a restart needs.
        context.token_expiry_time = known.expires_at
        context.oauth_metadata = OAuthMetadata.model_validate(known.metadata) if known.metadata else None
        if known.resource:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(known.resource)
            context.auth_server_url = str(context.protected_resource_metadata.authorization_servers[0])

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests of the SDK's flow; a refused token is refreshed once before anything else."""
        await self._follow_store()
        while True:
            async with aclosing(super().async_auth_flow(request)) as flow:
                outgoing = await anext(flow)
                refreshed, sent = outgoing is not request, False
                while True:
                    sent = sent or outgoing is request
                    response = yield outgoing
                    if not sent and (response.status_code == 429 or response.status_code >= 500):
                        raise ConnectionLost("its authorization server has trouble")
                    if outgoing is request and response.status_code == 401 and self._read:
                        if MCP_SESSION_ID in request.headers and "www-authenticate" not in response.headers:
                            return  # it is the session that is refused: a refused token is told with that header
                        if refreshed or not self._may_refresh():
                            await self._refuse()
                        self.context.token_expiry_time = EXPIRED
                        break
                    try:
                        outgoing = await flow.asend(response)
                    except StopAsyncIteration:
                        return

    async def _follow_store(self) -> None:
        """Take up that the person has signed out, or that another process has refreshed the tokens."""
        if self._read is None:
            return
        known = await self._read()
        stored = str((known.tokens or {}).get("access_token", ""))
        if stored != self.access_token:
            self.access_token = stored
            self.context.current_tokens = OAuthToken.model_validate(known.tokens) if known.tokens else None
            self.context.token_expiry_time = known.expires_at

    def _may_refresh(self) -> bool:
        return self.context.is_token_valid() and self.context.can_refresh_token()

    async def _refuse(self, _link: str = "") -> None:
        self.signed_out = True
        await self._storage.forget()
        raise SignedOut

    async def _wait_for_nobody(self) -> AuthorizationCodeResult:
        raise SignedOut


async def make_auth(
    url: str,
    settings: McpOAuth,
    store: CredentialStore,
    person: str,
    secret: str | None,
    show: ShowLink | None = None,
    wait: WaitForCode | None = None,
) -> Auth:
    """Return the authentication of one connection; with *show* and *wait* it is a new sign-in.

    *show* gets the link for the person, and *wait* returns the code. Raises `StoreUnavailable`.
    """
    redirect = AnyUrl(redirect_uri(settings))
    client = None
    if settings.client_id:
        client = OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=secret,
            redirect_uris=[redirect],
            token_endpoint_auth_method="client_secret_post" if secret else "none",
        )
    known = Credentials() if show else await store.read(url, person)
    storage = _Storage(store, url, person, client, fresh=show is not None)
    metadata = OAuthClientMetadata(redirect_uris=[redirect], client_name=CLIENT_NAME)
    read = None if show else partial(store.read, url, person)
    storage.auth = auth = Auth(url, metadata, storage, known, show, wait, read)
    return auth


def _dump(value: OAuthMetadata | ProtectedResourceMetadata | None) -> object:
    return value.model_dump(mode="json", exclude_none=True) if value else None


class OriginGuard:
    """Checks the requests of a connection: other origins than the server's own must be public, and use TLS.

    A server on loopback or in a private network may name others there: the settings have let it in. The address that
    was checked is the one that is used, so no second look-up can answer otherwise. *private_hosts* are those of the
    settings.
    """

    def __init__(self, url: str, private_hosts: Sequence[str]) -> None:
        self._url = httpx2.URL(url)
        self._public = Egress(private_hosts)
        self._private = Egress([*private_hosts, *PRIVATE, self._url.host])
        self._is_private: bool | None = None

    async def __call__(self, request: httpx2.Request) -> None:
        """Check a request before it is sent; a hook of the client. Raises `ConnectionLost`."""
        url, own = request.url, self._url
        if (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port):
            return
        private = await self._may_be_private()
        if url.scheme != "https" and not private:
            raise ConnectionLost("it wants a sign-in over an address without TLS")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            address = (await (self._private if private else self._public).addresses(url.host, port))[0]
        except ToolDenied as error:
            raise ConnectionLost("it wants a sign-in at an address that is not public") from error
        except ToolError as error:
            raise ConnectionLost("its authorization server cannot be reached") from error
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        request.url = url.copy_with(host=address)

    async def _may_be_private(self) -> bool:
        """Return whether the server itself is not public. Its port says nothing about that."""
        if self._is_private is None:
            try:
                await self._public.addresses(self._url.host, 443)
            except ToolDenied:
                self._is_private = True
            except ToolError as error:
                raise ConnectionLost("it cannot be reached") from error
            else:
                self._is_private = False
        return self._is_private
