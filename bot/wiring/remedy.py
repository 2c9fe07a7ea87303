"""What a failure of a model is called to whoever can mend it: the provider, the variable of its key, what to do next.

Everybody else reads `threads.wording` alone, which names none of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.config.settings import Settings
from bot.ports.errors import AllProvidersFailed
from threads import wording
from threads.errors import BotError

TITLES = {"anthropic": "Anthropic", "openai": "OpenAI", "ollama": "Ollama"}

SENTENCES: Mapping[str, str] = {
    "auth": "{who} does not accept {key}.",
    "payment": "The {who} account of {key} is out of credit and needs topping up.",
    "model_not_found": "{who} does not know the model {name}, or {key} may not use it.",
}
"""What does not pass by itself."""

NEXT = "`threadfast init` sets another key or model; `threadfast why {reference}` tells more."


def title(provider: str) -> str:
    return TITLES.get(provider, provider)


def explain_to_operator(error: BaseException, reference: str, settings: Settings) -> str:
    """Return what the thread may read when whoever can mend it is the one who asked. It names no secret's value."""
    cause = wording.first_cause(error)
    chain = cause.chain if isinstance(cause, AllProvidersFailed) else ()
    said = dict.fromkeys(filter(None, (sentence(model, fault, settings) for model, fault in chain)))
    if not said:
        return wording.explain(error, reference)
    what = [] if wording.code_of(error) in SENTENCES else [wording.friendly(error)]
    return " ".join([*what, *said, NEXT.format(reference=reference), f"(ref {reference})"])


def sentence(model: str, error: BotError, settings: Settings) -> str:
    """Return what a person has to mend so that *model* answers, or ``""`` for what passes or is none of that."""
    provider, _, name = model.partition("/")
    words = SENTENCES.get(error.code, "")
    return words.format(who=title(provider), name=name, key=_key(provider, settings))


def _key(provider: str, settings: Settings) -> str:
    """Name the place of a provider's key."""
    entry = settings.providers.get(provider)
    reference = entry.api_key if entry else None
    if reference is None:
        return f"a call without a key (providers.{provider}.api_key)"
    kind, _, name = reference.partition(":")
    return f"the key in {name}" if kind == "env" else f"the key in the file {Path(name).name}"
