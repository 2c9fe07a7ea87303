"""OpenAI's SDK, as both of its wires use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bot.llm.sdk import ClientSettings, JsonEvent, SdkModel

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
