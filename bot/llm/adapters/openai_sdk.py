"""OpenAI's SDK, for all that speaks one of its APIs."""

from __future__ import annotations

from typing import Any

from bot.llm.adapters.sdk import SdkClient


class OpenAIClient(SdkClient):
    """A client of OpenAI's SDK."""

    def _make(self, **settings: Any) -> Any:
        from openai import AsyncOpenAI  # noqa: PLC0415

        return AsyncOpenAI(**settings)
