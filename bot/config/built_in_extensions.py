"""The extensions that come with the program: one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec


def has_module(name: str) -> bool:
    """Return whether a module is installed."""
    with suppress(ModuleNotFoundError):  # not even the package that it is in
        return find_spec(name) is not None
    return False


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """An extension that comes with the program: its module, and what is asked for by name.

    These are its keys in settings.json, its names in `tools.enabled`, `store.kind` and the kinds of providers, its
    commands of the program, which its module ``command`` has by these names, and its JSON Schemas, each with the
    place of what returns it. So they are found without loading every extension, and a setting of one that is not here
    is told as such.
    """

    module: str
    keys: Sequence[str] = ()
    tools: Sequence[str] = ()
    stores: Sequence[str] = ()
    models: Sequence[str] = ()
    commands: Sequence[str] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        return self.module.rpartition(".")[0]

    @property
    def is_here(self) -> bool:
        return find_spec(self.package) is not None


BUILT_IN: Mapping[str, BuiltIn] = {
    "anthropic": BuiltIn("bot.extensions.anthropic.extension", models=("anthropic", "bedrock", "vertex")),
    "backup": BuiltIn("bot.extensions.backup.extension", commands=("backup", "restore")),
    "browser": BuiltIn("bot.extensions.browser.extension", tools=("browser",)),
    "doctor": BuiltIn("bot.extensions.doctor.extension", commands=("check", "doctor", "extensions")),
    "documents": BuiltIn("bot.extensions.documents.extension"),
    "events": BuiltIn("bot.extensions.events.extension", keys=("events",), commands=("post",)),
    "files": BuiltIn("bot.extensions.files.extension", tools=("files",)),
    "jobs": BuiltIn("bot.extensions.jobs.extension", keys=("jobs",), tools=("jobs",)),
    "mcp": BuiltIn("bot.extensions.mcp.extension", keys=("mcp_servers",), commands=("mcp",)),
    "metrics": BuiltIn("bot.extensions.metrics.extension"),
    "openai": BuiltIn("bot.extensions.openai.extension", models=("openai", "openai-compatible", "azure")),
    "playbooks": BuiltIn(
        "bot.extensions.playbooks.extension",
        commands=("playbooks",),
        schemas={"playbook": "bot.extensions.playbooks.definition:json_schema"},
    ),
    "postgres": BuiltIn(
        "bot.extensions.postgres.extension", ("store.pool_dsn",), stores=("postgres",), commands=("migrate",)
    ),
    "reports": BuiltIn(
        "bot.extensions.reports.extension", commands=("threads", "why", "usage", "dead-letters", "audit")
    ),
    "retention": BuiltIn(
        "bot.extensions.retention.extension", keys=("retention",), commands=("retention", "forget", "export")
    ),
    "schedule": BuiltIn("bot.extensions.schedule.extension", tools=("schedule",)),
    "setup": BuiltIn("bot.extensions.setup.extension", commands=("init",)),
    "shell": BuiltIn("bot.extensions.shell.extension", ("tools.sandbox", "tools.network"), tools=("shell",)),
    "skills": BuiltIn("bot.extensions.skills.extension", tools=("skills",)),
    "slack": BuiltIn("transports.slack.extension", keys=("transports.slack",), commands=("manifest",)),
    "discord": BuiltIn("transports.discord.extension", keys=("transports.discord",)),
    "matrix": BuiltIn("transports.matrix.extension", keys=("transports.matrix",)),
    "web": BuiltIn("transports.web.extension", keys=("transports.web",), commands=("web",)),
    "status": BuiltIn("bot.extensions.status.extension", commands=("status", "events")),
    "thread_search": BuiltIn("bot.extensions.thread_search.extension", tools=("thread_search",)),
    "tool_hook": BuiltIn("bot.extensions.tool_hook.extension", keys=("tools.hook",)),
    "tracing": BuiltIn("bot.extensions.tracing.extension", keys=("observe.otlp_endpoint",)),
    "voice": BuiltIn("bot.extensions.voice.extension", keys=("transcription",)),
    "web_search": BuiltIn("bot.extensions.web_search.extension", keys=("tools.web_search",)),
}
