"""What all adapters over an SDK share: they are made without it, and import it at the first call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import anyio
import anyio.to_thread

from bot.errors import Unauthorized
from bot.llm.model import Completion, Request
from bot.llm.stream import Call, Event, EventStream, Reader, StreamTimeouts
from threads.model import OnEvent

if TYPE_CHECKING:
    import httpx2

Client = TypeVar("Client")


class SdkModel(ABC, Generic[Client, Event]):
    """One model of one provider. ``base_url`` goes to the SDK as it is; ``api_key`` is asked at each call.

    ``now`` (UTC) is read only when a provider names a date to wait for and its answer bears no date of its own.
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
    ) -> None:
        self._provider = provider
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._http = http
        self._timeouts = timeouts
        self._now = now
        self._lock = anyio.Lock()
        self._built: tuple[str, Client] | None = None

    @property
    def name(self) -> str:
        return f"{self._provider}/{self._model}"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.llm.model.Model.complete`."""
        api_key = (self._api_key() or self.no_key).strip()
        if not api_key or not api_key.isascii() or not api_key.isprintable():
            # Further down the whole header, and so the key, would stand in the error's text.
            raise Unauthorized(
                "the API key is empty or no header can hold it", provider=self._provider, model=self._model
            )

        async def open_stream() -> AbstractAsyncContextManager[EventStream[Event]]:
            return await self._open(await self._client(api_key), request)

        call = Call(self._provider, self._model, open_stream, self._reader(), self._timeouts, self._now)
        return await call.answer(on_event)

    async def _client(self, api_key: str) -> Client:
        """Return the SDK's client, made in a worker thread at first use and again when the key has changed.

        Importing an SDK takes a second or more, in which the event loop must go on serving all other threads.
        """
        async with self._lock:
            if self._built is None or self._built[0] != api_key:
                self._built = (api_key, await anyio.to_thread.run_sync(self._build, api_key))
            return self._built[1]

    @abstractmethod
    def _build(self, api_key: str) -> Client: ...

    @abstractmethod
    async def _open(
        self, client: Client, request: Request
    ) -> AbstractAsyncContextManager[EventStream[Event]]: ...

    @abstractmethod
    def _reader(self) -> Reader[Event]: ...
