"""Checks that each model answers, and that its price is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.admin.doctor.checks import AS_ROOT, Check, Context, Findings
from bot.admin.model_failures import explain_failure
from bot.config.settings import Settings
from bot.llm.catalog import price_fix
from bot.llm.verify import Verification, verify
from bot.ports.errors import ProviderError
from bot.wiring.chat import with_model
from bot.wiring.model_chain import catalog_of, used
from transports.shared.checks import Finding, State

WITHIN_S = 20.0
OFFLINE = "offline/"
INIT = "`threadfast init` tests another key or model."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of the chain, first at ``place`` 0. ``why`` says why it is the first."""

    name: str
    place: int
    settings: Settings
    why: str = ""

    @property
    def title(self) -> str:
        return "model" if not self.place else f"model.{self.place}"


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
    yield await _answer(one, context)
    if catalog_of(one.settings).rate(one.name) is None:
        hard, found = one.settings.budget.mode == "hard", f"the price of {one.name} is unknown"
        meaning = "A hard budget refuses it." if hard else "What it costs is not counted."
        state: State = "fail" if hard and not one.place else "warn"
        yield Finding(f"{one.title}.price", state, found, meaning, price_fix(one.name))


async def _answer(one: Candidate, context: Context) -> Finding:
    name = f"{one.name}{one.why}"
    if one.name.startswith(OFFLINE):
        fix = "`threadfast init` connects a real one."
        return Finding(one.title, "ok", f"{name}: built-in rules, no real model", fix=fix)
    if context.offline:
        return Finding(one.title, "ok", f"{name}: not asked (--offline)")
    verified = await verify(one.name, one.settings, context.environ, within_s=WITHIN_S)
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
