"""Checks that each model answers, and that its price is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.admin.doctor.checks import AS_ROOT, Check, Context, Findings
from bot.config.settings import Settings
from bot.llm.catalog import price_fix
from bot.llm.verify import Verification, verify
from bot.wiring.app import catalog_of
from bot.wiring.chat import with_model
from bot.wiring.model_chain import candidates
from transports.shared.checks import Finding, State

WITHIN_S = 20.0
OFFLINE = "offline/"
FIXES = {
    "auth": "Set a good key; `threadfast init` asks for it and tries it.",
    "payment": "Check the account's billing.",
    "model_not_found": "Correct the name in the settings: `model`, `fallback_models`, `model_map`.",
    "rate_limited": "Wait, or ask the provider for a higher limit.",
    "timeout": "Try again; if it lasts, check the provider's status page.",
    "unavailable": "Check the provider's status page; for a local server, start it.",
    "connection": "For a local server, start it. Else check this machine's way out: DNS, firewall, HTTPS_PROXY.",
    "config_invalid": "Correct the settings, or set the secret; `threadfast init` asks for it.",
}
"""By the code of an error."""


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
        for place, name in enumerate(candidates(settings, model))
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
    name, error = f"{one.name}{one.why}", verified.error
    if verified.ok:
        return Finding(one.title, "ok", f"{name} answered in {verified.took_s:.1f} s")
    code = error.code if error else "unavailable"
    meaning = "The bot skips it and asks the next model." if one.place else "The bot cannot answer."
    fix = FIXES.get(code, "Check `providers` in the settings.")
    return Finding(one.title, "warn" if one.place else "fail", f"{name}: {code}: {error}", meaning, fix)
