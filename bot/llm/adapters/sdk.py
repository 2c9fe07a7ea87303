"""The base of all adapters: keys, an SDK's client, and events as plain JSON."""

from __future__ import annotations

import gc
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import anyio
from anyio.to_thread import run_sync
from pydantic import JsonValue
from pydantic_core import to_json

from bot.config.params import merge
from bot.config.settings import StreamTimeouts
from bot.llm.adapters.http_client import Answer, Post, SharedHttp
from bot.llm.adapters.sse import EventDecoder, JsonEvent
from bot.llm.adapters.stream import Call, Pieces, Reader, typed_errors
from bot.llm.adapters.wire_form import in_forms
from bot.llm.classify import Fault, failure_of
from bot.ports.errors import Unauthorized
from bot.ports.model import Completion, Request
from threads.model import OnEvent


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable garbage collection for a while, and exempt all objects that exist at the end.

    With thousands of modules a full collection stops all threads for 0.1 s and more. Some would happen while an SDK
    is imported, and others later.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@dataclass(eq=False)
class SdkClient(ABC):
    """One model of one provider. ``base_url`` goes to the SDK unchanged; ``api_key`` is called for each request.

    ``now`` (UTC) is used if a provider names a date to wait for and its answer has no date. Without ``vision`` a line
    of text replaces each image. ``params`` are further parameters of each request; ours win.
    """

    no_key: ClassVar[str] = ""
    """The key to send if none is set; blank if the provider needs one."""

    provider: str
    model: str
    api_key: Callable[[], str | None]
    base_url: str | None
    http: SharedHttp
    timeouts: StreamTimeouts
    now: Callable[[], datetime] | None = None
    vision: bool = True
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    _lock: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _built: tuple[str | None, Any] = field(default=(None, None), init=False)

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"

    async def prepare(self) -> None:
        """Import the SDK and make its client, so that no answer waits for that. Raises `ProviderError`."""
        await self._open_client()

    async def _open_client(self) -> Any:
        """Return the SDK's client, made in a worker thread at first use and for each new key.

        Importing an SDK takes a second or more, and the event loop must go on serving all other threads. Raises
        `ProviderError`.
        """
        api_key = (self.api_key() or self.no_key).strip()
        if api_key == self._built[0]:
            return self._built[1]
        if not api_key or not api_key.isascii() or not api_key.isprintable():
            # A later error would have the whole header, and so the key, in its text.
            raise Unauthorized(
                "the API key is empty or no header can hold it", provider=self.provider, model=self.model
            )

        with typed_errors(self.provider, self.model, self.now):
            async with self._lock:
                if self._built[0] != api_key:
                    with _no_collections():
                        self._built = (api_key, await run_sync(self._build, api_key, abandon_on_cancel=True))
                return self._built[1]

    def _build(self, api_key: str) -> Any:
        import httpx2  # noqa: PLC0415

        limits = self.timeouts  # `stream` has stricter ones, by content
        silence = max(limits.first_content, limits.idle)
        return self._make(
            api_key=api_key,
            base_url=self.base_url,
            http_client=self.http(),
            timeout=httpx2.Timeout(limits.total, connect=limits.connect, read=silence, write=30, pool=10),
            max_retries=0,
        )

    @abstractmethod
    def _make(self, **settings: Any) -> Any:
        """Return the SDK's client with these settings."""


class SdkModel(SdkClient):
    """A model that answers in a stream."""

    path: ClassVar[str]
    """The path of the API below the base URL."""
    reader: ClassVar[type[Reader]]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        to = await self._open_client()  # before the clock of the call starts
        opened, reader = partial(self._open_events, to, request), self.reader(self.name)
        limits = self.timeouts, request.max_tokens
        call = Call(self.provider, self.model, opened, reader, *limits, self.now, request.meter)
        return await call.answer(on_event)

    def _build(self, api_key: str) -> Post:
        """Return a request without a body.

        The SDK says where to and with which headers. Its own way there builds the request from pydantic models and
        walks the body against its types; then it makes a model of each event. That takes more time than all the rest.
        """
        client = super()._build(api_key)
        url = f"{str(client.base_url).rstrip('/')}{self.path}"
        known = client.auth_headers | client.default_headers | {"accept-encoding": "identity"}
        headers = {name: value for name, value in known.items() if isinstance(value, str)}
        return Post(url, headers, b"", {"timeout": client.timeout.as_dict()})

    @asynccontextmanager
    async def _open_events(self, to: Post, request: Request) -> AsyncIterator[Pieces]:
        """Open the events as plain JSON."""
        body = in_forms(self._body_with_params(request), request.forms)
        said = to_json(body, inf_nan_mode="null")  # JSON has neither of them
        answer = await self._send(to._replace(body=said))
        async with aclosing(answer.body):
            if answer.status >= 300:
                raise failure_of(await _fault_of(answer), self.now() if self.now else None)
            yield _events(answer)

    async def _send(self, post: Post) -> Answer:
        return await self.http.send(post)

    def _body_with_params(self, request: Request) -> dict[str, object]:
        return merge(self.params, self._body(request))

    @abstractmethod
    def _body(self, request: Request) -> dict[str, object]: ...


async def _fault_of(answer: Answer) -> Fault:
    """Return what a provider's error says."""
    body: object = b"".join([piece async for piece in answer.body]).decode(errors="replace").strip()
    with suppress(ValueError, RecursionError):
        body = json.loads(str(body))
    said = f"Error code: {answer.status}"
    return Fault(f"{said} - {body}" if body else said, body, answer.status, answer.headers)


async def _events(answer: Answer) -> AsyncIterator[Iterable[JsonEvent]]:
    decoder = EventDecoder(answer.headers)
    async for piece in answer.body:
        yield decoder.feed(piece)
    yield decoder.finish()
