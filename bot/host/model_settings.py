"""What the settings say of models: which may answer, and what is wrong or odd in that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from bot import wording
from bot.config.scopes import Effective
from bot.config.settings import ModelFacts, Settings
from bot.host.extension import extensions_of
from bot.llm.catalog import Catalog, price_fix
from bot.llm.policies.failover import missing
from bot.ports.model import Request, ToolSpec

CHOOSE = "choose another one, or correct models.{} if that is wrong"


def candidates(settings: Settings, name: str) -> list[str]:
    """Return the model, its downgrades at the same provider, and the fallbacks, in the order of use."""
    provider, _, model = name.partition("/")
    entry = settings.providers.get(provider)
    downgrades = entry.model_map.get(model, ()) if entry else ()
    return list(
        dict.fromkeys([name, *(f"{provider}/{other}" for other in downgrades), *settings.fallback_models])
    )


def used(settings: Settings) -> list[str]:
    """Return the models that may be asked without anybody choosing them, for everybody and in scopes."""
    everywhere = Effective(settings)
    places = [everywhere, *(everywhere.override(scope) for scope in settings.scopes.values())]
    found = (candidates(place.settings, place.settings.model) for place in places)
    return list(dict.fromkeys(chain.from_iterable(found)))


def offered(settings: Settings, default: str) -> list[str]:
    """Return the models that a thread may choose: those in the settings, the default first."""
    return list(dict.fromkeys([*candidates(settings, default), *settings.models]))


def model_faults(settings: Settings) -> list[str]:
    """Return the faults of the settings of models that only the catalog knows."""
    catalog = Catalog.of(settings)
    faults = [*reasoning_faults(settings, catalog)]
    # What every turn needs: a start refuses a model that lacks it.
    tools = (ToolSpec("any", "", {}),) if settings.tools.enabled else ()
    if lacks := missing(catalog.info(settings.model), Request("", (), tools)):
        faults.append(f"model: {lacks}; {CHOOSE.format(settings.model)}")
    return faults


def reasoning_faults(settings: Settings, catalog: Catalog) -> Iterator[str]:
    """Yield a fault for each model that does not take the `reasoning` of its own settings."""
    for name, facts in settings.models.items():
        if facts.reasoning and facts.reasoning not in (takes := catalog.info(name).efforts):
            fault = wording.effort_not_taken(name, facts.reasoning, takes)
            yield f"models.{name}.reasoning: {fault}; correct models.{name}.efforts if that is wrong"


def model_warnings(settings: Settings) -> list[str]:
    """Return what the catalog finds odd in the settings of models, prices included."""
    warnings, catalog = unpriced(settings), Catalog.of(settings)
    for name in candidates(settings, settings.model) if settings.reasoning else ():
        takes, own = catalog.info(name).efforts, settings.models.get(name, ModelFacts()).reasoning
        if own is None and settings.reasoning and settings.reasoning not in takes:
            warnings.append(f"reasoning: {wording.effort_not_taken(name, settings.reasoning, takes)}")
    return warnings


def unpriced(settings: Settings) -> list[str]:
    """Return a warning for each model in the settings whose price is unknown, and those of extensions."""
    catalog, hard = Catalog.of(settings), settings.budget.mode == "hard"
    then = "a hard budget refuses it" if hard else "what it costs is not counted"
    names = [name for name in used(settings) if catalog.rate(name) is None]
    warnings = [f"prices: the price of {name} is not known: {then}. {price_fix(name)}" for name in names]
    return [*warnings, *chain.from_iterable(one.warnings(settings) for one in extensions_of(settings))]
