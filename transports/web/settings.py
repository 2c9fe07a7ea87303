"""The settings of the page in the browser: ``transports.web``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from bot.config.document import Document
from bot.config.settings import Folder, ModelName, Name, Names, Secret, Section, Url, matches, setting
from bot.config.transports import TransportSection, TransportSettings
from transports.web.address import is_loopback

HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")


class SignInSettings(Section):
    """The identity of the company: what a proxy's header says, or a provider of OpenID Connect. One of both."""

    header: Annotated[str, matches(HEADER, "must be the name of a header")] | None = setting(
        None, "Header in which a reverse proxy says who somebody is, such as X-Forwarded-Email."
    )
    proxies: Names = setting(
        (), "Addresses or networks of that proxy; from all others the header is refused."
    )
    issuer: Url | None = setting(None, "Address of the provider, as it calls itself.")
    client_id: Name | None = setting(None, "What the provider calls this page.")
    claim: Name = setting("email", "The claim that is a person's id in `access`.")


class WebSettings(TransportSection):
    """The page in the browser. Another address than loopback needs TLS, or a proxy that has it."""

    kind: Literal["web"] = setting("web", "Always this.")
    host: Name = setting("127.0.0.1", "Address to listen at; loopback is this machine alone.")
    port: Annotated[int, Field(ge=0, le=65535)] = setting(7777, "Its port; 0 takes any.")
    public_url: Url | None = setting(None, "What people type when a reverse proxy stands before the page.")
    tls_certificate: Folder | None = setting(None, "File with the certificate chain, PEM.")
    tls_key: Folder | None = setting(None, "File with its key, PEM.")
    files: Folder | None = setting(
        None, "Folder of the files that people and the bot send; null is `web` in the data folder."
    )
    titles: bool = setting(
        True, "Whether a model gives a thread its title, once it has an answer: a call of a few tokens."
    )
    sign_in: SignInSettings | None = setting(
        None, "Sign-in with the identity of the company; null lets in by links alone."
    )
    sign_in_secret: Secret | None = setting(None, "Reference to the secret that the provider gave this page.")
    titles_model: ModelName | None = setting(None, "The model that makes titles; null is that of the thread.")


def _faults(path: str, web: Document) -> Iterator[str]:
    """Check that nobody on the way can read along: a page that other machines reach needs TLS."""
    certificate, key, public_url = (web.get(name) for name in ("tls_certificate", "tls_key", "public_url"))
    if (certificate is None) != (key is None):
        yield f"{path}: tls_certificate and tls_key go together"
    if isinstance(public_url, str) and not public_url.startswith(
        ("https://", "http://127.", "http://localhost")
    ):
        yield f"{path}.public_url: must be an https address"
    if isinstance(sign_in := web.get("sign_in"), dict):
        yield from (f"{path}.sign_in{fault}" for fault in _sign_in_faults(sign_in))
    host = web.get("host", "127.0.0.1")
    if isinstance(host, str) and not is_loopback(host) and certificate is None and public_url is None:
        yield (
            f"{path}.host: other machines can reach this address; give tls_certificate and tls_key, or, "
            "behind a reverse proxy with TLS, public_url"
        )


def _sign_in_faults(given: Document) -> Iterator[str]:
    issuer, proxies = given.get("issuer"), given.get("proxies", [])
    if (given.get("header") is None) == (issuer is None):
        yield ": give either header and proxies, or issuer and client_id"
    if given.get("header") is not None and not proxies:
        yield ".proxies: name the addresses of the proxy, or anybody could say who they are"
    for proxy in proxies if isinstance(proxies, list) else ():
        try:
            ip_network(str(proxy))
        except ValueError as error:
            yield f".proxies: {error}"
    if issuer is not None and given.get("client_id") is None:
        yield ".client_id: the provider has one for this page"
    parts = urlsplit(issuer) if isinstance(issuer, str) else None
    if parts and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        yield ".issuer: must be an https address"


SETTINGS = TransportSettings(WebSettings, secrets=("sign_in_secret",), faults=_faults, is_single=True)
