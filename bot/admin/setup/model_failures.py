"""The meaning of a failed model test, and the fix, for the person who sets the bot up."""

from __future__ import annotations

from collections.abc import Mapping

from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ProviderError
from bot.wiring.remedy import title

KEY_PAGES = {"anthropic": "platform.claude.com/settings/keys", "openai": "platform.openai.com/api-keys"}
CREDIT_PAGES = {
    "anthropic": "platform.claude.com/settings/billing",
    "openai": "platform.openai.com/settings/organization/billing",
}

MEANINGS: Mapping[str, tuple[str, str]] = {
    "auth": ("{who} does not accept this key.", "Copy it again, whole{keys}."),
    "payment": ("The key is right, but its account has no credit left at {who}.", "Add some{credit}."),
    "model_not_found": ("{who} does not have {name}, or this key may not use it.", "Choose another model."),
    "rate_limited": (
        "{who} limits this key right now; the key itself is right.",
        "Wait a minute, or keep it.",
    ),
    "timeout": ("{who} did not answer in time.", "Try again; a local model may still be loading."),
    "connection": (
        "{who} cannot be reached from here.",
        "Check the network, HTTPS_PROXY, and the base_url if you gave one.",
    ),
    "unavailable": ("{who} is having problems right now.", "Try again in a minute, or keep it."),
    "config_invalid": ("{said}", "Correct that."),
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
    what, fix = MEANINGS.get(error.code, OTHER)
    return what.format_map(facts), fix.format_map(facts)
