"""The MCP servers in settings.json: `mcp_servers`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field, JsonValue
from pydantic.fields import FieldInfo

from bot.config.document import Document, everywhere, object_in, path_of, plain
from bot.config.json_text import near
from bot.config.parts import SettingsPart
from bot.config.settings import REFERENCE, Name, Port, Secret, Section, Url, setting

SECRET_WORDS = re.compile(r"token|secret|passw|key|credential|auth", re.IGNORECASE)


class McpOAuth(Section):
    """Sign-in at an MCP server that has a `url`."""

    account: Literal["person", "bot"] = setting(
        "person", "`person`: each asker's own account; `bot`: one account for all."
    )
    client_id: Name | None = setting(None, "Null registers the bot by itself.")
    client_secret: Secret | None = setting(None, "Reference to the client's secret.")
    redirect_port: Port = setting(8976, "Port of the redirect address on 127.0.0.1.")


class McpServer(Section):
    """An MCP server: a `command` spoken to on stdio, or a `url`."""

    command: Name | None = setting(None, "Program to start.")
    args: tuple[str, ...] = setting((), "Its arguments.")
    env: dict[Name, str] = Field(
        default_factory=dict, description='Its environment; "env:NAME" and "file:PATH" are resolved.'
    )
    url: Url | None = setting(None, "Address of a streamable HTTP server.")
    headers: dict[Name, Secret] = Field(default_factory=dict, description="Its headers, by reference.")
    oauth: McpOAuth | None = setting(None, "How to sign in; null does not sign in.")


def _faults(document: Document) -> Iterator[str]:
    yield from _server_faults(object_in(document.get("mcp_servers")))
    yield from _server_name_faults(document)


def _references(servers: Mapping[str, McpServer]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, server in servers.items():
        for key, value in (*server.env.items(), *server.headers.items()):
            found[f"{name}.{key}"] = value if REFERENCE.fullmatch(value) else None
        if server.oauth:
            found[f"{name}.oauth.client_secret"] = server.oauth.client_secret
    return found


def _server_faults(servers: Mapping[str, JsonValue]) -> Iterator[str]:
    for name, entry in servers.items():
        if not isinstance(entry, dict):
            continue
        path = path_of(("mcp_servers", name))
        if (entry.get("command") is None) == (entry.get("url") is None):
            yield f"{path}: must have either a command or a url"
        yield from _oauth_faults(path, entry)
        for variable, value in object_in(entry.get("env")).items():
            literal = isinstance(value, str) and value and not REFERENCE.fullmatch(value)
            if literal and SECRET_WORDS.search(variable):
                yield f'{path}.env.{plain(variable)}: looks like a secret: must be "env:NAME" or "file:PATH"'


def _oauth_faults(path: str, server: Mapping[str, JsonValue]) -> Iterator[str]:
    oauth = server.get("oauth")
    if not isinstance(oauth, dict):
        return
    if server.get("url") is None:
        yield f"{path}.oauth: needs a url; a command signs in by its own means"
    if any(name.lower() == "authorization" for name in object_in(server.get("headers"))):
        yield f"{path}.oauth: leave out the header Authorization; the sign-in sets it"
    if oauth.get("client_secret") is not None and oauth.get("client_id") is None:
        yield f"{path}.oauth.client_id: is required with a client_secret"


def _server_name_faults(document: Mapping[str, JsonValue]) -> Iterator[str]:
    known = sorted(object_in(document.get("mcp_servers")))
    for place, given in everywhere(document):
        names = object_in(given.get("tools")).get("mcp_servers")
        for i, name in enumerate(names if isinstance(names, list) else []):
            if isinstance(name, str) and name not in known:
                hint = near(name, [*map(plain, known)]) or f"there are {len(known) or 'none'}"
                path = path_of((*place, "tools", "mcp_servers", i))
                yield f'{path}: no MCP server is called "{plain(name)}"; {hint}'


MCP_SERVERS = SettingsPart[dict[str, McpServer]](
    "mcp_servers",
    dict[Name, McpServer],
    FieldInfo(default_factory=dict, description="MCP servers by name."),
    _faults,
    _references,
)
