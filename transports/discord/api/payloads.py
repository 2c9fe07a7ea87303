"""A message as Discord sends it, put into a form that the library (2.7.1) can read; pure.

| as Discord sends it                                  | the library                | here                      |
|------------------------------------------------------|----------------------------|---------------------------|
| a poll without an end (``expiry`` null or missing)   | cannot read the message    | it ends when it begins    |
| a component of a type that the library does not have | leaves it out              | a text that names the type |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import discord

KNOWN_COMPONENTS = frozenset(kind.value for kind in discord.ComponentType)
NESTED = ("components", "accessory", "component")
"""The fields of a component that hold others."""

DEEPEST = 8


def readable(message: Any) -> Any:
    """Return a message, and those that it forwards or replies to, in a form that the library can read."""
    return _message(message, 2)


def _message(message: Any, depth: int) -> Any:
    if not isinstance(message, dict) or not depth:
        return message
    changed = {**message}
    if "components" in changed:
        changed["components"] = _components(changed["components"], DEEPEST)
    if isinstance(poll := changed.get("poll"), dict) and not poll.get("expiry"):
        changed["poll"] = {**poll, "expiry": changed.get("timestamp")}
    if "referenced_message" in changed:
        changed["referenced_message"] = _message(changed["referenced_message"], depth - 1)
    if isinstance(snapshots := changed.get("message_snapshots"), list):
        changed["message_snapshots"] = [
            {**one, "message": _message(one.get("message"), depth - 1)} if isinstance(one, dict) else one
            for one in snapshots
        ]
    return changed


def _components(value: Any, depth: int) -> Any:
    match value:
        case list():
            return [_components(one, depth) for one in value]
        case {"type": kind} if kind not in KNOWN_COMPONENTS or not depth:
            return {"type": 10, "content": f"[a component of type {str(kind)[:20]} that I cannot read]"}
        case Mapping():
            held = {name: _components(value[name], depth - 1) for name in NESTED if name in value}
            return {**value, **held}
        case _:
            return value
