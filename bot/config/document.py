"""Reading settings.json as plain JSON, before it is known to be valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

Document = Mapping[str, JsonValue]
"""settings.json, or an object in it, as it was written: before anything in it was checked."""


def path_of(location: Iterable[str | int]) -> str:
    """Write a place as ``a.b[1]``, with nothing of it able to break the line."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{plain(step)}" for step in location)
    return "".join(step for step in steps if step != ".[key]").removeprefix(".")


def plain(key: str) -> str:
    """Return a name from outside in a form that cannot break the line."""
    return ascii(key[:60])[1:-1] or '""'


def object_in(value: JsonValue) -> dict[str, JsonValue]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def everywhere(document: Document) -> Iterator[tuple[tuple[str, ...], Document]]:
    """Yield the settings for everybody and those of each scope, with their places."""
    yield (), document
    for name, scope in object_in(document.get("scopes")).items():
        yield ("scopes", name), object_in(scope)
