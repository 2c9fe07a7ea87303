"""What the adapters over the providers' SDKs have in common: keys, clients, and events as plain JSON."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar

import anyio
import anyio.to_thread

from bot.config.settings import StreamTimeouts
from bot.llm.adapters.stream import Call, EventStream, Reader
from bot.ports.errors import Unauthorized
from bot.ports.model import Completion, Request
from threads.model import OnEvent

if TYPE_CHECKING:
    import httpx2

Client = TypeVar("Client")
JsonEvent = dict[str, Any]
"""An event as it came. A missing or odd part of it raises KeyError or TypeError, which ends the call, typed."""


class ClientSettings(TypedDict):
    """What both SDKs' clients are made with."""

    api_key: str
    base_url: str | None
    http_client: httpx2.AsyncClient
    timeout: httpx2.Timeout
    max_retries: int


@contextmanager
def _no_collections() -> Iterator[None]:
    """Collect no garbage meanwhile, and none of what is there ever after.

    Thousands of modules make a full collection take 0.1 s and more, in which all threads stand still; some happen
    while an SDK is imported, and one now and then for ever after.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


class SdkModel(ABC, Generic[Client]):
    """One model of one provider. ``base_url`` goes to the SDK as it is; ``api_key`` is asked at each call.

    ``now`` (UTC) is read only when a provider names a date to wait for and its answer bears no date of its own.
    Without ``vision`` pictures are replaced by words.
    """

    no_key: ClassVar[str] = ""
    """What is sent where none is set; blank means that the provider cannot be asked without one."""

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        api_key: Callable[[], str | None],
        base_url: str | None,
        http: Callable[[], httpx2.AsyncClient],
        timeouts: StreamTimeouts,
        now: Callable[[], datetime] | None = None,
        vision: bool = True,
    ) -> None:
        self._provider = provider
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._http = http
        self._timeouts = timeouts
        self._now = now
        self._vision = vision
        self._lock = anyio.Lock()
        self._built: tuple[str, Client] | None = None

    @property
    def name(self) -> str:
        return f"{self._provider}/{self._model}"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        api_key = (self._api_key() or self.no_key).strip()
        if not api_key or not api_key.isascii() or not api_key.isprintable():
            # Further down the whole header, and so the key, would stand in the error's text.
            raise Unauthorized(
                "the API key is empty or no header can hold it", provider=self._provider, model=self._model
            )

        async def open_stream() -> AbstractAsyncContextManager[EventStream[JsonEvent]]:
            return await self._post(await self._client(api_key), self._body(request))

        call = Call(
            self._provider,
            self._model,
            open_stream,
            self._reader(),
            self._timeouts,
            request.max_tokens,
            self._now,
            request.meter,
            prepare=partial(self._client, api_key),
        )
        return await call.answer(on_event)

    async def _client(self, api_key: str) -> Client:
        """Return the SDK's client, made in a worker thread at first use and again when the key has changed.

        Importing an SDK takes a second or more, in which the event loop must go on serving all other threads.
        """
        async with self._lock:
            if self._built is None or self._built[0] != api_key:
                with _no_collections():
                    self._built = (api_key, await anyio.to_thread.run_sync(self._build, api_key))
            return self._built[1]

    def _build(self, api_key: str) -> Client:
        from bot.llm.adapters.http_client import socket_timeout  # noqa: PLC0415

        return self._make(
            {
                "api_key": api_key,
                "base_url": self._base_url,
                "http_client": self._http(),
                "timeout": socket_timeout(self._timeouts),
                "max_retries": 0,
            }
        )

    @abstractmethod
    def _make(self, settings: ClientSettings) -> Client: ...

    @abstractmethod
    async def _post(
        self, client: Client, body: dict[str, object]
    ) -> AbstractAsyncContextManager[EventStream[JsonEvent]]:
        """Send *body*; return the events as plain JSON.

        The SDKs would build a model of pydantic from each event, which takes more time than all the rest, and half
        a second at its first use; OpenAI's would also walk all of the body against its types.
        """

    @abstractmethod
    def _body(self, request: Request) -> dict[str, object]: ...

    @abstractmethod
    def _reader(self) -> Reader[JsonEvent]: ...
