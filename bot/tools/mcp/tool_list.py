"""What a server says of its tools, made fit to stand in a prompt that providers accept.

Names, descriptions and schemas are text from outside that stands where our own tools stand, and one tool that a
provider refuses fails every request. So a tool is taken as it should be or left out, and it is said which and why:

| what                                                         | then                     |
|--------------------------------------------------------------|--------------------------|
| characters that are not seen, tags that play a role          | taken out of every text  |
| a description over 1,000 characters                          | cut                           |
| what is not in the form of the protocol                      | the tool is left out     |
| a schema that is none, not of an object, too long, too deep, | the tool is left out     |
| that leads elsewhere, with keys or values a prompt cannot have |                        |
| over 64 tools or 200,000 characters of one server            | the rest is left out     |
| over 96 tools of all                                         | the rest is left out     |
| a name that is no tool's name, or taken                      | made one, with a hash    |

That a description says something false cannot be seen here. What it talks the model into, the gate asks about.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, JsonValue

from bot.guards.redaction import safe_prefix
from bot.tools.mcp.schema import MAX_SCHEMA, schema_problem
from threads.invisible_text import prose
from threads.store.checksummed_lines import scrub

MAX_DESCRIPTION = 1000
"""Characters of one tool's description."""
MAX_TOOLS = 64
"""Tools of one server."""
MAX_LISTING = 200_000
"""Characters of one server's descriptions and schemas: some 50,000 tokens of every request."""
MAX_ALL = 96
"""Tools of all servers: OpenAI takes 128 in a request, and some are ours."""
LOOKED_AT = 20_000
"""Characters of a text that are looked at before it is cut."""
MAX_TOLD = 20
"""Tools of one server of which it is told why they were left out."""
MAX_NAME = 64
"""Characters of a tool's name, see the providers' own pattern `^[a-zA-Z0-9_-]{1,64}$`."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_ROLE = re.compile(
    r"<\s*/?\s*(?:outside|system|assistant|user|human|developer|important|instructions?|secret|antml:\w+|"
    r"tool_?\w*|function_?\w*|invoke)\b[^<>]{0,200}>?",
    re.IGNORECASE,
)
_FOR_PEOPLE = frozenset({"description", "title", "$comment"})
_BLANK = "\n\r\t"


class ListedTool(BaseModel):
    """One tool of a server, fit for a prompt; ``name`` is the server's own."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str
    parameters: dict[str, JsonValue]


