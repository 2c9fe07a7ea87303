"""The models: a real answer of each that may be asked, and whether its price is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bot.admin.doctor.examination import AS_ROOT, Findings, Look, Subject
from bot.config.settings import Settings
from bot.llm.catalog import price_fix
from bot.llm.verify import Verification, verify
from bot.wiring.app import catalog_of
from bot.wiring.chat import with_model
from bot.wiring.model_chain import candidates
from transports.shared.checks import Finding

WITHIN_S = 20.0
OFFLINE = "offline/"
FIXES = {
    "auth": "Set a good key; `threadfast init` asks for it and tries it.",
    "payment": "Look at the account's billing.",
    "model_not_found": "Correct the name in the settings: `model`, `fallback_models`, `model_map`.",
    "rate_limited": "Wait, or ask the provider for a higher limit.",
    "timeout": "Try again; if it lasts, look at the provider's status page.",
    "unavailable": "Look at the provider's status page; for a local server, start it.",
    "connection": "For a local server, start it. Else check this machine's way out: DNS, firewall, HTTPS_PROXY.",
    "config_invalid": "Correct the settings, or set the secret; `threadfast init` asks for it.",
}
"""By the code of an error."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A model that may be asked: the usual one first. ``why`` is why that one, a local server may be found for it."""

    name: str
    place: int
    settings: Settings
    why: str = ""

    @property
    def title(self) -> str:
        return "model" if not self.place else f"model.{self.place}"


async def models_of(settings: Settings, environ: Mapping[str, str]) -> list[Asked]:
    """Return who may answer, in the order in which they are asked."""
    settings, model, why = await with_model(settings, environ)
    return [
        Asked(name, place, settings, "" if place else f" ({why})")
        for place, name in enumerate(candidates(settings, model))
    ]


def model_subjects(asked: Sequence[Asked]) -> list[Subject]:
    return [Subject(one.title, partial(look_at_model, one)) for one in asked]


async def look_at_model(one: Asked, look: Look) -> Findings:
    yield await _answer(one, look)
    if catalog_of(one.settings).rate(one.name) is None:
        hard = one.settings.budget.mode == "hard"
        yield Finding(
            f"{one.title}.price",
            "fail" if hard and not one.place else "warn",
            f"the price of {one.name} is unknown",
            "A hard budget refuses it." if hard else "What it costs is not counted.",
            price_fix(one.name),
        )


async def _answer(one: Asked, look: Look) -> Finding:
    if one.name.startswith(OFFLINE):
        return Finding(
            one.title,
            "ok",
            f"{one.name}{one.why}: built-in rules, no real model",
            fix="`threadfast init` connects a real one.",
        )
    if look.offline:
        return Finding(one.title, "ok", f"{one.name}{one.why}: not asked (--offline)")
    verified = await verify(one.name, one.settings, look.environ, within_s=WITHIN_S)
    if look.vouched and verified.error and verified.error.code == "config_invalid":
        return Finding(
            one.title,
            "warn",
            f"{one.name}{one.why}: not asked: {verified.error}",
            "The running bot can.",
            AS_ROOT,
        )
    return judged(one, verified)


def judged(one: Asked, verified: Verification) -> Finding:
    """Say what came of asking; a spare model that fails is a warning."""
    if verified.ok:
        return Finding(one.title, "ok", f"{one.name}{one.why} answered in {verified.took_s:.1f} s")
    error = verified.error
    code = error.code if error else "unavailable"
    return Finding(
        one.title,
        "warn" if one.place else "fail",
        f"{one.name}{one.why}: {code}: {error}",
        "The bot skips it and asks the next model." if one.place else "The bot cannot answer.",
        FIXES.get(code, "Look into `providers` in the settings."),
    )
