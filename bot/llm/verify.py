"""Asks a model for one word, so that a key, an account and a name are known to be good before anybody needs them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from bot.config.settings import Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.build import build_adapter
from bot.ports.errors import ConfigInvalid, ModelTimeout, ProviderError
from bot.ports.model import Request
from threads.model import Message, Text, TurnEvent

WITHIN_S = 20.0
MOST_TOKENS = 64
"""OpenAI refuses less than 16. A model that reasons may spend all of them on that, which will do too."""

QUESTION = "Reply with the single word OK."
ONE_WORD = Request("", (Message("user", (Text(QUESTION),)),), max_tokens=MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of it: ``took_s`` in seconds, and the ``error`` if there was one."""

    ok: bool
    took_s: float
    error: ProviderError | ConfigInvalid | None = None


async def verify(
    model: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    within_s: float = WITHIN_S,
) -> Verification:
    """Ask *model* (``provider/name``) once: no retry, no budget, at most *within_s* seconds.

    What is wrong comes back as ``error``; nothing is raised for it. It costs a few dozen tokens.
    """
    began = time.monotonic()
    http = SharedHttp()
    try:
        with anyio.fail_after(within_s):
            adapter = build_adapter(model, settings, environ, http=http, now=lambda: datetime.now(UTC))
            await adapter.complete(ONE_WORD, _unseen)
    except TimeoutError:
        timeout = ModelTimeout(f"no answer within {within_s:g} s", provider=model.partition("/")[0])
        return Verification(ok=False, took_s=time.monotonic() - began, error=timeout)
    except (ProviderError, ConfigInvalid) as error:
        return Verification(ok=False, took_s=time.monotonic() - began, error=error)
    finally:
        await http.aclose()
    return Verification(ok=True, took_s=time.monotonic() - began)


async def _unseen(event: TurnEvent) -> None:
    """Take what is streamed: the whole answer comes at the end."""
