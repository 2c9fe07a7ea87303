"""Checks that each model answers, how its server is asked, and its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bot.config.settings import Settings, settings_by_key
from bot.host.checks import AS_ROOT, Check, Context, Findings
from bot.host.model_settings import used
from bot.llm.catalog import Catalog, price_fix
from bot.llm.detect_model import with_model
from bot.llm.model_failures import explain_failure
from bot.llm.server_traits import ServerTraits
from bot.llm.verify import Verification, verify
from bot.ports.errors import ProviderError
from bot.store.learned_servers import Learned, LearnedServers, ServersFile
from threads.errors import NewerSchema
from threads.store.disk import PosixDisk, read_or_empty
from threads.store.json_file import read_state
from transports.shared.checks import Finding, State

WITHIN_S = 20.0
OFFLINE = "offline/"
INIT = "`threadfast init` tests another key or model."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of the chain, first at ``place`` 0. ``why`` says why it is the first.

    ``key`` is the number of the provider's key, from 1, if it has several.
    """

    name: str
    place: int
    settings: Settings
    why: str = ""
    key: int = 0

    @property
    def title(self) -> str:
        title = "model" if not self.place else f"model.{self.place}"
        return f"{title}.key_{self.key}" if self.key else title


async def models_of(settings: Settings, environ: Mapping[str, str]) -> list[Candidate]:
    """Return the models that may answer, in the order in which they are asked."""
    settings, model, why = await with_model(settings, environ)
    return [
        Candidate(name, place, settings, "" if place else f" ({why})")
        for place, name in enumerate(used(settings.model_copy(update={"model": model})))
    ]


def model_checks(models: Sequence[Candidate]) -> list[Check]:
    return [Check(one.title, partial(check_model, one)) for one in models]


async def check_model(one: Candidate, context: Context) -> Findings:
    learned = LearnedServers(known=await context.offload(_learned, context.settings.data))
    for finding in await _answers(one, context, learned):
        yield finding
    server = ServerTraits.of(one.name, one.settings, learned)
    if words := server.describe():
        without = server.forms.get("tools") == "none"
        state: State = "warn" if without else "ok"
        meaning = "It cannot call tools." if without else "So its server was found to take requests."
        provider = one.name.partition("/")[0]
        fix = f"To decide otherwise write providers.{provider}.forms; docs/servers.md has the switches of servers."
        yield Finding(f"{one.title}.server", state, f"{one.name}: {words}", meaning, fix)
    if Catalog.of(one.settings).rate(one.name) is None:
        hard, found = one.settings.budget.mode == "hard", f"the price of {one.name} is unknown"
        meaning = "A hard budget refuses it." if hard else "What it costs is not counted."
        state = "fail" if hard and not one.place else "warn"
        yield Finding(f"{one.title}.price", state, found, meaning, price_fix(one.name))


def _learned(data: Path) -> Mapping[str, Learned]:
    """Return what a bot on this folder has learned of servers, as far as it can be read. Blocking."""
    try:
        content = read_or_empty(PosixDisk(), data / "servers.json")
        state = read_state(content, ServersFile(), "servers.json") if content else None
    except (OSError, NewerSchema):  # the check of the folder tells it
        state = None
    return state.models if state else {}


async def _answers(one: Candidate, context: Context, learned: LearnedServers) -> list[Finding]:
    """Ask the model with each key of its provider. A key that fails is a warning while another works."""
    single = settings_by_key(one.settings, one.name.partition("/")[0])
    if len(single) == 1:
        return [await _answer(one, context, learned)]
    keyed = [
        replace(one, settings=settings, key=key, why=f", key {key} of {len(single)}{one.why}")
        for key, settings in enumerate(single, 1)
    ]
    found = [await _answer(each, context, learned) for each in keyed]
    if any(finding.state == "ok" for finding in found):
        other = "Calls take another key."
        return [
            replace(each, state="warn", meaning=other) if each.state == "fail" else each for each in found
        ]
    return found


async def _answer(one: Candidate, context: Context, learned: LearnedServers) -> Finding:
    name = f"{one.name}{one.why}"
    if one.name.startswith(OFFLINE):
        fix = "`threadfast init` connects a real one."
        return Finding(one.title, "ok", f"{name}: built-in rules, no real model", fix=fix)
    if context.offline:
        return Finding(one.title, "ok", f"{name}: not asked (--offline)")
    verified = await verify(one.name, one.settings, context.environ, within_s=WITHIN_S, learned=learned)
    if context.has_all_links and verified.error and verified.error.code == "config_invalid":
        found = f"{name}: not asked: {verified.error}"
        return Finding(one.title, "warn", found, "The running bot can.", AS_ROOT)
    return finding_of(one, verified)


def finding_of(one: Candidate, verified: Verification) -> Finding:
    """Return the finding of a model that was asked. A fallback that fails is a warning."""
    name, error = f"{one.name}{one.why}", verified.error or ProviderError()
    if verified.ok:
        return Finding(one.title, "ok", f"{name} answered in {verified.took_s:.1f} s")
    meaning = "The bot skips it and asks the next model." if one.place else "The bot cannot answer."
    _, fix = explain_failure(one.name, error)
    state: State = "warn" if one.place else "fail"
    return Finding(one.title, state, f"{name}: {error.code}: {error}", meaning, f"{fix} {INIT}")
