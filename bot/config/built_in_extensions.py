"""The extensions that come with the program: one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """An extension that comes with the program: its module, and what is asked for by name.

    That are its keys in settings.json and in `tools.enabled`, and its commands of the program, each with the place of
    its `click` command. So a command is found without loading every extension, and of a setting it can be said which
    extension it belongs to, also if that is not here.
    """

    module: str
    keys: Sequence[str] = ()
    tools: Sequence[str] = ()
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        return find_spec(self.module.rpartition(".")[0]) is not None


BUILT_IN: Mapping[str, BuiltIn] = {
    "browser": BuiltIn("bot.extensions.browser.extension", tools=("browser",)),
    "mcp": BuiltIn(
        "bot.extensions.mcp.extension",
        keys=("mcp_servers",),
        commands={"mcp": "bot.extensions.mcp.command:mcp"},
    ),
    "tracing": BuiltIn("bot.extensions.tracing.extension", keys=("observe.otlp_endpoint",)),
}
