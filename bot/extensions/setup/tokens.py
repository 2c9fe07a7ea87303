"""Secrets that are pasted, piped or in a file: cleaned of surrounding text, and recognized by their form."""

from __future__ import annotations

import io
import os
import re
import select
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from bot.config.load import MAX_SECRET_BYTES
from bot.host.extension import transport_kinds
from bot.host.setup import Form
from bot.ports.config_error import ConfigInvalid

PIPED_WITHIN_S = 5.0
"""A pipe that nobody writes to does not hold the setup up."""

_AROUND = "\"'`<>,;\u200b\u200e\u200f\u2060\ufeff"
_NAMED = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\s*[=:]|bearer\s|bot\s)\s*", re.IGNORECASE)
_SECRET = re.compile(r"[!-~]{1,4096}")

ANTHROPIC, OPENAI = "an Anthropic key", "an OpenAI key"

FORMS = (
    Form(ANTHROPIC, re.compile(r"sk-ant-.+"), is_certain=False),
    Form(OPENAI, re.compile(r"sk-(proj|svcacct|admin)-.+"), is_certain=False),
    Form("an id", re.compile(r"\d{15,21}|[A-Z][A-Z0-9]{8,12}"), is_certain=False),
    Form(
        "a signing secret, public key or client secret",
        re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}|[\w-]{32}"),
        is_certain=False,
    ),
    Form("a web address", re.compile(r"https?://.*")),
)


@cache
def forms() -> Sequence[Form]:
    """Return the forms of secrets, those of chat platforms first. What fits none may be the key of any provider."""
    setups = (kind.setup() for kind in transport_kinds().values() if kind.setup)
    return [*(form for setup in setups for form in setup.forms), *FORMS]


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
    return next((form.kind for form in forms() if form.pattern.fullmatch(secret)), "")


def usable(secret: str) -> bool:
    """Return whether a header can hold it."""
    return _SECRET.fullmatch(secret) is not None


def read_secret(path: Path, flag: str) -> str:
    """Return the one secret that a file holds. Raises `ConfigInvalid`, which repeats nothing of it."""
    try:
        with path.open("rb") as file:
            found = words(file.read(MAX_SECRET_BYTES).decode())
    except OSError as error:
        raise ConfigInvalid(f"{flag} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"{flag} {path}: is not UTF-8 text") from error
    if len(found) != 1 or not usable(found[0]):
        raise ConfigInvalid(f"{flag} {path}: must hold one secret and nothing else")
    return found[0]


def read_piped(lines: int, *, within_s: float = PIPED_WITHIN_S) -> str:
    """Return what is piped in: *lines* lines, or until it ends or *within_s* seconds are over."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        source = sys.stdin.fileno()
    except (OSError, io.UnsupportedOperation):
        return sys.stdin.read(MAX_SECRET_BYTES)  # not a file, so there is no wait
    data, until = b"", time.monotonic() + within_s
    while len(data) < MAX_SECRET_BYTES and data.count(b"\n") < lines:
        if not select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
            break
        if not (more := os.read(source, 4096)):
            break
        data += more
    return data.decode("utf-8", "replace")
