"""A server's settings made ready for a connection: its secrets, and an environment without ours."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot.config.load import resolve_secret
from bot.config.settings import REFERENCE, McpServer
from bot.ports.config_error import ConfigInvalid

PASSED_ON = ("PATH", "HOME", "LANG")
"""What a server gets of our environment."""
RULES = 1
"""Counts up when the rules of `bot.tools.mcp.tool_list` change: stored lists are then replaced."""


@dataclass(frozen=True, slots=True)
class Program:
    """A server to start."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """A server to reach."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


def resolve_target(
    settings: McpServer, environ: Mapping[str, str]
) -> tuple[Program | Address, Collection[str]]:
    """Return where to connect to, and the secrets in it. Blocking. Raises `ConfigInvalid`."""
    values = dict(settings.headers if settings.url else settings.env)
    secrets = {name: resolve_secret(v, environ) for name, v in values.items() if REFERENCE.fullmatch(v)}
    values |= secrets
    if settings.url:
        return Address(settings.url, values), secrets.values()
    if settings.command is None:
        raise ConfigInvalid("a server has either a command or a url")
    inherited = {name: environ[name] for name in PASSED_ON if name in environ}
    env = {"PATH": os.defpath, **inherited, **values}
    return Program(settings.command, settings.args, env), secrets.values()


def settings_digest(settings: McpServer) -> str:
    """Return a digest of these settings; it covers secrets by reference only."""
    return hashlib.sha256(f"{RULES}{settings.model_dump_json()}".encode()).hexdigest()[:16]
