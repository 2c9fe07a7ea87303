"""Secrets as people paste them: cleaned of what comes along, and known by their form; pure."""

from __future__ import annotations

import re

_AROUND = "\"'`<>,;\u200b\u200e\u200f\u2060\ufeff"
_NAMED = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\s*[=:]|bearer\s|bot\s)\s*", re.IGNORECASE)
_SECRET = re.compile(r"[!-~]{1,4096}")

BOT, APP, DISCORD = "a Slack bot token", "a Slack app token", "a Discord bot token"
USER, ADDRESS = "a Slack user token", "a web address"
ANTHROPIC, OPENAI = "an Anthropic key", "an OpenAI key"

FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (BOT, re.compile(r"xoxb-[A-Za-z0-9-]+")),
    (APP, re.compile(r"xapp-[A-Za-z0-9-]+")),
    (USER, re.compile(r"xoxp-[A-Za-z0-9-]+")),
    ("a Slack token of another kind", re.compile(r"xox[a-z][.-].+|xwfp-.+")),
    (ANTHROPIC, re.compile(r"sk-ant-.+")),
    (OPENAI, re.compile(r"sk-(proj|svcacct|admin)-.+")),
    (DISCORD, re.compile(r"[\w-]+\.[\w-]+\.[\w-]{8,}")),
    ("an id", re.compile(r"\d{15,21}|[A-Z][A-Z0-9]{8,12}")),
    ("a signing secret, public key or client secret", re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}|[\w-]{32}")),
    (ADDRESS, re.compile(r"https?://.*")),
)
"""In this order; what fits none may be the key of any other provider."""


def words(pasted: str) -> list[str]:
    """Return what may be secrets in a pasted text: without quotes, ``NAME=``, ``Bearer``, and unseen characters."""
    found = []
    for line in pasted.splitlines():
        bare = re.sub(r"^\s*export\s+", "", line).strip().strip(_AROUND)
        while (start := _NAMED.match(bare)) and start.end() < len(bare):
            bare = bare[start.end() :].strip().strip(_AROUND)
        found += [word for part in bare.split() if (word := part.strip(_AROUND))]
    return found


def kind(secret: str) -> str:
    """Return what a secret is by its form, or ``""``."""
    return next((name for name, form in FORMS if form.fullmatch(secret)), "")


def usable(secret: str) -> bool:
    """Say whether it can be sent in a header at all."""
    return _SECRET.fullmatch(secret) is not None
