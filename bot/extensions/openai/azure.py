"""OpenAI's models on Azure, by an API key or by the identity of the machine (Entra ID).

An address that ends in ``/v1`` is that of the new API, and the Responses API answers there. Any other is that of a
resource: there each deployment has a path of its own, and OPENAI_API_VERSION names the version.
"""

from __future__ import annotations

from typing import Any, cast

import httpx2
from anyio.to_thread import run_sync

from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.model import OpenAIModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters.http_client import Answer, Post, SharedHttp
from bot.ports.errors import Unauthorized

SCOPE = "https://cognitiveservices.azure.com/.default"
"""What a token is for, as Azure's documentation of keyless access says."""


class _AzureModel(OpenAIModel):
    """A deployment. Without ``api_key`` each request has a token of Entra ID, which `azure.identity` keeps fresh."""

    no_key = "-"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.http = cast("SharedHttp", _Signing(self.http, self))

    def _build(self, api_key: str) -> Post:
        self._identity: Any = None
        if api_key == self.no_key:
            from azure.identity import DefaultAzureCredential  # noqa: PLC0415

            self._identity = DefaultAzureCredential()
        return super()._build(api_key)

    async def signed(self, post: Post) -> Post:
        """Add the key or the token. Raises `Unauthorized` if nobody gives one."""
        headers = httpx2.Headers(post.headers)
        given = headers.pop("authorization", "").removeprefix("Bearer ")
        if self._identity is None:
            headers.setdefault("api-key", given)
            return post._replace(headers=headers)
        headers.pop("api-key", None)
        try:
            token = await run_sync(self._identity.get_token, SCOPE, abandon_on_cancel=True)
        except Exception as error:
            raise Unauthorized(f"no token of Entra ID: {error}") from error
        headers["authorization"] = f"Bearer {token.token}"
        return post._replace(headers=headers)


class AzureResponsesModel(_AzureModel, OpenAIResponsesModel):
    """A deployment behind ``/openai/v1``."""


class AzureChatModel(_AzureModel, OpenAIChatModel):
    """A deployment of a resource, with a dated version."""

    def _make(self, **settings: Any) -> Any:
        from openai import AsyncAzureOpenAI  # noqa: PLC0415

        address = settings.pop("base_url")
        client = AsyncAzureOpenAI(**settings, azure_endpoint=address, azure_deployment=self.model)
        self._query = client.default_query
        return client

    def _build(self, api_key: str) -> Post:
        post = super()._build(api_key)
        return post._replace(url=str(httpx2.URL(post.url).copy_merge_params(self._query)))


class _Signing:
    """The client of all providers, whose requests are signed before they go out."""

    def __init__(self, http: SharedHttp, model: _AzureModel) -> None:
        self._http, self._model = http, model

    def __call__(self) -> httpx2.AsyncClient:
        return self._http()

    async def send(self, post: Post) -> Answer:
        return await self._http.send(await self._model.signed(post))
