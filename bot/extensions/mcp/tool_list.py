"""The list of a server's tools, made fit for a prompt that providers accept.

Names, descriptions and schemas are text from outside that stands where our own tools stand, and one tool that a
provider refuses fails every request. So a tool is fit, offered with less, or left out, and admins can see why:

| what                                                      | then                                          |
|-----------------------------------------------------------|-----------------------------------------------|
| invisible characters, tags that play a role               | removed from every text                       |
| a description over 1,000 characters                       | cut                                           |
| a schema that is not valid, or long, or leads elsewhere   | see `bot.extensions.mcp.schema_repair`             |
| a tool without a usable name, or listed twice             | left out                                      |
| over 64 tools or 200,000 characters of one server         | the rest is left out                          |
| over 96 tools of all                                      | the rest is left out                          |
| a name that providers refuse, or that is taken            | replaced, with a hash                         |

A description may still lie. The gate asks about the calls that it talks the model into.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from bot.extensions.mcp.plain_text import clean, truncate
from bot.extensions.mcp.schema_repair import repair_schema

MAX_DESCRIPTION = 1000
"""Characters of one tool's description."""
MAX_TOOLS = 64
"""Tools of one server."""
MAX_LISTING = 200_000
"""Characters of one server's descriptions and schemas: some 50,000 tokens of every request."""
MAX_WORK = 2_000_000
"""Characters of schemas that are repaired for one list."""
MAX_ALL = 96
"""Tools of all servers: OpenAI takes 128 in a request, and some are ours."""
MAX_READ = 20_000
"""Characters of a text that are read before it is cut."""
MAX_REPORTED = 20
"""Tools of one server for which it is said why they are left out, or what they lack."""
MAX_ACCEPTED = 256
"""Tools of one server, gone ones included, whose accepted forms are remembered."""
MAX_NAME = 64
"""Characters of a tool's name, see the providers' own pattern `^[a-zA-Z0-9_-]{1,64}$`."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class ListedTool(BaseModel):
    """One tool of a server, fit for a prompt; ``name`` is the server's own."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str
    parameters: dict[str, JsonValue]

    @property
    def digest(self) -> str:
        """Return a digest of all that a model and a person can know of it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class Listing(BaseModel):
    """The list of one server. ``digest`` is that of its settings.

    ``left_out`` names the tools that are not offered, and why; ``reduced`` those that are offered with less.
    ``accepted`` has the digests, by tool, of what a person has let the bot use; see `taken_up`.
    """

    model_config = ConfigDict(frozen=True)

    digest: str = ""
    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    accepted: dict[str, tuple[str, ...]] = {}

    def news(self, tool: ListedTool) -> Literal["", "new", "changed"]:
        """Return whether a tool is another one than a person has accepted."""
        digests = self.accepted.get(tool.name, ())
        return "" if tool.digest in digests else "changed" if digests else "new"

    def accepting(self, tools: Iterable[ListedTool]) -> Listing:
        """Return this list with these tools accepted as they are. A few earlier forms of each stay accepted."""
        accepted = dict(self.accepted)
        for tool in tools:
            accepted[tool.name] = tuple(dict.fromkeys([*accepted.pop(tool.name, ()), tool.digest]))[-4:]
        return self.model_copy(update={"accepted": dict([*accepted.items()][-MAX_ACCEPTED:])})

    def taken_up(self, before: Listing | None) -> Listing:
        """Return this new list with what was accepted in the one *before*; of a first list, that is all of it.

        Whoever put a server into the settings trusts what it lists then. It may turn bad later.
        """
        if before is None:
            return self.accepting(self.tools)
        return self.model_copy(update={"accepted": before.accepted})

    def joined(self, before: Listing | None) -> Listing:
        """Return this list and what the one *before* has beside it: each person may be shown other tools."""
        names = {tool.name for tool in self.tools}
        others = [tool for tool in before.tools if tool.name not in names] if before else []
        tools = sorted([*self.tools, *others], key=lambda tool: tool.name)[:MAX_TOOLS]
        return self.model_copy(update={"tools": tuple(tools)})


@dataclass(frozen=True, slots=True)
class RawTool:
    """One tool as the server sent it; ``parameters`` is its schema."""

    name: str
    description: str
    parameters: JsonValue


def check_tools(raw: Iterable[RawTool], digest: str = "", mask: Callable[[str], str] = str) -> Listing:
    """Return the tools that can be offered, by name. Takes some 3 ms a tool: not for the event loop.

    No text is cut inside a secret that *mask* knows.
    """
    tools: dict[str, ListedTool] = {}
    left_out: list[str] = []
    reduced: list[str] = []
    room, work = MAX_LISTING, MAX_WORK
    for tool in sorted(raw, key=lambda tool: tool.name):
        name = truncate(clean(tool.name[:MAX_READ]), 80, mask) or "(a tool without a name)"
        work -= len(json.dumps(tool.parameters))
        if not (problem := _problem(tool, tools)) and work < 0:
            problem = f"its server's schemas are longer than {MAX_WORK:,} characters"
        if not problem:
            repaired = repair_schema(tool.parameters)
            about = truncate(clean(tool.description[:MAX_READ]), MAX_DESCRIPTION, mask)
            listed = ListedTool(name=tool.name, description=about, parameters=repaired.schema)
            room -= (size := len(about) + len(json.dumps(repaired.schema)))
            if room >= 0:
                tools[tool.name] = listed
                reduced += [f"{name}: {'; '.join(repaired.faults)}"] if repaired.faults else []
                continue
            room += size
            problem = f"its server's tools are longer than {MAX_LISTING:,} characters"
        left_out.append(f"{name}: {problem}")
    return Listing(
        digest=digest, tools=tuple(tools.values()), left_out=_reported(left_out), reduced=_reported(reduced)
    )


def _reported(tools: list[str]) -> tuple[str, ...]:
    more = len(tools) - MAX_REPORTED
    return (*tools[:MAX_REPORTED], *([f"and {more} more"] if more > 0 else []))


def _problem(tool: RawTool, known: Collection[str]) -> str:
    """Return why no prompt can have the tool, or ""."""
    if not tool.name or len(tool.name) > 200:
        return "its name is empty or too long"
    if tool.name in known:
        return "it is listed twice"
    return f"a server may have {MAX_TOOLS} tools" if len(known) >= MAX_TOOLS else ""


def assign_names(
    listings: Sequence[tuple[str, Listing]], others: Collection[str] = ()
) -> Iterator[tuple[str, str, ListedTool]]:
    """Give every tool a name of its own: (our name, its server, the tool), sorted, with *others* at most `MAX_ALL`.

    A name stays what it is whatever other servers list, unless two of them are the same to the letter.
    """
    taken = set(others)
    offered = [(server, tool) for server, listing in listings for tool in listing.tools]
    room = max(0, MAX_ALL - len(taken))
    for server, tool in sorted(offered, key=lambda offer: (offer[0], offer[1].name))[:room]:
        name = f"{server}__{tool.name}"
        if _ODD.search(name) or len(name) > MAX_NAME or name in taken:
            digest = hashlib.sha256(f"{server}\0{tool.name}".encode("utf-8", "replace")).hexdigest()[:8]
            # Each half has its share: the `__` between them is what tells these tools from ours.
            name = f"{_ODD.sub('_', server)[:24]}__{_ODD.sub('_', tool.name)[:29]}_{digest}"
        taken.add(name)
        yield name, server, tool


def describe_losses(listing: Listing) -> str:
    """Return how many tools are offered with less or not at all, in a clause for people; "" if none is."""
    counts = {"offered with less": len(listing.reduced), "left out": len(listing.left_out)}
    told = [f"{count} {how}" for how, count in counts.items() if count]
    return f" ({', '.join(told)})" if told else ""


def count_tools(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"
