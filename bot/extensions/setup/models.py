"""Chooses the model: proposes what it finds, takes a pasted key, and tests the model with one word.

| found                            | without a question                               |
|----------------------------------|--------------------------------------------------|
| `--model`                        | that                                             |
| a model in settings.json         | that; `init` alone proposes it first             |
| a key, in the environment, kept  | with `--yes`                                     |
| a model server on this machine   | with `--yes`, after keys                         |
| nothing                          | `offline/demo`, which settings.json does not pin |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import anyio

from bot.config.load import OFFLINE, secrets_of
from bot.config.settings import MODEL_NAME, built_in_providers
from bot.extensions.setup.api_keys import enter_key, file_of, pending
from bot.extensions.setup.dialog import SetupScreen
from bot.extensions.setup.draft import SettingsDraft
from bot.extensions.setup.options import InitOptions
from bot.llm.catalog import Catalog
from bot.llm.detect_model import KEYS, LOCAL_SERVERS, find_local, keyed
from bot.llm.model_failures import explain_failure
from bot.llm.verify import Verification, verify
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ProviderError

PROBE_S = 1.0
"""Seconds for all local servers together."""

NOTHING = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model that could answer. ``base_url`` is the address of an unknown provider.

    ``free`` marks a known local server, which costs nothing. ``given`` is true for the model of `--model`. An offer
    that is not ``pinned`` is the last resort: a key that is set later is used at the next start.
    """

    model: str
    reason: str
    base_url: str = ""
    pinned: bool = True
    given: bool = False
    free: bool = False

    @property
    def provider(self) -> str:
        return _provider(self.model)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """``draft`` has what is to be written; ``verified`` is None when nothing was asked."""

    draft: SettingsDraft
    model: str
    verified: Verification | None


