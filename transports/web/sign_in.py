"""How people sign in at the page with the identity of their company: by the header of a proxy, or by OpenID Connect.

| a request                                                    | what it gets |
|--------------------------------------------------------------|---|
| with the header, but not from a named proxy                  | 403, and the log says so |
| with the header twice, or with what is no id of a person     | 400 |
| with the header of a named proxy                             | that person's session, and no other |
| of a session that the proxy opened, without its header       | 401 |
| GET /sign-in                                                 | a session, or the provider's page |
| GET /signed-in                                               | a session, once for each answer of the provider |

A session begins anew with each sign-in, and is only valid for the way it was opened by. No address to return to is
taken from a request: people come back to the page itself.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_address

from cachetools import FIFOCache
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from threads.model import WallClock
from transports.web.address import Address
from transports.web.openid import NotSignedIn, OpenId, ProviderDown, encoded
from transports.web.sessions import PERSON, Person, Sessions

log = logging.getLogger(__name__)

SIGNED_IN_S = 12 * 3600.0
"""How long a session of OpenID Connect lasts: then the provider is asked again whether the person is still there."""

PENDING_S = 600
"""How long a person has at the provider's page."""

ENTERED = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>…</title><a href="/">Go on</a>'
"""A browser gives our strict cookie to this page's own request, and not to a redirect that another site began."""


