"""Providers of OpenID Connect for the tests: a real one in a process, and one that can be made to lie.

The real one lives in an environment of its own, which `make oidc` makes. It does not check PKCE, so the other does.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from subprocess import DEVNULL
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import jwt
import pytest
from aiohttp import encode_basic_auth, web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.patience import WITHIN_S
from tests.transports.web.process import ROOT, free_port
from tests.transports.web.site import TOKEN, Visitor

PYTHON = Path(os.environ.get("TEST_OIDC", ROOT / ".venv-oidc/bin/python"))
needs_provider = pytest.mark.skipif(
    not PYTHON.with_name("oidc-provider-mock").exists(),
    reason="no provider: `make oidc` installs it, and TEST_OIDC can name another Python that has it",
)
SECRET = "the-secret-of-the-page"


@asynccontextmanager
async def real_provider(*people: dict) -> AsyncIterator[str]:
    """Run the provider with these people, and yield its issuer."""
    port = free_port()
    known = [word for one in people for word in ("--user-claims", json.dumps(one))]
    command = [str(PYTHON), "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), *known]
    process = await anyio.open_process(command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with httpx2.AsyncClient() as client:
            with anyio.fail_after(WITHIN_S):
                while True:
                    try:
                        await client.get(f"http://127.0.0.1:{port}/jwks")
                        break
                    except httpx2.HTTPError:
                        await anyio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


class Liar:
    """A provider that follows the specification, but for what a test changes.

    ``claims`` replace those of its tokens (None leaves one out), ``said`` what it says of itself. ``sign`` makes the
    token of claims. ``asked`` are the parameters of each sign-in, ``exchanged`` those of each code.
    """

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.rsa, self.ec = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
        self.tell_the_truth()

    def tell_the_truth(self) -> None:
        self.claims, self.said, self.userinfo = {}, {}, {}
        self.sign = self.with_rsa
        self.asked, self.exchanged, self._codes = [], [], {}

    def with_rsa(self, claims, key=None, kid="r") -> str:
        return jwt.encode(claims, key or self.rsa, "RS256", {"kid": kid})

    def with_ec(self, claims) -> str:
        return jwt.encode(claims, self.ec, "ES256", {"kid": "e"})

    def with_public_key(self, claims) -> str:
        """Sign with what everybody knows, as if it were a shared secret."""
        pem = self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        parts = [
            base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=")
            for one in ({"alg": "HS256", "kid": "r"}, claims)
        ]
        signature = hmac.new(pem, b".".join(parts), sha256).digest()
        return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()

    async def discovery(self, _) -> web.Response:
        said = {
            name: f"{self.issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        }
        said["userinfo_endpoint"] = f"{self.issuer}/userinfo"
        return web.json_response({"issuer": self.issuer, **said, **self.said})

    async def keys(self, _) -> web.Response:
        found = []
        for kid, key in (("r", self.rsa), ("e", self.ec)):
            algorithm = jwt.algorithms.RSAAlgorithm if kid == "r" else jwt.algorithms.ECAlgorithm
            found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        return web.json_response({"keys": found})

    def allow(self, address: str) -> dict[str, str]:
        """Sign a person in at the address that the page sent the browser to; return what the answer says."""
        asked = {name: value[0] for name, value in parse_qs(urlsplit(address).query).items()}
        self.asked.append(asked)
        code = f"code-{len(self.asked)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"]}

    async def token(self, request: web.Request) -> web.Response:
        given = dict(await request.post())
        self.exchanged.append(given)
        asked = self._codes.pop(given["code"], None)
        challenge = (
            base64.urlsafe_b64encode(sha256(given["code_verifier"].encode()).digest()).decode().rstrip("=")
        )
        fits = (
            asked and asked["code_challenge"] == challenge and asked["redirect_uri"] == given["redirect_uri"]
        )
        if not fits or request.headers["Authorization"] != encode_basic_auth("page", SECRET):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "page", "sub": "1", "iat": now, "exp": now + 300}
        claims |= {"nonce": asked["nonce"], "email": "ann@example.org", **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return web.json_response(
            {"access_token": "at", "token_type": "Bearer", "id_token": self.sign(claims)}
        )

    async def tell_more(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer at"
        return web.json_response({"sub": "1", **self.userinfo})


@asynccontextmanager
async def lying_provider() -> AsyncIterator[Liar]:
    port = free_port()
    liar, app = Liar(f"http://127.0.0.1:{port}"), web.Application()
    app.router.add_get("/.well-known/openid-configuration", liar.discovery)
    app.router.add_get("/jwks_uri", liar.keys)
    app.router.add_get("/userinfo", liar.tell_more)
    app.router.add_post("/token_endpoint", liar.token)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield liar
    finally:
        await runner.cleanup()


def signing_in_at(issuer: str, **more) -> dict:
    """Return what a page needs to sign people in at a provider."""
    web = {"sign_in": {"issuer": issuer, "client_id": "page", **more}, "sign_in_secret": "env:PAGE_SECRET"}
    return {"web": web, "environ": {"PAGE_SECRET": SECRET}}


async def come_in(visitor: Visitor) -> None:
    """Open the page with the session that a sign-in gave, and take its token."""
    page = (await visitor.get("/")).text
    visitor.headers[TOKEN] = re.search(r'name="token" content="([0-9a-f]+)"', page)[1]
