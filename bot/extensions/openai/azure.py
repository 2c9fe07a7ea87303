"""OpenAI's models on Azure, by an API key or by the identity of the machine (Entra ID).

An address that ends in ``/v1`` is that of the new API, and the Responses API answers there. Any other is that of a
resource: there each deployment has a path of its own, and OPENAI_API_VERSION names the version.
"""

from __future__ import annotations

from typing import Any

import httpx2
from anyio.to_thread import run_sync

from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.model import OpenAIModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters.http_client import Answer, Post
from bot.ports.errors import Unauthorized

SCOPE = "https://cognitiveservices.azure.com/.default"
"""What a token is for, as Azure's documentation of keyless access says."""


class _AzureModel(OpenAIModel):
    """A deployment. Without ``api_key`` each request has a token of Entra ID, which `azure.identity` keeps fresh."""

    no_key = "-"

    def _build(self, api_key: str) -> Post:
        self._identity: Any = None
        if api_key == self.no_key:
            from azure.identity import DefaultAzureCredential  # noqa: PLC0415

            self._identity = DefaultAzureCredential()
        return super()._build(api_key)

    async def _send(self, post: Post) -> Answer:
        """Add the key or the token first. Raises `Unauthorized` if nobody gives one."""
        headers = httpx2.Headers(post.headers)
        given = headers.pop("authorization", "").removeprefix("Bearer ")
        if self._identity is None:
            headers.setdefault("api-key", given)
        else:
            headers.pop("api-key", None)
            try:
                token = await run_sync(self._identity.get_token, SCOPE, abandon_on_cancel=True)
            except Exception as error:
                raise Unauthorized(f"no token of Entra ID: {error}") from error
            headers["authorization"] = f"Bearer {token.token}"
        return await super()._send(post._replace(headers=headers))


class AzureResponsesModel(_AzureModel, OpenAIResponsesModel):
    """A deployment behind ``/openai/v1``."""


class AzureChatModel(_AzureModel, OpenAIChatModel):
    """A deployment of a resource, with a dated version."""

    def _make(self, **settings: Any) -> Any:
        from openai import AsyncAzureOpenAI  # noqa: PLC0415

        address = settings.pop("base_url")
        client = AsyncAzureOpenAI(**settings, azure_endpoint=address, azure_deployment=self.model)
        self._query: Any = client.default_query
        return client

    def _build(self, api_key: str) -> Post:
        post = super()._build(api_key)
        return post._replace(url=str(httpx2.URL(post.url).copy_merge_params(self._query)))