class Listing(BaseModel):
    """What one server lists. ``digest`` is that of the settings it was listed under; ``left_out`` says why."""

    model_config = ConfigDict(frozen=True)

    digest: str = ""
    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawTool:
    """One tool as the server sent it; *fault* says what about it is not in the form of the protocol."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    fault: str = ""


def check_tools(raw: Iterable[RawTool], digest: str = "", mask: Callable[[str], str] = str) -> Listing:
    """Return the tools that can be offered, by name. Takes some 3 ms a tool: not for the event loop.

    No text is cut inside a secret that *mask* knows.
    """
    tools: dict[str, ListedTool] = {}
    left_out: list[str] = []
    room, work = MAX_LISTING, 2 * MAX_LISTING
    for tool in sorted(raw, key=lambda tool: tool.name):
        size = min(len(tool.description), MAX_DESCRIPTION) + len(json.dumps(tool.parameters))
        told = tool.fault or _no_room(tool.name, tools, size, min(room, work)) or _told(tool, mask)
        work -= min(size, MAX_SCHEMA)
        if isinstance(told, str):
            left_out.append(f"{truncate(clean(tool.name[:LOOKED_AT]), 80, mask)}: {told}")
        else:
            tools[tool.name] = told
            room -= size
    return Listing(digest=digest, tools=tuple(tools.values()), left_out=_shortened(left_out))


def _no_room(name: str, taken: dict[str, ListedTool], size: int, room: int) -> str:
    if name in taken:
        return "it is listed twice"
    if len(taken) >= MAX_TOOLS:
        return f"a server may have {MAX_TOOLS} tools"
    # One that is too long by itself is told so: it is not the fault of the others.
    return (
        f"its server's tools are longer than {MAX_LISTING:,} characters"
        if min(size, MAX_SCHEMA) > room
        else ""
    )


def _told(tool: RawTool, mask: Callable[[str], str]) -> ListedTool | str:
    """Return the tool as a prompt may have it, or why none may."""
    if not tool.name or len(tool.name) > 200:
        return "its name is empty or too long"
    if why := schema_problem(tool.parameters):
        return why
    if any(_plays(text) for text in _values(tool.parameters)):
        return "its schema holds characters that are not seen, or tags that play a role"
    description = truncate(clean(tool.description[:LOOKED_AT]), MAX_DESCRIPTION, mask)
    shown = {name: value for name, value in tool.parameters.items() if name != "$schema"}
    return ListedTool(name=tool.name, description=description, parameters=_cleaned(shown))


def _shortened(left_out: list[str]) -> tuple[str, ...]:
    more = len(left_out) - MAX_TOLD
    return (*left_out[:MAX_TOLD], *([f"and {more} more"] if more > 0 else []))


def assign_names(listings: Sequence[tuple[str, Listing]]) -> Iterator[tuple[str, str, ListedTool]]:
    """Give every tool a name of its own: (our name, its server, the tool), sorted, at most `MAX_ALL`.

    A name stays what it is whatever other servers list, unless two of them are the same to the letter.
    """
    taken: set[str] = set()
    offered = sorted(((server, tool) for server, listing in listings for tool in listing.tools), key=_key)
    for server, tool in offered[:MAX_ALL]:
        fit = name = f"{server}__{tool.name}"
        if _ODD.search(name) or len(name) > MAX_NAME or name in taken:
            seal = hashlib.sha256(f"{server}\0{tool.name}".encode("utf-8", "replace")).hexdigest()[:8]
            # Each half has its share: the `__` between them is what tells these tools from ours.
            fit = f"{_ODD.sub('_', server)[:24]}__{_ODD.sub('_', tool.name)[:29]}_{seal}"
        taken.add(fit)
        yield fit, server, tool


def _key(offered: tuple[str, ListedTool]) -> tuple[str, str]:
    return offered[0], offered[1].name


def clean(text: str) -> str:
    """Return *text* on one line, without what is not seen and without tags that would play a role."""
    seen = _seen(scrub(text))
    while (without := _ROLE.sub("", seen)) != seen:  # what is left may have become a tag
        seen = without
    return " ".join(seen.split())


def _seen(text: str) -> str:
    return prose(text, lambda _: "", kept=_BLANK)


def truncate(text: str, limit: int, mask: Callable[[str], str]) -> str:
    """Shorten *text* to *limit* characters, but not inside a secret that *mask* knows."""
    return text if len(text) <= limit else f"{safe_prefix(text, limit - 1, mask)}…"


def count_tools(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"


def _plays(text: str) -> bool:
    return bool(_ROLE.search(text)) or _seen(text) != text


def _values(value: JsonValue, name: str = "") -> Iterator[str]:
    """Return the strings of a schema that must stay to the letter: what the server compares with."""
    match value:
        case str() if name not in _FOR_PEOPLE:
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from _values(item, key)
        case list():
            for item in value:
                yield from _values(item)
        case _:
            pass


def _cleaned(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a schema with its texts for people cleaned."""
    return {name: _cleaned_value(name, item) for name, item in value.items()}


def _cleaned_value(name: str, value: JsonValue) -> JsonValue:
    match value:
        case str() if name in _FOR_PEOPLE:
            return clean(value)
        case dict():
            return _cleaned(value)
        case list():
            return [_cleaned_value("", item) for item in value]
        case _:
            return value
