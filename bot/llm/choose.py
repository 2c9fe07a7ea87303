"""Which model answers when nobody said so: a key in the environment, else a local server, else `offline/demo`.

Only the loopback address is ever asked, and only for its list of models: no text of a person is sent from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
from pydantic_core import from_json

from bot.settings_model import Provider

LOOPBACK = "127.0.0.1"
PROBE_S = 0.3
"""Seconds for all local servers together."""
MAX_ANSWER_BYTES = 1_000_000
MAX_NAME = 200
KEYS: Sequence[tuple[str, str]] = (
    ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai/gpt-6.1-terra"),
)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this machine; ``name`` becomes the provider's."""

    name: str
    title: str
    port: int


LOCAL_SERVERS: Sequence[LocalServer] = (
    LocalServer("ollama", "Ollama", 11434),
    LocalServer("llamacpp", "llama.cpp", 8080),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("vllm", "vLLM", 8000),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """``provider`` belongs into the settings under the model's provider name; None when it is known there."""

    model: str
    reason: str
    provider: Provider | None = None


async def choose(
    environ: Mapping[str, str], servers: Sequence[LocalServer] = LOCAL_SERVERS, *, within_s: float = PROBE_S
) -> Choice:
    """Return the model to use without settings; takes at most *within_s* seconds and raises nothing."""
    for key, model in KEYS:
        if environ.get(key, "").strip():
            return Choice(model, f"{key} is set")
    for server, model in zip(servers, await _probe(servers, within_s), strict=True):
        if model:
            return _local(server, model)
    names = ", ".join(server.title for server in servers)
    return Choice("offline/demo", f"no API key is set and no local model server ({names}) answers")


async def find_local(
    servers: Sequence[LocalServer] = LOCAL_SERVERS, *, within_s: float = PROBE_S
) -> list[Choice]:
    """Return a model of every local server that answers within *within_s* seconds; raises nothing."""
    answers = await _probe(servers, within_s, every=True)
    return [_local(server, model) for server, model in zip(servers, answers, strict=True) if model]


def _local(server: LocalServer, model: str) -> Choice:
    provider = Provider(base_url=f"http://{LOOPBACK}:{server.port}/v1")
    return Choice(f"{server.name}/{model}", f"{server.title} answers on port {server.port}", provider)


async def _probe(servers: Sequence[LocalServer], within_s: float, *, every: bool = False) -> list[str]:
    """Ask all servers at once for a model; stop when nothing better can come, unless *every* one is wanted."""
    found: list[str | None] = [None] * len(servers)

    async def ask(index: int) -> None:
        found[index] = chat_model(await _get_models(servers[index].port))
        leader = next((answer for answer in found if answer != ""), None)
        if leader and not every:
            tasks.cancel_scope.cancel()

    with anyio.move_on_after(within_s):
        async with anyio.create_task_group() as tasks:
            for index in range(len(servers)):
                tasks.start_soon(ask, index)
    return [answer or "" for answer in found]


async def _get_models(port: int) -> bytes:
    """Return the answer to GET /v1/models as it came; what does not answer gives nothing.

    HTTP/1.0 because it allows no chunks (RFC 9112 section 6.1): the body is all that follows the headers.
    """
    request = f"GET /v1/models HTTP/1.0\r\nHost: {LOOPBACK}:{port}\r\nAccept: application/json\r\n\r\n"
    answer = b""
    try:
        async with await anyio.connect_tcp(LOOPBACK, port) as stream:
            await stream.send(request.encode())
            while len(answer) <= MAX_ANSWER_BYTES and not chat_model(answer):
                answer += await stream.receive()
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return answer
    return answer


def chat_model(answer: bytes) -> str:
    """Return the first model of an HTTP answer that can chat, as far as its name tells, or ``""``."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[:2]
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or not status[1].startswith(b"200"):
        return ""
    try:
        document = from_json(body)
    except ValueError:
        return ""
    models = document.get("data") if isinstance(document, dict) else None
    for model in models if isinstance(models, list) else []:
        name = model.get("id") if isinstance(model, dict) else None
        if isinstance(name, str) and _usable(name):
            return name
    return ""


def _usable(name: str) -> bool:
    plain = 0 < len(name) <= MAX_NAME and name.isprintable() and " " not in name
    return plain and not any(word in name.lower() for word in ("embed", "rerank", "whisper"))