class ModelSelection:
    """Finds a model that answers, with as few questions as possible."""

    def __init__(self, draft: SettingsDraft, options: InitOptions, screen: SetupScreen) -> None:
        self._draft, self._options, self._screen = draft, options, screen

    def run(self) -> ModelChoice:
        """Return a model and what is to be written for it. Raises `ConfigInvalid` when there is none to use."""
        offer, draft = self._decided() or self._picked(), self._draft.copy()
        self._enter(draft, offer)
        verified = self._verified(draft, offer)
        self._price(draft, offer)
        return ModelChoice(draft, offer.model, verified)

    def _decided(self) -> ModelOffer | None:
        """Return the model if no question is needed."""
        if model := self._options.model:
            if not MODEL_NAME.fullmatch(model):
                raise ConfigInvalid(f'--model: must be "provider/model", for example {KEYS[0][1]}')
            return ModelOffer(model, "as you said", self._options.base_url, given=True)
        named = next(self._named(), None)
        return named if self._options.platform or not self._screen.interactive else None

    def _named(self) -> Iterator[ModelOffer]:
        named = self._draft.get("model")
        if isinstance(named, str):
            yield ModelOffer(named, "as settings.json says")

    def _keyed(self) -> Iterator[ModelOffer]:
        for variable, model in keyed():
            if self._draft.environ.get(variable, "").strip():
                yield ModelOffer(model, f"{variable} is set")
            elif self._draft.stored_secret(file_of(_provider(model))):
                yield ModelOffer(model, f"its key is in {self._draft.credentials.name}/")

    def _local(self) -> Iterator[ModelOffer]:
        with self._screen.working("Looking for model servers on this machine …"):
            found = anyio.run(lambda: find_local(LOCAL_SERVERS, within_s=PROBE_S))
        for choice in found:
            yield ModelOffer(choice.model, choice.reason, choice.provider.base_url or "", free=True)

    def _picked(self) -> ModelOffer:
        """Return a person's choice, or the best offer if nobody can be asked."""
        by_model: dict[str, ModelOffer] = {}
        for offer in (*self._named(), *self._keyed(), *self._local()):
            by_model.setdefault(offer.model, offer)
        found = [*by_model.values()]
        left = ModelOffer(OFFLINE, "found no key and no local model server", pinned=False)
        best = found[0] if found else left
        if self._options.yes:
            self._screen.say(f"Model: {best.model}", state="ok" if found else "warn", detail=best.reason)
            return best
        if not self._screen.interactive:
            raise ConfigInvalid(
                f"This is not a terminal: add --yes to use {best.model} ({best.reason}), or name a model with --model"
            )
        known = {offer.provider for offer in found}
        choices = [
            *found,
            *(ModelOffer(model, "paste a key") for _, model in keyed() if _provider(model) not in known),
        ]
        if OFFLINE not in {offer.model for offer in choices}:
            rules = "no model: a few built-in rules, to try the rest"
            choices.append(ModelOffer(OFFLINE, rules, pinned=bool(found)))
        if not found:
            self._screen.say("Found no key and no local model server.", state="warn")
        self._screen.options([(offer.model, offer.reason) for offer in choices])
        return self._chosen(choices, default=1 if found else len(choices))

    def _chosen(self, offers: Sequence[ModelOffer], default: int) -> ModelOffer:
        def choice(answer: str) -> ModelOffer:
            if answer.isdecimal() and 1 <= int(answer) <= len(offers):
                return offers[int(answer) - 1]
            if MODEL_NAME.fullmatch(answer):
                return ModelOffer(answer, "as you said")
            raise ConfigInvalid(f"Enter a number from 1 to {len(offers)}, or provider/model.")

        return self._screen.ask("Number, or any provider/model", choice, str(default), otherwise="--model")

    def _enter(self, draft: SettingsDraft, offer: ModelOffer) -> None:
        """Put the model, where its provider is, and its key into the *draft*."""
        if offer.model == OFFLINE:
            if offer.pinned or draft.get("model") is not None:
                draft.put(OFFLINE, "model")
            return
        self._place(draft, offer)
        draft.put(offer.model, "model", option="--model" if offer.given else "")
        draft.loaded()  # raises for an invalid name
        enter_key(draft, offer.provider, self._screen, self._options.key_file)

    def _place(self, draft: SettingsDraft, offer: ModelOffer) -> None:
        """Add the provider's address if it is not known."""
        name, url = offer.provider, offer.base_url
        built_in = built_in_providers().get(name)
        is_known = built_in or draft.get("providers", name) is not None or name == _provider(OFFLINE)
        if not url and not is_known:
            said = "--model" if offer.given else "model"
            url = self._screen.ask(
                f"Address of {name} (OpenAI-compatible, ends in /v1)",
                str,
                otherwise=f"{said}: {name} is not a known provider; give its address with --base-url",
            )
        if url and not (built_in and built_in.base_url == url):
            option = "--base-url" if offer.base_url and offer.given else ""
            draft.put(url, "providers", name, "base_url", option=option)
            if offer.free:
                draft.put(True, "providers", name, "free")

    def _price(self, draft: SettingsDraft, offer: ModelOffer) -> None:
        """Put the model's price into the *draft* if it is unknown, and the hard budget would refuse every message."""
        settings = draft.loaded().settings
        known = Catalog.of(settings).rate(offer.model) is not None
        given = price_of(self._options.price)
        if self._options.free and known:
            raise ConfigInvalid(f"--free: what {offer.model} costs is known already; leave it out")
        if self._options.free:
            given = NOTHING
        elif not given and (known or settings.budget.mode != "hard"):
            return
        otherwise = (
            f"What {offer.model} costs is not known, so the hard budget would refuse every message. "
            f"Add --free if no model of {offer.provider} costs anything, or --price INPUT/OUTPUT in USD per million "
            "tokens. Nothing was changed."
        )
        question = f"Price of {offer.model} in USD per million tokens, INPUT/OUTPUT, or 0 if it is free"
        given = given or self._screen.ask(question, _price_answer, otherwise=otherwise)
        if given == NOTHING and not known:
            draft.put(True, "providers", offer.provider, "free")
        else:
            draft.put({"input": given[0], "output": given[1]}, "prices", offer.model)

    def _verified(self, draft: SettingsDraft, offer: ModelOffer) -> Verification | None:
        """Test the model. Raises `ConfigInvalid` if it does not answer."""
        if offer.model == OFFLINE or not self._options.verify:
            return None
        settings, environ = pending(draft, offer.provider)
        self._screen.hide(secrets_of(settings, environ))
        with self._screen.working(f"Testing {offer.model} …"):
            verified = anyio.run(lambda: verify(offer.model, settings, environ))
        if not verified.ok:
            what, fix = explain_failure(offer.model, verified.error or ProviderError())
            which = f"--model {offer.model}: " if offer.given else ""
            raise ConfigInvalid(f"{which}{what} {fix}\nNothing was changed; --no-verify skips the test.")
        self._screen.say(f"{offer.model} answers", state="ok", detail=f"{verified.took_s:.1f} s")
        return verified


def _price_answer(answer: str) -> tuple[float, float]:
    if price := price_of(answer):
        return price
    raise ConfigInvalid("Write two numbers, for example 0.50/1.50, or 0.")


def price_of(text: str) -> tuple[float, float] | None:
    """Return the price of a million tokens in and out, in USD; None if the text has another form."""
    found = re.fullmatch(r"\$?(\d{1,6}(?:\.\d{1,6})?)\s*/\s*\$?(\d{1,6}(?:\.\d{1,6})?)", text.strip())
    return (float(found[1]), float(found[2])) if found else NOTHING if text.strip() == "0" else None


def _provider(model: str) -> str:
    return model.partition("/")[0]