@dataclass(slots=True)
class ProxyHeader:
    """The word of a reverse proxy at one of these addresses."""

    name: str
    proxies: Sequence[IPv4Network | IPv6Network]
    _told: FIFOCache[str, bool] = field(default_factory=lambda: FIFOCache(100), init=False)

    def refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return why a request is refused, None if it is not."""
        if not (given := headers.getlist(self.name)):
            return None
        peer = scope["client"][0] if scope.get("client") else ""
        if not self._is_proxy(peer):
            if peer not in self._told:  # once for each address: whoever sends it may go on
                self._told[peer] = True
                log.warning("web.header_refused: %s came from %s, no proxy of sign_in", self.name, peer)
            why = "only the named proxy may say who you are; see transports.web.sign_in in settings.json"
            return 403, why
        if len(given) > 1 or not PERSON.fullmatch(given[0]):
            return 400, f"{self.name} has to be one id, of letters, digits and . _ @ -, 64 at most"
        return None

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.proxies)


@dataclass(slots=True)
class SignIn:
    """The way of the settings: one of ``header`` and ``openid``."""

    header: ProxyHeader | None = None
    openid: OpenId | None = None

    @property
    def way(self) -> str:
        """What sessions are marked with. Those of another way, or of another provider, are over."""
        return f"openid {self.openid.issuer}" if self.openid else f"header {self.header and self.header.name}"

    def holds(self, request: Request, person: Person, by: str) -> bool:
        """Return whether a session of this person counts in this request."""
        named = request.headers.get(self.header.name) if self.header else None
        return not by if named is None and self.header else named in {None, person.id}


def give_session(response: Response, address: Address, cookie: str) -> None:
    """Give a browser the cookie of its session."""
    name, secure = address.cookie, address.secure
    response.set_cookie(name, cookie, 31_536_000, httponly=True, samesite="strict", secure=secure)


@dataclass(slots=True)
class SignInRoutes:
    """The requests of a sign-in. ``refuse`` makes the page for somebody who has no session, and why.

    ``may_enter`` returns why a person may not use the page; blank if they may.
    """

    sign_in: SignIn
    sessions: Sessions
    address: Address
    now: WallClock
    refuse: Callable[[str, int], Response]
    may_enter: Callable[[str], str]

    @property
    def _cookie(self) -> str:
        return f"{self.address.cookie}-sign-in"

    @property
    def _redirect(self) -> str:
        return f"{self.address.url}/signed-in"

    async def begin(self, request: Request) -> Response:
        """Open the session of whom the proxy names, or send the browser to the provider."""
        if (openid := self.sign_in.openid) is None:
            assert self.sign_in.header
            if (named := request.headers.get(self.sign_in.header.name)) is None:
                return self.refuse("The proxy before this page did not say who you are. Sign in there.", 401)
            return await self._enter(request, named, secrets.token_urlsafe(16), None)
        state = secrets.token_urlsafe(32)
        nonce, verifier = self._made("nonce", state), self._made("pkce", state)
        try:
            url = await openid.address(self._redirect, state, nonce, verifier)
        except NotSignedIn as error:
            return self._refused(error)
        response = RedirectResponse(url, 303)
        until, secure = (self.now() + timedelta(seconds=PENDING_S)).timestamp(), self.address.secure
        sealed = self.sessions.sealed({"state": state, "until": until})
        # Lax: the way back begins at the provider's site.
        response.set_cookie(self._cookie, sealed, PENDING_S, httponly=True, samesite="lax", secure=secure)
        return response

    async def end(self, request: Request) -> Response:
        """Take the provider's answer, once."""
        if (openid := self.sign_in.openid) is None:
            raise HTTPException(404)
        try:
            state, until, code = self._answer(request, openid)
            nonce, verifier = self._made("nonce", state), self._made("pkce", state)
            named = await openid.person(self._redirect, code, nonce, verifier)
            return await self._enter(request, named, state, until)
        except NotSignedIn as error:
            return self._refused(error)

    def _answer(self, request: Request, openid: OpenId) -> tuple[str, datetime, str]:
        """Return the state of the browser's sign-in, until when it counts, and the code. Raises `NotSignedIn`."""
        pending = self.sessions.unsealed(request.cookies.get(self._cookie, ""))
        state, now = str(pending.get("state", "")), self.now()
        until = datetime.fromtimestamp(pending.get("until", 0), now.tzinfo)
        given = {name: request.query_params.getlist(name) for name in ("state", "code", "iss", "error")}
        if not state or until < now:
            raise NotSignedIn("it began in another browser, or too long ago")
        if len(given["state"]) != 1 or not hmac.compare_digest(given["state"][0].encode(), state.encode()):
            raise NotSignedIn("the state is that of another sign-in")
        if given["iss"] not in ([], [openid.issuer]):
            raise NotSignedIn(f"the answer comes from another provider: {given['iss']}"[:300])
        if given["error"] or len(given["code"]) != 1:
            raise NotSignedIn(f"the provider refuses: {given['error']}"[:300])
        return state, until, given["code"][0]

    async def _enter(self, request: Request, named: str, nonce: str, until: datetime | None) -> Response:
        """Open a new session in place of the browser's old one; an answer of the provider counts once."""
        if not PERSON.fullmatch(named):
            raise NotSignedIn(f"{named[:64]!r} is no id, of letters, digits and . _ @ -, 64 at most")
        if why := self.may_enter(named):
            log.warning("web.sign_in_refused: %s may not use this bot", named)
            return self.refuse(why, 403)
        way, now = self.sign_in.way, self.now()
        ends = now + timedelta(seconds=SIGNED_IN_S) if until else None
        cookie = await self.sessions.begin(Person(id=named), nonce, until or now, by=way, ends=ends)
        if cookie is None:
            raise NotSignedIn("this answer was used already")
        await self.sessions.leave(request.cookies.get(self.address.cookie, ""))
        log.info("web.signed_in: %s, by %s", named, way)
        response = HTMLResponse(ENTERED)
        give_session(response, self.address, cookie)
        response.delete_cookie(self._cookie, httponly=True, samesite="lax", secure=self.address.secure)
        return response

    def _refused(self, error: NotSignedIn) -> Response:
        log.warning("web.sign_in_refused: %s", error)
        if isinstance(error, ProviderDown):
            why = "The provider of the sign-in does not answer as it should. Try again later."
            return self.refuse(why, 503)
        return self.refuse("This sign-in does not count. Sign in again.", 403)

    def _made(self, what: str, state: str) -> str:
        """Return a secret of one sign-in, which nobody but this bot can know."""
        return encoded(hmac.new(self.sessions.key, f"{what} {state}".encode(), sha256).digest())
