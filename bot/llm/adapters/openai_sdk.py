"""OpenAI's SDK, for both of its APIs."""

from __future__ import annotations

from typing import Any

from bot.llm.adapters.sdk import SdkClient, SdkModel
from bot.llm.adapters.stream import JsonEvent
from bot.llm.adapters.wire_form import part, tokens
from bot.ports.model import Usage


class OpenAIClient(SdkClient):
    """A client of OpenAI's SDK."""

    def _make(self, **settings: Any) -> tuple[Any, Any]:
        from openai import AsyncOpenAI, AsyncStream  # noqa: PLC0415

        return AsyncOpenAI(**settings), AsyncStream


class OpenAIModel(OpenAIClient, SdkModel):
    """One model behind one of OpenAI's streaming APIs."""


def usage_of(usage: JsonEvent, prompt: str, answer: str) -> Usage:
    """Return the usage; *prompt* and *answer* are the API's names of the token counts.

    The API's prompt includes the tokens of the cache.
    """
    details = part(usage, f"{prompt}_details")
    read, write = tokens(details.get("cached_tokens")) or 0, tokens(details.get("cache_write_tokens")) or 0
    return Usage(
        input=max(0, (tokens(usage.get(prompt)) or 0) - read - write),
        output=tokens(usage.get(answer)) or 0,
        cache_read=read,
        cache_write=write,
    )
