"""Checks a key, an account and a model name with one short call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from bot.config.settings import Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.build import build_adapter
from bot.llm.policies.learning import LearningModel
from bot.llm.server_traits import ServerTraits
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ModelTimeout, ProviderError
from bot.ports.model import Request
from bot.store.learned_servers import LearnedServers
from threads.model import Message, Text, TurnEvent

WITHIN_S = 20.0
MOST_TOKENS = 64
"""OpenAI refuses less than 16. A model may spend all of them on reasoning, which is enough."""

QUESTION = "Reply with the single word OK."
ONE_WORD = Request("", (Message("user", (Text(QUESTION),)),), max_tokens=MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result: ``took_s`` is in seconds, and ``error`` is None on success."""

    ok: bool
    took_s: float
    error: ProviderError | ConfigInvalid | None = None


async def verify(
    model: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    within_s: float = WITHIN_S,
    learned: LearnedServers | None = None,
) -> Verification:
    """Ask *model* (``provider/name``) once, in a form that its server takes: no budget, at most *within_s* seconds.

    What its server refuses is added to *learned*. Returns a failure as ``error`` and raises nothing. It costs a few
    dozen tokens.
    """
    began, http = time.monotonic(), SharedHttp()
    failure: ProviderError | ConfigInvalid | None = None
    try:
        with anyio.fail_after(within_s):
            adapter = build_adapter(model, settings, environ, http=http, now=lambda: datetime.now(UTC))
            server = ServerTraits.of(model, settings, learned or LearnedServers())
            await LearningModel(adapter, server, lambda: None, lambda _: None).complete(ONE_WORD, _ignore)
    except TimeoutError:
        failure = ModelTimeout(f"no answer within {within_s:g} s", provider=model.partition("/")[0])
    except (ProviderError, ConfigInvalid) as error:
        failure = error
    finally:
        await http.aclose()
    return Verification(ok=failure is None, took_s=time.monotonic() - began, error=failure)


async def _ignore(event: TurnEvent) -> None:
    """Ignore the stream: the complete answer comes at the end."""
