"""A server's settings made ready for a connection: secrets looked up, an environment with nothing of ours in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from bot.config.load import resolve_secret
from bot.config.settings import REFERENCE, McpServer
from bot.ports.errors import ConfigInvalid
from bot.tools.mcp.target import Address, Program

PASSED_ON = ("PATH", "HOME", "LANG")
"""What a server gets of our environment."""
RULES = 1
"""Counts up when `bot.tools.mcp.tool_list` judges otherwise: what was kept before is listed anew then."""


def resolve_target(
    settings: McpServer, environ: Mapping[str, str]
) -> tuple[Program | Address, frozenset[str]]:
    """Return where to connect to, and the secrets in it. Blocking. Raises `ConfigInvalid`."""
    given = settings.headers if settings.url else settings.env
    values = {name: _value(value, environ) for name, value in given.items()}
    secrets = frozenset(values[name] for name, value in given.items() if REFERENCE.fullmatch(value))
    if settings.url:
        return Address(settings.url, values), secrets
    if settings.command is None:
        raise ConfigInvalid("a server has either a command or a url")
    inherited = {name: environ[name] for name in PASSED_ON if name in environ}
    return Program(settings.command, settings.args, {"PATH": os.defpath, **inherited, **values}), secrets


def _value(value: str, environ: Mapping[str, str]) -> str:
    return resolve_secret(value, environ) if REFERENCE.fullmatch(value) else value


def settings_digest(settings: McpServer) -> str:
    """Return what stands for these settings; secrets are in it by reference alone."""
    return hashlib.sha256(f"{RULES}{settings.model_dump_json()}".encode()).hexdigest()[:16]
