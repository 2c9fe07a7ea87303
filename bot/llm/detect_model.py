"""The model without settings: by a key in the environment, else a local server, else `offline/demo`.

Only loopback is probed, and no text of a person is sent. A server has to answer by its own API, not only by the
common one: a gateway to paid models may listen on the same port, and a local model counts as free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic import JsonValue
from pydantic_core import from_json

from bot.config.extensions import installed
from bot.config.settings import Provider, Settings

LOOPBACK = "127.0.0.1"
PROBE_S = 0.3
"""Seconds for all local servers together."""
MAX_ANSWER_BYTES = 1_000_000
MAX_NAME = 200
KEYS: Sequence[tuple[str, str]] = (
    ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai/gpt-6.1-terra"),
)
CLOUD = (":cloud", "-cloud")
"""The names of models that Ollama forwards to its paid service (docs.ollama.com/cloud)."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this machine; ``name`` becomes the provider's.

    ``own`` has paths of its own API, each with a key of the answer. ``owner`` is the owner of its models in the
    common list, if that identifies it.
    """

    name: str
    title: str
    port: int
    own: tuple[tuple[str, str], ...]
    owner: str = ""


LOCAL_SERVERS: Sequence[LocalServer] = (
    LocalServer("ollama", "Ollama", 11434, (("/api/tags", "models"),)),
    LocalServer("llamacpp", "llama.cpp", 8080, (("/props", "default_generation_settings"),)),
    LocalServer("lmstudio", "LM Studio", 1234, (("/api/v1/models", "models"), ("/api/v0/models", "data"))),
    LocalServer("vllm", "vLLM", 8000, (("/version", "version"),), owner="vllm"),
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model. ``provider`` is its entry for the settings, None if they have it already."""

    model: str
    reason: str
    provider: Provider | None = None


@dataclass(frozen=True, slots=True)
class LocalModel(ModelChoice):
    """A model of a server on this machine."""

    provider: Provider


async def with_model(settings: Settings, environ: Mapping[str, str]) -> tuple[Settings, str, str]:
    """Return the model to use, and why. A detected local server becomes a provider."""
    if "model" in settings.model_fields_set:
        return settings, settings.model, "as the settings say"
    choice = await choose(environ)
    if choice.provider is not None:
        providers = {**settings.providers, choice.model.partition("/")[0]: choice.provider}
        settings = settings.model_copy(update={"providers": providers})
    return settings, choice.model, choice.reason


async def choose(
    environ: Mapping[str, str], servers: Sequence[LocalServer] = LOCAL_SERVERS, *, within_s: float = PROBE_S
) -> ModelChoice:
    """Return the model to use without settings, within *within_s* seconds; raises nothing."""
    for key, model in keyed():
        if environ.get(key, "").strip():
            return ModelChoice(model, f"{key} is set")
    for server, model in zip(servers, await _probe(servers, within_s), strict=True):
        if model:
            return _local(server, model)
    names = ", ".join(server.title for server in servers)
    return ModelChoice("offline/demo", f"no API key is set and no local model server ({names}) answers")


def keyed() -> Sequence[tuple[str, str]]:
    """Return the `KEYS` of providers that can be asked here, each with a model."""
    return [(key, model) for key, model in KEYS if model.partition("/")[0] in installed().models]


async def find_local(
    servers: Sequence[LocalServer] = LOCAL_SERVERS, *, within_s: float = PROBE_S
) -> list[LocalModel]:
    """Return a model of every local server that answers within *within_s* seconds; raises nothing."""
    answers = await _probe(servers, within_s, every=True)
    return [_local(server, model) for server, model in zip(servers, answers, strict=True) if model]


def _local(server: LocalServer, model: str) -> LocalModel:
    provider = Provider(base_url=f"http://{LOOPBACK}:{server.port}/v1", free=True)
    return LocalModel(f"{server.name}/{model}", f"{server.title} answers on port {server.port}", provider)


async def _probe(servers: Sequence[LocalServer], within_s: float, *, every: bool = False) -> list[str]:
    """Ask all servers at once for a model; without *every*, stop as soon as the first one in order is known."""
    if Provider().kind not in installed().models:
        return [""] * len(servers)
    found: list[str | None] = [None] * len(servers)

    async def ask(index: int) -> None:
        found[index] = await _model_of(servers[index])
        leader = next((answer for answer in found if answer != ""), None)
        if leader and not every:
            tasks.cancel_scope.cancel()

    with anyio.move_on_after(within_s):
        async with anyio.create_task_group() as tasks:
            for index in range(len(servers)):
                tasks.start_soon(ask, index)
    return [answer or "" for answer in found]


async def _model_of(server: LocalServer) -> str:
    """Return a chat model of *server*, or ``""`` if the server is missing or is another one."""
    answer = await _get(server.port, "/v1/models", lambda answer: bool(chat_model(answer)))
    model = chat_model(answer, server.owner)
    for path, key in server.own if model else ():
        if _has(await _get(server.port, path, partial(_has, key=key)), key):
            return model
    return ""


async def _get(port: int, path: str, enough: Callable[[bytes], bool]) -> bytes:
    """Return the raw answer to a GET until it is *enough*, or b"" without an answer.

    HTTP/1.0 has no chunks (RFC 9112 section 6.1): the body is everything after the headers.
    """
    request = f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}:{port}\r\nAccept: application/json\r\n\r\n"
    answer = b""
    try:
        async with await anyio.connect_tcp(LOOPBACK, port) as stream:
            await stream.send(request.encode())
            while len(answer) <= MAX_ANSWER_BYTES and not enough(answer):
                answer += await stream.receive()
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return answer
    return answer


def chat_model(answer: bytes, owner: str = "") -> str:
    """Return the first chat model of an HTTP answer, judged by its name, or ``""``."""
    models = _document(answer).get("data")
    for model in models if isinstance(models, list) else []:
        if not isinstance(model, dict) or owner not in ("", model.get("owned_by")):
            continue
        if isinstance(name := model.get("id"), str) and _usable(name):
            return name
    return ""


def _has(answer: bytes, key: str) -> bool:
    return key in _document(answer)


def _document(answer: bytes) -> dict[str, JsonValue]:
    """Return the JSON object of an HTTP answer, or an empty one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[:2]
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or not status[1].startswith(b"200"):
        return {}
    try:
        document = from_json(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _usable(name: str) -> bool:
    plain = 0 < len(name) <= MAX_NAME and name.isprintable() and " " not in name and not name.endswith(CLOUD)
    return plain and not any(word in name.lower() for word in ("embed", "rerank", "whisper"))
