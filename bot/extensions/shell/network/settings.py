"""Which hosts commands may reach: `tools.network` in settings.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from bot.config.document import Document, object_in
from bot.config.parts import SettingsPart
from bot.config.settings import Secret, Section, setting

_TARGET = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::([1-9][0-9]{0,4}))?")
HTTPS = 443

Target = tuple[str, int]
"""A host and a port."""


def target_of(text: str) -> Target:
    """Return the host and the port of "HOST" or "HOST:PORT". Raises `ToolDenied`."""
    from bot.guards.urls import normalize_host  # noqa: PLC0415 - only where hosts are named
    from bot.ports.errors import ToolDenied  # noqa: PLC0415

    if not (match := _TARGET.fullmatch(text)) or int(match[2] or HTTPS) > 65535:
        raise ToolDenied("That is not a host with a port.")
    return normalize_host(match[1]), int(match[2] or HTTPS)


def written(target: Target) -> str:
    host, port = target
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_host(text: str) -> str:
    from bot.ports.errors import ToolDenied  # noqa: PLC0415 - as above

    try:
        target_of(text)
    except ToolDenied:
        words = 'must be a host such as "git.example.org" or "git.example.org:8443", without wildcards'
        raise PydanticCustomError("form", words) from None
    return text


_Host = Annotated[str, AfterValidator(_check_host)]
_Hosts = tuple[_Host, ...]


class Credential(Section):
    """A header that is added outside the sandbox."""

    host: _Host = Field(description="A host of `allow`, with its port; it has to speak TLS.")
    header: Secret = Field(
        description='Reference to the header, such as "PRIVATE-TOKEN: …"; without a name, it is Authorization.'
    )


class NetworkSettings(Section):
    """`tools.network`."""

    allow: _Hosts = setting((), "Hosts that commands reach, each with its port; 443 if there is none.")
    credentials: tuple[Credential, ...] = setting(
        (), "Headers for some of these hosts; no command sees them."
    )

    @model_validator(mode="after")
    def _has_hosts(self) -> Self:
        if {target_of(one.host) for one in self.credentials} - {*map(target_of, self.allow)}:
            raise PydanticCustomError("form", "a host of credentials is not in allow")
        return self


def _faults(document: Document) -> Iterator[str]:
    tools = object_in(document.get("tools"))
    if tools.get("network") and tools.get("sandbox") in ("landlock", "unsafe-host"):
        yield 'tools.network: only bubblewrap gives a command a network of its own; set tools.sandbox to "auto"'


def _references(given: NetworkSettings | None) -> dict[str, str | None]:
    credentials = given.credentials if given else ()
    return {f"credentials[{i}].header": one.header for i, one in enumerate(credentials)}


FIELD = FieldInfo(
    default=None, description="Hosts that commands reach through our proxy; null for no network."
)
NETWORK = SettingsPart[NetworkSettings | None](
    "tools.network", NetworkSettings | None, FIELD, _faults, _references
)
