"""Explains a model's failure to an operator: the provider, the variable of its key, and what to do next.

Everybody else reads `bot.wording`, which names none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.config.settings import Settings
from bot.ports.errors import (
    AllProvidersFailed,
    ApiNotFound,
    CertificateUntrusted,
    ModelWithheld,
    PriceUnknown,
    ServerSpeaksHttp,
    ServerSpeaksHttps,
)
from threads import wording
from threads.errors import BotError

TITLES = {"anthropic": "Anthropic", "openai": "OpenAI", "ollama": "Ollama"}

SENTENCES: Mapping[str, str] = {
    "auth": "{who} does not accept {key}.",
    "payment": "{who} says that the account of {key} is out of credit and needs topping up.",
    "model_not_found": "{who} does not know the model {name}, or {key} may not use it.",
}
"""Failures that a person has to fix."""

BY_CLASS: Mapping[type[BotError], str] = {
    ApiNotFound: "{who} has no such API at the address in providers.{provider}.base_url. "
    "It usually ends in /v1, and redirects are not followed.",
    ModelWithheld: "{who} has the model {name}, but the settings of its account, or `params` in settings.json, allow "
    "no server that has it.",
    CertificateUntrusted: "I do not know the authority behind the certificate of {who}. If it is one of yours, "
    "name a file with its certificate as `ca_file` in settings.json.",
    ServerSpeaksHttp: "The address in providers.{provider}.base_url says https, and {who} speaks http there. "
    "Write http:// there, or turn its https on.",
    ServerSpeaksHttps: "The address in providers.{provider}.base_url says http, and {who} speaks https there. "
    "Write https:// there.",
}
"""Failures that the settings cause, which have no code of their own."""

NEXT = "`threadfast init` sets another key or model; `threadfast why {reference}` tells more."


def title(provider: str) -> str:
    return TITLES.get(provider, provider)


def explain_to_operator(error: BaseException, reference: str, settings: Settings) -> str:
    """Return the text about a failure for an operator's thread. It contains no secret."""
    cause = wording.first_cause(error)
    if isinstance(cause, PriceUnknown):
        return f"{str(cause)[:1].upper()}{str(cause)[1:]} (ref {reference})"
    chain = cause.chain if isinstance(cause, AllProvidersFailed) else ()
    fixes = dict.fromkeys(filter(None, (sentence(model, fault, settings) for model, fault in chain)))
    if not fixes:
        return wording.explain(error, reference)
    what = [] if wording.code_of(error) in SENTENCES else [wording.friendly(error)]
    return " ".join([*what, *fixes, NEXT.format(reference=reference), f"(ref {reference})"])


def sentence(model: str, error: BotError, settings: Settings) -> str:
    """Return what a person has to fix so that *model* answers, or a blank if the failure may pass."""
    provider, _, name = model.partition("/")
    words = BY_CLASS.get(type(error)) or SENTENCES.get(error.code, "")
    return words.format(who=title(provider), provider=provider, name=name, key=_key(provider, settings))


def _key(provider: str, settings: Settings) -> str:
    """Return where a provider's key is stored."""
    entry = settings.providers.get(provider)
    keys = entry.keys if entry else ()
    if not keys:
        return f"a call without a key (providers.{provider}.api_key)"
    if len(keys) > 1:
        return f"the keys in providers.{provider}.api_keys"
    kind, _, name = keys[0].partition(":")
    return f"the key in {name}" if kind == "env" else f"the key in the file {Path(name).name}"
