"""Asks a model for one word, so that a key, an account and a name are known to be good before anybody needs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio

from bot.errors import ConfigInvalid, ModelTimeout, ProviderError
from bot.llm.build import build_adapter
from bot.llm.http import SharedHttp
from bot.llm.model import Completion, Request
from bot.settings_model import Settings
from threads.model import Message, Text, TurnEvent

WITHIN_S = 20.0
MOST_TOKENS = 64
"""OpenAI refuses less than 16. A model that reasons may spend all of them on that, which will do too."""

SHOWN = 60
"""Characters of the answer that are kept."""

QUESTION = "Reply with the single word OK."


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of it: ``took_s`` in seconds, what the model ``said`` in one line, or the ``error``."""

    ok: bool
    took_s: float
    said: str = ""
    error: ProviderError | ConfigInvalid | None = None


async def verify(
    model: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    within_s: float = WITHIN_S,
    clock: Callable[[], float] = time.monotonic,
) -> Verified:
    """Ask *model* (``provider/name``) once: no retry, no budget, at most *within_s* seconds.

    What is wrong comes back as ``error``; nothing is raised for it. It costs a few dozen tokens.
    """
    began = clock()
    http = SharedHttp()
    try:
        with anyio.fail_after(within_s):
            adapter = build_adapter(model, settings, environ, http=http, now=lambda: datetime.now(UTC))
            answer = await adapter.complete(_request(), _unseen)
    except TimeoutError:
        timeout = ModelTimeout(f"no answer within {within_s:g} s", provider=model.partition("/")[0])
        return Verified(ok=False, took_s=clock() - began, error=timeout)
    except (ProviderError, ConfigInvalid) as error:
        return Verified(ok=False, took_s=clock() - began, error=error)
    finally:
        await http.aclose()
    return Verified(ok=True, took_s=clock() - began, said=_line(answer))


def _request() -> Request:
    return Request("", (Message("user", (Text(QUESTION),)),), max_tokens=MOST_TOKENS)


async def _unseen(event: TurnEvent) -> None:
    """Take what is streamed: the whole answer comes at the end."""


def _line(answer: Completion) -> str:
    line = "".join(letter for letter in " ".join(answer.message.text.split()) if letter.isprintable())
    return line if len(line) <= SHOWN else f"{line[:SHOWN].rstrip()}…"
