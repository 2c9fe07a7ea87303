"""OpenAI's SDK, as both of its wires use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bot.llm.adapters.sdk import ClientSettings, JsonEvent, SdkModel
from bot.llm.adapters.wire_form import part, tokens
from bot.ports.model import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream


class OpenAIModel(SdkModel["AsyncOpenAI"]):
    """One model behind one of OpenAI's APIs; ``path`` is that API's."""

    path: ClassVar[str]

    def _make(self, settings: ClientSettings) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415

        return AsyncOpenAI(**settings)

    async def _post(self, client: AsyncOpenAI, body: dict[str, object]) -> AsyncStream[JsonEvent]:
        from openai import AsyncStream  # noqa: PLC0415

        stream: AsyncStream[Any] = await client.post(
            self.path, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object]
        )
        return stream


def usage_of(usage: JsonEvent, prompt: str, answer: str) -> Usage:
    """Return the counts; *prompt* and *answer* are the API's names for their tokens.

    The API's prompt includes what was read from and written to the cache.
    """
    details = part(usage, f"{prompt}_details")
    read, write = tokens(details.get("cached_tokens")) or 0, tokens(details.get("cache_write_tokens")) or 0
    return Usage(
        input=max(0, (tokens(usage.get(prompt)) or 0) - read - write),
        output=tokens(usage.get(answer)) or 0,
        cache_read=read,
        cache_write=write,
    )
