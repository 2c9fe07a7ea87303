"""Claude on Amazon Bedrock and on Google's Vertex AI, by what Anthropic's SDK brings for them.

The SDK says where a request goes and what is different in it, once, and signs each: its keys and tokens expire. All
else is as at Anthropic. Without ``api_key`` the platform's own credentials count, as its tools find them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from anyio.from_thread import run

from bot.extensions.anthropic.messages import AnthropicModel
from bot.llm.adapters.http_client import Answer, Post
from bot.ports.errors import Unauthorized
from bot.ports.model import Request


class PlatformModel(AnthropicModel):
    """One Claude model of a platform."""

    no_key = "-"
    _sdk: Any

    def _build(self, api_key: str) -> Post:
        from anthropic._models import FinalRequestOptions  # noqa: PLC0415

        post = super()._build(api_key)
        body = {"model": self.model, "stream": True}
        asked = FinalRequestOptions.construct(method="post", url="/v1/messages", json_data=body)
        told = run(self._sdk._prepare_options, asked)  # noqa: SLF001 - the SDK tells nobody else
        self._added = {name: value for name, value in told.json_data.items() if name not in body}
        self._without = body.keys() - told.json_data.keys()
        return post._replace(url=f"{str(self._sdk.base_url).rstrip('/')}{told.url}")

    def _body_with_params(self, request: Request) -> dict[str, object]:
        body = super()._body_with_params(request)
        return {name: value for name, value in body.items() if name not in self._without} | self._added

    def _make(self, **settings: Any) -> Any:
        key = settings.pop("api_key")
        with self._typed():
            self._sdk = self._open(None if key == self.no_key else key, {**settings, "open_telemetry": False})
        return self._sdk

    @abstractmethod
    def _open(self, token: str | None, settings: dict[str, Any]) -> Any:
        """Return the SDK's client."""

    async def _send(self, post: Post) -> Answer:
        """Add what shows who asks first. Raises `Unauthorized`."""
        request = httpx2.Request("POST", post.url, headers=post.headers, content=post.body)
        with self._typed():
            await self._sdk._prepare_request(request)  # noqa: SLF001 - as above
        answer = await super()._send(post._replace(url=str(request.url), headers=request.headers))
        return answer if answer.status >= 300 else self._read(answer)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Raise `Unauthorized` where the SDK finds no credentials, or no region for them."""
        try:
            yield
        except Exception as error:
            raise Unauthorized(f"{self.provider}: {error}") from error

    def _read(self, answer: Answer) -> Answer:
        """Return the response as events of the API."""
        return answer


class VertexModel(PlatformModel):
    """One Claude model of Vertex AI, in the region CLOUD_ML_REGION."""

    def _open(self, token: str | None, settings: dict[str, Any]) -> Any:
        from anthropic import AsyncAnthropicVertex  # noqa: PLC0415

        sdk = AsyncAnthropicVertex(**settings, access_token=token)
        run(sdk._ensure_access_token)  # noqa: SLF001 - it also finds the project
        return sdk


class BedrockModel(PlatformModel):
    """One Claude model of Bedrock, in the region AWS_REGION."""

    def _open(self, token: str | None, settings: dict[str, Any]) -> Any:
        from anthropic import AsyncAnthropicBedrock  # noqa: PLC0415
        from anthropic.lib.bedrock._stream_decoder import get_response_stream_shape  # noqa: PLC0415

        get_response_stream_shape()  # reads a large file, here and not between two events
        return AsyncAnthropicBedrock(**settings, api_key=token)

    def _read(self, answer: Answer) -> Answer:
        return Answer(200, {"content-type": "text/event-stream"}, _Events(answer.body))


class _Events(httpx2.AsyncByteStream):
    """The frames of an AWS event stream as server-sent events."""

    def __init__(self, frames: httpx2.AsyncByteStream) -> None:
        self._frames = frames

    async def __aiter__(self) -> AsyncIterator[bytes]:
        from anthropic.lib.bedrock._stream_decoder import AWSEventStreamDecoder  # noqa: PLC0415

        async for event in AWSEventStreamDecoder().aiter_bytes(aiter(self._frames)):
            yield f"event: {event.event}\ndata: {' '.join(event.data.splitlines())}\n\n".encode()

    async def aclose(self) -> None:
        await self._frames.aclose()
