"""A message as Discord sends it, put into a form that the library (2.7.1) can read; pure.

The types of components and messages that the library does not have are told to ``count``.

| as Discord sends it                                  | the library                | here                      |
|------------------------------------------------------|----------------------------|---------------------------|
| a poll without an end (``expiry`` null or missing)   | cannot read the message    | it ends when it begins    |
| a component of a type that the library does not have | leaves it out              | a text that names the type |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import discord

Count = Callable[[str], None]
"""Takes a kind of which a message has a part that cannot be read."""

KNOWN_COMPONENTS = frozenset(kind.value for kind in discord.ComponentType)
KNOWN_MESSAGES = frozenset(kind.value for kind in discord.MessageType)
NESTED = ("components", "accessory", "component")
"""The fields of a component that hold others."""

TEXT = discord.ComponentType.text_display.value

DEEPEST, MOST_COMPONENTS = 8, 100
"""How deep components may stand in each other, and how many side by side; Discord takes 40 in all."""


def uncounted(_: str) -> None:
    """Count nothing."""


def readable(message: Any, count: Count = uncounted) -> Any:
    """Return a message, and those that it forwards or replies to, in a form that the library can read."""
    return _message(message, 2, count)


def _message(message: Any, depth: int, count: Count) -> Any:
    if not isinstance(message, dict) or not depth:
        return message
    changed = {**message}
    if isinstance(kind := changed.get("type"), int) and kind not in KNOWN_MESSAGES:
        count(f"message {kind}")
    if "components" in changed:
        changed["components"] = _components(changed["components"], DEEPEST, count)
    if isinstance(poll := changed.get("poll"), dict) and not poll.get("expiry"):
        changed["poll"] = {**poll, "expiry": changed.get("timestamp")}
    if "referenced_message" in changed:
        changed["referenced_message"] = _message(changed["referenced_message"], depth - 1, count)
    if isinstance(snapshots := changed.get("message_snapshots"), list):
        changed["message_snapshots"] = [
            {**one, "message": _message(one.get("message"), depth - 1, count)}
            if isinstance(one, dict)
            else one
            for one in snapshots
        ]
    return changed


def _components(value: Any, depth: int, count: Count) -> Any:
    match value:
        case list():
            shown = [_components(one, depth, count) for one in value[:MOST_COMPONENTS]]
            more = len(value) - len(shown)
            return [*shown, _text(f"[{more} more components, which I leave out]")] if more else shown
        case {"type": kind} if not isinstance(kind, int) or kind not in KNOWN_COMPONENTS or not depth:
            named = str(kind)[:20]
            count(f"component {named}")
            return _text(f"[a component of type {named} that I cannot read]")
        case Mapping():
            held = {name: _components(value[name], depth - 1, count) for name in NESTED if name in value}
            return {**value, **held}
        case _:
            return value


def _text(words: str) -> dict[str, Any]:
    return {"type": TEXT, "content": words}
