"""The API key of a model's provider: found, or pasted and stored in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bot.config.load import resolve_secret
from bot.config.settings import Provider, Settings
from bot.extensions.setup import tokens
from bot.extensions.setup.dialog import SetupScreen
from bot.extensions.setup.draft import SettingsDraft
from bot.llm.build import is_local
from bot.llm.model_failures import KEY_PAGES
from bot.llm.remedy import title
from bot.ports.config_error import ConfigInvalid

PENDING = "THREADFAST_SETUP_KEY"
"""Stands for a key that is on no disk yet while it is tried."""

OWN_FORM = {"anthropic": tokens.ANTHROPIC, "openai": tokens.OPENAI}
BEGINS = {"anthropic": "sk-ant-", "openai": "sk-"}


def file_of(provider: str) -> str:
    return f"{provider}_api_key"


def variable_of(provider: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in provider.upper()) + "_API_KEY"


def enter_key(draft: SettingsDraft, name: str, screen: SetupScreen, key_file: Path | None) -> None:
    """Let *draft* refer to the key of the provider *name*: from *key_file*, found in the draft, or pasted.

    Several keys are only looked up: a person edits their list. Raises `ConfigInvalid` if a person must enter a key
    and nobody can be asked.
    """
    provider = draft.loaded().settings.providers[name]
    if provider.api_keys:
        if key_file:
            raise ConfigInvalid(f"providers.{name}.api_keys lists several keys; change them there")
        for reference in provider.api_keys:
            resolve_secret(reference, draft.loaded().environ)
        return
    if key_file:
        secret = tokens.read_secret(key_file, "--key-file")
        if fault := _fault(name, secret, provider):
            raise ConfigInvalid(f"--key-file {key_file}: {fault}")
        _keep(draft, name, secret)
        return
    reference, variable = provider.api_key or "", variable_of(name)
    secret, found = draft.find_secret(reference, file_of(name), variable)
    if secret:
        if found != reference or not found:
            draft.put(found or f"env:{variable}", "providers", name, "api_key")
    elif reference or (screen.interactive and not is_local(provider)):
        _ask(draft, name, provider, screen)  # else an open server; if it is not, it will say so


def pending(draft: SettingsDraft, name: str) -> tuple[Settings, Mapping[str, str]]:
    """Return settings and an environment in which the key of *name* can be used before it is on a disk."""
    loaded = draft.loaded()
    provider = loaded.settings.providers.get(name)
    kind, _, file = (provider.api_key or "").partition(":") if provider else ("", "", "")
    if provider is None or kind != "file" or file not in draft.secrets:
        return loaded.settings, loaded.environ
    candidate = provider.model_copy(update={"api_key": f"env:{PENDING}"})
    settings = loaded.settings.model_copy(
        update={"providers": {**loaded.settings.providers, name: candidate}}
    )
    return settings, {**loaded.environ, PENDING: draft.secrets[file]}


def _ask(draft: SettingsDraft, name: str, provider: Provider, screen: SetupScreen) -> None:
    kind, _, variable = (provider.api_key or "").partition(":")
    variable = variable if kind == "env" else variable_of(name)
    optional = provider.api_key is None
    if page := KEY_PAGES.get(name):
        screen.say(f"{title(name)} keys are made at {page}", state="fix")

    def key(pasted: str) -> str:
        if (pasted or not optional) and (fault := _fault(name, pasted, provider)):
            raise ConfigInvalid(fault)
        return "".join(tokens.words(pasted))

    pasted = screen.ask(
        f"Paste the {title(name)} key (hidden{', Enter for none' if optional else ''})",
        key,
        hidden=True,
        otherwise=f"{title(name)} needs a key: set {variable}, or name a file that holds it with --key-file",
    )
    if pasted:
        _keep(draft, name, pasted)


def _fault(name: str, pasted_text: str, provider: Provider) -> str:
    """Return why this cannot be the key, or ``""``."""
    if not (words := tokens.words(pasted_text)):
        return "Nothing was pasted. Paste it again."
    if len(words) > 1 or not tokens.usable(words[0]):
        return "That does not look like a key. Paste the key alone."
    kind = tokens.kind(words[0])
    elsewhere = provider.kind == "openai-compatible" or bool(provider.base_url)
    never = {form.kind for form in tokens.forms() if form.is_certain or not elsewhere} - {
        OWN_FORM.get(name, "")
    }
    if kind in never:
        return f"That is {kind}, not {title(name)}'s key."
    begins = BEGINS.get(name, "")
    if not elsewhere and not words[0].startswith(begins):
        return f"That does not look like {title(name)}'s key, which begins with {begins}."
    return ""


def _keep(draft: SettingsDraft, name: str, secret: str) -> None:
    draft.put(draft.store_secret(file_of(name), secret), "providers", name, "api_key")
