"""Asks a provider of OpenID Connect who somebody is: the authorization code flow with PKCE, state and nonce.

Sources are OpenID Connect Core 1.0 and Discovery 1.0, RFC 6749, 7636 (PKCE) and 9207 (``iss`` in the answer). PyJWT
verifies the token.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus, urlencode, urlsplit

import anyio

from transports.web.address import is_loopback

if TYPE_CHECKING:
    import httpx2
    from jwt.types import Options

ALGORITHMS = ("RS256", "ES256")
REQUIRED: Options = {"require": ["exp", "iat", "iss", "aud", "sub"]}
LEEWAY_S = 60
"""Seconds that the clocks of the provider and of this machine may differ."""

WITHIN_S = 15.0
"""Seconds for all requests of one step."""

FRESH_S, KEYS_S = 3600.0, 60.0
"""Seconds until the provider's addresses are read anew, and the least until its keys are."""


class NotSignedIn(Exception):
    """A sign-in that does not count. The text is for the log; it has nothing secret."""


class ProviderDown(NotSignedIn):
    """The provider does not answer, or says what cannot be used."""


class Http(Protocol):
    """What makes and closes the client of requests to a provider. It follows no redirects, and bounds bodies."""

    def __call__(self) -> httpx2.AsyncClient: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class OpenId:
    """One provider. ``claim`` names the claim that is a person's id. ``secret`` is read for each sign-in."""

    issuer: str
    client_id: str
    claim: str
    secret: Callable[[], str | None]
    http: Http
    _found: tuple[float, Mapping[str, Any]] | None = field(default=None, init=False)
    _keys: tuple[float, Sequence[Any]] | None = field(default=None, init=False)

    async def address(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        """Return where a person signs in. Raises `ProviderDown`."""
        asked = {"response_type": "code", "client_id": self.client_id, "redirect_uri": redirect}
        asked |= {"scope": "openid email profile", "state": state, "nonce": nonce}
        challenge = encoded(sha256(verifier.encode()).digest())
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        with _failures(), anyio.fail_after(WITHIN_S):
            endpoint = _endpoint(await self.discover(), "authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def person(self, redirect: str, code: str, nonce: str, verifier: str) -> str:
        """Return who has signed in, by the code of the answer. Raises `NotSignedIn`."""
        with _failures(), anyio.fail_after(WITHIN_S):
            found = await self.discover()
            given = {"grant_type": "authorization_code", "code": code}
            given |= {"redirect_uri": redirect, "code_verifier": verifier}
            answer = await self._exchange(found, given)
            claims = await self._verified(found, str(answer["id_token"]), nonce)
            if self.claim not in claims and "userinfo_endpoint" in found:
                headers = {"Authorization": f"Bearer {answer['access_token']}"}
                more = await self._json("GET", _endpoint(found, "userinfo_endpoint"), headers=headers)
                if more.get("sub") != claims["sub"]:
                    raise NotSignedIn("its userinfo is of somebody else")
                claims = {**more, **claims}
        if self.claim == "email" and claims.get("email_verified", True) not in {True, "true"}:
            raise NotSignedIn("the provider has not verified this email address")
        if not isinstance(person := claims.get(self.claim), str):
            raise NotSignedIn(f"its token has no claim {self.claim!r}")
        return person

    async def discover(self) -> Mapping[str, Any]:
        """Return what the provider says of itself. Raises `NotSignedIn`, and as its client does."""
        now = anyio.current_time()
        if self._found is None or now > self._found[0] + FRESH_S:
            found = await self._json("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.issuer:
                raise ProviderDown(f"it calls itself {found.get('issuer')!r}, and sign_in.issuer does not")
            self._found = now, found
        return self._found[1]

    async def check(self) -> None:
        """Ask the provider for its addresses and its keys. Raises `ProviderDown`."""
        with _failures(), anyio.fail_after(WITHIN_S):
            await self._read_keys(await self.discover())

    async def _exchange(self, found: Mapping[str, Any], given: Mapping[str, str]) -> Mapping[str, Any]:
        secret, headers = self.secret(), {}
        ways = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if secret and "client_secret_basic" in ways:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(secret)}".encode()
            headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        else:
            given = {**given, "client_id": self.client_id, **({"client_secret": secret} if secret else {})}
        return await self._json("POST", _endpoint(found, "token_endpoint"), data=given, headers=headers)

    async def _verified(self, found: Mapping[str, Any], token: str, nonce: str) -> Mapping[str, Any]:
        import jwt  # noqa: PLC0415 - it loads cryptography

        try:
            key = await self._key(found, jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token, key, ALGORITHMS, REQUIRED, audience=self.client_id, issuer=self.issuer, leeway=LEEWAY_S
            )
        except jwt.PyJWTError as error:
            raise NotSignedIn(f"its token does not count: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise NotSignedIn("its token is of another sign-in: the nonce differs")
        if claims.get("azp", self.client_id) != self.client_id:
            raise NotSignedIn("its token is for another client")
        return claims

    async def _key(self, found: Mapping[str, Any], name: str | None) -> Any:
        """Return the key of this name, or the only one if it has none. New keys are looked for once a minute."""
        now = anyio.current_time()
        for _ in range(2):
            keys = self._keys[1] if self._keys else []
            fits = [key for key in keys if name in {None, key.key_id} and key.public_key_use in {None, "sig"}]
            if len(fits) == 1 or (self._keys and now < self._keys[0] + KEYS_S):
                break
            self._keys = now, await self._read_keys(found)
        if len(fits) != 1:
            raise NotSignedIn(f"its token names no key of the provider: {name!r}")
        return fits[0]

    async def _read_keys(self, found: Mapping[str, Any]) -> Sequence[Any]:
        import jwt  # noqa: PLC0415 - as above

        return jwt.PyJWKSet.from_dict(await self._json("GET", _endpoint(found, "jwks_uri"))).keys

    async def _json(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        answer = await self.http().request(method, url, timeout=WITHIN_S, **more)
        if not answer.is_success:
            failed = ProviderDown if answer.status_code >= 500 else NotSignedIn
            raise failed(f"{urlsplit(url).path} answers {answer.status_code}")
        if not isinstance(said := answer.json(), dict):
            raise ProviderDown(f"{urlsplit(url).path} answers with no object")
        return said


class _failures:  # noqa: N801 - a block
    """Raises `ProviderDown` for whatever a provider's answer may be."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, NotSignedIn):
            raise ProviderDown(f"{type(error).__name__}: {error}"[:300]) from error


def _endpoint(found: Mapping[str, Any], name: str) -> str:
    """Return an address of the provider. Raises `ProviderDown` for one that others could read along."""
    parts = urlsplit(address := str(found.get(name, "")))
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return address
    raise ProviderDown(f"its {name} is no https address")


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
