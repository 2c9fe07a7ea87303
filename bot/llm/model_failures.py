"""What a failed test of a model means, and the fix: for `threadfast init` and `threadfast doctor`."""

from __future__ import annotations

from collections.abc import Mapping

from bot.llm.remedy import title
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import (
    ApiNotFound,
    CertificateUntrusted,
    ModelLoading,
    ModelWithheld,
    ProviderError,
    ServerSpeaksHttp,
    ServerSpeaksHttps,
)

KEY_PAGES = {"anthropic": "platform.claude.com/settings/keys", "openai": "platform.openai.com/api-keys"}
CREDIT_PAGES = {
    "anthropic": "platform.claude.com/settings/billing",
    "openai": "platform.openai.com/settings/organization/billing",
}

MEANINGS: Mapping[str, tuple[str, str]] = {
    "auth": ("{who} does not accept this key.", "Use a good key{keys}."),
    "payment": ("The key is right, but its account has no credit left at {who}.", "Add some{credit}."),
    "model_not_found": (
        "{who} does not have {name}, or this key may not use it.",
        "Correct the name, or choose another model.",
    ),
    "rate_limited": (
        "{who} limits this key right now; the key itself is right.",
        "Wait a minute, or ask for a higher limit.",
    ),
    "timeout": ("{who} did not answer in time.", "Try again; a local model may still be loading."),
    "connection": (
        "{who} cannot be reached from here.",
        "Start it if it is a local server. Else check DNS, firewall, HTTPS_PROXY and `base_url` (http or https).",
    ),
    "unavailable": (
        "{who} is having problems right now.",
        "Try again in a minute; its status page may say more.",
    ),
    "config_invalid": ("{said}", "Correct the settings, or set the secret."),
}
BY_CLASS: Mapping[type[ProviderError], tuple[str, str]] = {
    ApiNotFound: (
        "{who} has no such API at its `base_url`, or sends us to another address.",
        "Correct `base_url`: it usually ends in /v1.",
    ),
    ModelWithheld: (
        "{who} has {name}, but no server of it that the settings of the account or `params` allow. It says: {said}",
        "Change those settings, or choose another model.",
    ),
    CertificateUntrusted: (
        "The certificate of {who} comes from an authority that is not known here.",
        "If it is one of yours, name a file with its certificate as `ca_file` in settings.json.",
    ),
    ServerSpeaksHttp: ("{who} speaks http, and its `base_url` says https.", "Write http:// there."),
    ServerSpeaksHttps: ("{who} speaks https, and its `base_url` says http.", "Write https:// there."),
    ModelLoading: ("{who} is still loading {name}.", "Wait until it is ready; the bot waits too."),
}
OTHER = ("{who} refused: {said}", "Choose another model, or follow its message.")


def explain_failure(model: str, error: ProviderError | ConfigInvalid) -> tuple[str, str]:
    """Return what went wrong, and what to do."""
    provider, _, name = model.partition("/")
    keys, credit = KEY_PAGES.get(provider), CREDIT_PAGES.get(provider)
    facts = {
        "who": title(provider),
        "name": name,
        "said": " ".join(str(error).split())[:200],
        "keys": f" from {keys}" if keys else "",
        "credit": f" at {credit}" if credit else "",
    }
    by_class = BY_CLASS.get(type(error)) if isinstance(error, ProviderError) else None
    what, fix = by_class or MEANINGS.get(error.code, OTHER)
    return what.format_map(facts), fix.format_map(facts)
