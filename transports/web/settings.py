"""The settings of the page in the browser: ``transports.web``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from bot.config.document import Document
from bot.config.settings import Folder, ModelName, Name, Url, setting
from bot.config.transports import TransportSection, TransportSettings
from transports.web.address import is_loopback


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
    host = web.get("host", "127.0.0.1")
    if isinstance(host, str) and not is_loopback(host) and certificate is None and public_url is None:
        yield (
            f"{path}.host: other machines can reach this address; give tls_certificate and tls_key, or, "
            "behind a reverse proxy with TLS, public_url"
        )


SETTINGS = TransportSettings(WebSettings, faults=_faults, is_single=True)
