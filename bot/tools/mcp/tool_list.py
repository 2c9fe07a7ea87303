"""The list of a server's tools, made fit for a prompt that providers accept.

Names, descriptions and schemas are text from outside that stands where our own tools stand, and one tool that a
provider refuses fails every request. So a tool is fit or left out, and the log says which and why:

| what                                                          | then                    |
|---------------------------------------------------------------|-------------------------|
| invisible characters, tags that play a role                   | removed from every text |
| a description over 1,000 characters                           | cut                     |
| a tool that breaks the protocol                               | left out                |
| a schema that is not valid, not of an object, long, deep, or  | the tool is left out    |
| that leads elsewhere, has keys or values a prompt cannot have |                         |
| over 64 tools or 200,000 characters of one server             | the rest is left out    |
| over 96 tools of all                                          | the rest is left out    |
| a name that providers refuse, or that is taken                | replaced, with a hash   |

A description may still lie. The gate asks about the calls that it talks the model into.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, JsonValue

from bot.guards.redaction import safe_prefix
from bot.tools.mcp.schema import MAX_SCHEMA, schema_problem, walk
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
MAX_READ = 20_000
"""Characters of a text that are read before it is cut."""
MAX_REPORTED = 20
"""Tools of one server for which the log says why they are left out."""
MAX_NAME = 64
"""Characters of a tool's name, see the providers' own pattern `^[a-zA-Z0-9_-]{1,64}$`."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_ROLE = re.compile(
    r"<\s*/?\s*(?:outside|system|assistant|user|human|developer|important|instructions?|secret|antml:\w+|"
    r"tool_?\w*|function_?\w*|invoke)\b[^<>]{0,200}>?",
    re.IGNORECASE,
)
_FOR_PEOPLE = frozenset({"description", "title", "$comment"})


class ListedTool(BaseModel):
    """One tool of a server, fit for a prompt; ``name`` is the server's own."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str
    parameters: dict[str, JsonValue]


class Listing(BaseModel):
    """The list of one server. ``digest`` is that of its settings; ``left_out`` names the other tools, and why."""

    model_config = ConfigDict(frozen=True)

    digest: str = ""
    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawTool:
    """One tool as the server sent it; *fault* says how it breaks the protocol."""

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
        checked_size = min(size, MAX_SCHEMA)  # a tool that is too long by itself is reported as that
        if tool.fault:
            problem = tool.fault
        elif tool.name in tools:
            problem = "it is listed twice"
        elif len(tools) >= MAX_TOOLS:
            problem = f"a server may have {MAX_TOOLS} tools"
        elif checked_size > min(room, work):
            problem = f"its server's tools are longer than {MAX_LISTING:,} characters"
        else:
            problem = _problem(tool)
        work -= checked_size
        if problem:
            left_out.append(f"{truncate(clean(tool.name[:MAX_READ]), 80, mask)}: {problem}")
        else:
            tools[tool.name] = _clean_tool(tool, mask)
            room -= size
    if (more := len(left_out) - MAX_REPORTED) > 0:
        left_out[MAX_REPORTED:] = [f"and {more} more"]
    return Listing(digest=digest, tools=tuple(tools.values()), left_out=tuple(left_out))


def _problem(tool: RawTool) -> str:
    """Return why no prompt can have the tool, or ""."""
    if not tool.name or len(tool.name) > 200:
        return "its name is empty or too long"
    if problem := schema_problem(tool.parameters):
        return problem
    # What the server compares with must stay to the letter; only texts for people can be cleaned.
    exact = [key for _, key, _ in walk(tool.parameters)]
    exact += [v for _, key, v in walk(tool.parameters) if isinstance(v, str) and key not in _FOR_PEOPLE]
    if any(_ROLE.search(text) or _visible(text) != text for text in exact):
        return "its schema holds characters that are not seen, or tags that play a role"
    return ""


def _clean_tool(tool: RawTool, mask: Callable[[str], str]) -> ListedTool:
    """Return the tool with its texts cleaned."""
    return ListedTool(
        name=tool.name,
        description=truncate(clean(tool.description[:MAX_READ]), MAX_DESCRIPTION, mask),
        parameters={
            key: _clean_schema(value, key) for key, value in tool.parameters.items() if key != "$schema"
        },
    )


def _clean_schema(value: JsonValue, key: str = "") -> JsonValue:
    """Return a part of a schema with its texts for people cleaned."""
    match value:
        case str() if key in _FOR_PEOPLE:
            return clean(value)
        case dict():
            return {name: _clean_schema(item, name) for name, item in value.items()}
        case list():
            return [_clean_schema(item) for item in value]
        case _:
            return value


def assign_names(listings: Sequence[tuple[str, Listing]]) -> Iterator[tuple[str, str, ListedTool]]:
    """Give every tool a name of its own: (our name, its server, the tool), sorted, at most `MAX_ALL`.

    A name stays what it is whatever other servers list, unless two of them are the same to the letter.
    """
    taken: set[str] = set()
    offered = [(server, tool) for server, listing in listings for tool in listing.tools]
    for server, tool in sorted(offered, key=lambda offer: (offer[0], offer[1].name))[:MAX_ALL]:
        name = f"{server}__{tool.name}"
        if _ODD.search(name) or len(name) > MAX_NAME or name in taken:
            digest = hashlib.sha256(f"{server}\0{tool.name}".encode("utf-8", "replace")).hexdigest()[:8]
            # Each half has its share: the `__` between them is what tells these tools from ours.
            name = f"{_ODD.sub('_', server)[:24]}__{_ODD.sub('_', tool.name)[:29]}_{digest}"
        taken.add(name)
        yield name, server, tool


def clean(text: str) -> str:
    """Return *text* on one line, without invisible characters and without tags that would play a role."""
    visible = _visible(scrub(text))
    while (without := _ROLE.sub("", visible)) != visible:  # what is left may have become a tag
        visible = without
    return " ".join(visible.split())


def _visible(text: str) -> str:
    return prose(text, lambda _: "", kept="\n\r\t")


def truncate(text: str, limit: int, mask: Callable[[str], str]) -> str:
    """Shorten *text* to *limit* characters, but not inside a secret that *mask* knows."""
    return text if len(text) <= limit else f"{safe_prefix(text, limit - 1, mask)}…"


def count_tools(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"
