"""Makes what commands reach from the settings, and tries it before it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from bot.config.load import resolve_secret
from bot.config.network import tls_context
from bot.config.settings import Settings
from bot.guards.egress import Egress
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import SandboxFailed

from .echo_mask import forms_of
from .proxy import Added, Network, Proxy
from .settings import NetworkSettings, Target, target_of

if TYPE_CHECKING:
    from bot.extensions.shell.sandbox import Sandbox

PROBE_S = 15.0
NO_WALL = (
    "tools.network is refused, and commands have no network: they need one of their own, which fails here"
)

_NAMED = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]+(.+)")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def open_network(
    given: NetworkSettings, settings: Settings, environ: Mapping[str, str], egress: Egress
) -> Network:
    """Return what commands reach. Blocking. Raises `ConfigInvalid`."""
    import httpx2  # noqa: PLC0415 - slow

    from .certificates import tls_as  # noqa: PLC0415 - as above

    tls = tls_context(settings.ca_file) or httpx2.create_ssl_context()
    allowed = frozenset(map(target_of, given.allow))
    return Network(allowed, headers_of(given, environ), egress, tls, *tls_as({host for host, _ in allowed}))


def headers_of(given: NetworkSettings, environ: Mapping[str, str]) -> dict[Target, Added]:
    """Return the headers by the host that they are for. Raises `ConfigInvalid`."""
    headers: dict[Target, Added] = {}
    for one in given.credentials:
        secret = resolve_secret(one.header, environ)
        named = _NAMED.fullmatch(secret)
        name, value = (named[1], named[2]) if named else ("Authorization", secret)
        if not _VALUE.fullmatch(value):
            raise ConfigInvalid(f"tools.network.credentials: {one.header} is not a header")
        headers[target_of(one.host)] = Added(name.encode(), value.encode(), forms_of(value))
    return headers


async def find_fault(network: Network, sandbox: Sandbox, folder: Path) -> str:
    """Return why commands cannot have a network of their own here, or "". *folder* has the workspaces."""
    if sandbox.layer != "bubblewrap":
        return f"{NO_WALL} ({sandbox.why})"

    async def nothing(*_: object) -> None:
        await anyio.lowlevel.checkpoint()  # the probe connects to nobody

    with TemporaryDirectory(prefix="probe-", dir=folder, ignore_cleanup_errors=True) as workspace:
        try:
            proxy, deadline = Proxy(network, nothing, nothing), anyio.current_time() + PROBE_S
            await sandbox.run("true", Path(workspace), deadline, proxy)
        except SandboxFailed as error:
            return f"{NO_WALL} ({error.__cause__ or error})"
    return ""
