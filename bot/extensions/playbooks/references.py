"""What a playbook refers to outside of itself, and which of it is not there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bot.config.json_text import near
from bot.config.scopes import enabled_anywhere
from bot.config.settings import Settings, ToolName, built_in_providers
from bot.extensions.playbooks.definition import Playbook, Stage
from bot.guards.policy import FOREIGN
from bot.host.extension import groups_of

Place = tuple[str | int, ...]
Fault = tuple[Place, str]

TOOLS: Mapping[ToolName, tuple[str, ...]] = {
    "files": ("attach", "edit_file", "list_files", "read_file", "search_files", "write_file"),
    "shell": ("shell",),
    "web_fetch": ("web_fetch", "web_search"),
    "browser": ("browser",),
    "memory": ("recall", "remember"),
    "skills": ("load_skill",),
    "schedule": ("schedule", "schedules", "unschedule"),
    "ask_person": ("ask_person",),
    "thread_search": ("search_threads",),
}
"""The tools behind each name in `tools.enabled`."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
"""Characters of a server's name that are written as `_` in the names of its tools."""

_GROUPS = {tool: group for group, tools in TOOLS.items() for tool in tools}


@dataclass(frozen=True, slots=True)
class Known:
    """What there is: names in `tools.enabled`, of everybody or of a scope, MCP servers, and providers of models."""

    enabled: frozenset[str]
    servers: frozenset[str]
    providers: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> Known:
        providers = {*built_in_providers(), *settings.providers, "offline"}
        servers = {form for name in groups_of(settings) for form in (name, _ODD.sub("_", name)[:24])}
        return cls(enabled_anywhere(settings), frozenset(servers), frozenset(providers))


def reference_faults(playbook: Playbook, known: Known) -> Iterator[Fault]:
    """Yield a fault for each tool, server and provider that a stage names and that is not there."""
    for number, stage in enumerate(playbook.stages):
        for place, words in _stage_faults(stage, known):
            yield ("stages", number, *place), words


def _stage_faults(stage: Stage, known: Known) -> Iterator[Fault]:
    for number, tool in enumerate(stage.act.tools or ()):
        if fault := _tool_fault(tool, known):
            yield ("act", "tools", number), fault
    provider = (stage.act.model or "").partition("/")[0]
    if provider and provider not in known.providers:
        yield ("act", "model"), f'no provider is called "{provider}"; {nearest(provider, known.providers)}'
    if stage.setup.files and (fault := _tool_fault("read_file", known)):
        yield ("setup", "files"), f"needs {fault}"
    for number, check in enumerate(stage.assert_.checks):
        if check.command is not None and (fault := _tool_fault("shell", known)):
            yield ("assert", "checks", number, "command"), f"needs {fault}"


def _tool_fault(tool: str, known: Known) -> str:
    """Return why there is no such tool, or a blank. Which tools a server has is known only while it runs."""
    if FOREIGN in tool:
        if (server := tool.partition(FOREIGN)[0]) in known.servers:
            return ""
        return f'a tool of the MCP server "{server}", and there is none; {nearest(server, known.servers)}'
    if (group := _GROUPS.get(tool)) is None:
        return f'there is no tool "{tool}"; {nearest(tool, _GROUPS)}'
    return "" if group in known.enabled else f'the tool "{tool}": add "{group}" to tools.enabled'


def nearest(name: str, names: Iterable[str]) -> str:
    """Return which of *names* is meant, or which there are, in words."""
    known = list(names)
    return near(name, known) or f"there are {len(known) or 'none'}"
