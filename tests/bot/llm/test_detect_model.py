import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st

from bot.config.settings import Provider
from bot.llm.detect_model import LOCAL_SERVERS, LocalServer, ModelChoice, chat_model, choose, find_local
from tests.fakes.http import FakeHttp, Reply
from tests.patience import WITHIN_S

pytestmark = pytest.mark.needs("openai")

OWN = {"models": [], "version": "1", "default_generation_settings": {}}
"""What the servers' own APIs say, in one."""


def listed(*models: str, owner: str = "vllm", **own: object) -> bytes:
    data = [{"id": model, "object": "model", "owned_by": owner} for model in models]
    body = json.dumps({"object": "list", "data": data, **own}).encode()
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body


def answer(*models: str) -> bytes:
    """Return what each of the servers could say, whatever it is asked."""
    return listed(*models, **OWN)


@asynccontextmanager
async def listening(serve: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    async def once(stream: SocketStream) -> None:
        async with stream:
            await serve(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, once)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def saying(reply: bytes) -> Callable[[SocketStream], Awaitable[None]]:
    async def serve(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(reply)

    return serve


async def silent(stream: SocketStream) -> None:
    await anyio.sleep_forever()


@asynccontextmanager
async def closed_port() -> AsyncIterator[int]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    await listener.aclose()
    yield port


def servers(*ports: int) -> list[LocalServer]:
    return [replace(server, port=port) for server, port in zip(LOCAL_SERVERS, ports, strict=False)]


async def test_a_key_in_the_environment_is_taken_before_any_port_is_touched() -> None:
    touched = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        touched.set()

    async with listening(serve) as port:
        both = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}
        assert (await choose(both, servers(port), within_s=10)).model == "anthropic/claude-sonnet-5-5"
        choice = await choose({"ANTHROPIC_API_KEY": " ", "OPENAI_API_KEY": "b"}, servers(port), within_s=10)
        assert choice == ModelChoice("openai/gpt-6.1-terra", "OPENAI_API_KEY is set")
        with anyio.move_on_after(0.05):
            await touched.wait()
        assert not touched.is_set()


async def test_a_local_server_is_taken_with_its_address() -> None:
    async with listening(saying(answer("qwen3:8b", "llama"))) as port:
        choice = await choose({}, servers(port), within_s=10)
    assert choice.model == "ollama/qwen3:8b"
    assert choice.provider == Provider(base_url=f"http://127.0.0.1:{port}/v1", free=True)
    assert str(port) in choice.reason


async def test_the_first_in_order_wins_also_when_it_answers_last() -> None:
    second_done = anyio.Event()

    async def late(stream: SocketStream) -> None:
        await second_done.wait()
        await stream.send(answer("first"))

    async def early(stream: SocketStream) -> None:
        await stream.send(answer("second"))
        with suppress(anyio.EndOfStream):
            while True:
                await stream.receive()
        second_done.set()

    async with closed_port() as nobody, listening(late) as one, listening(early) as two:
        assert (await choose({}, servers(nobody, one, two), within_s=10)).model == "llamacpp/first"


async def test_servers_that_never_answer_cost_the_time_allowed_once_and_hide_no_other() -> None:
    async with listening(silent) as hung, listening(saying(answer("m"))) as good:
        started = anyio.current_time()
        choice = await choose({}, servers(hung, good, hung), within_s=0.8)
        assert anyio.current_time() - started < 1.55
    assert choice.model == "llamacpp/m"


async def test_nothing_slow_is_waited_for_when_nothing_better_can_come() -> None:
    async with listening(saying(answer("m"))) as good, listening(silent) as hung:
        started = anyio.current_time()
        assert (await choose({}, servers(good, hung, hung, hung), within_s=10)).model == "ollama/m"
        assert anyio.current_time() - started < 5


def by_path(replies: dict[str, bytes]) -> Callable[[SocketStream], Awaitable[None]]:
    async def serve(stream: SocketStream) -> None:
        path = (await stream.receive()).split(b" ")[1].decode()
        await stream.send(replies.get(path, b"HTTP/1.0 404 Not LocalModel\r\n\r\n{}"))

    return serve


KNOWN = {
    "ollama": ("/api/tags", {"models": [{"name": "m"}]}),
    "llamacpp": ("/props", {"default_generation_settings": {"n_ctx": 4096}}),
    "lmstudio": ("/api/v0/models", {}),
    "vllm": ("/version", {"version": "0.11.0"}),
}


@pytest.mark.parametrize("server", LOCAL_SERVERS, ids=lambda server: server.name)
async def test_a_server_is_known_by_its_own_api_and_a_gateway_on_its_port_is_not_taken(
    server: LocalServer,
) -> None:
    path, own = KNOWN[server.name]
    models = listed("m")
    async with (
        listening(by_path({"/v1/models": models, path: listed("m", **own)})) as real,
        listening(by_path({"/v1/models": models})) as gateway,
    ):
        choice = await choose({}, [replace(server, port=real)], within_s=10)
        assert choice.provider is not None
        assert (choice.model, choice.provider.free) == (f"{server.name}/m", True)
        assert (await choose({}, [replace(server, port=gateway)], within_s=10)).model == "offline/demo"
        assert await find_local([replace(server, port=gateway)], within_s=10) == []


async def test_a_gateway_that_tells_its_version_is_no_vllm() -> None:
    vllm = next(server for server in LOCAL_SERVERS if server.name == "vllm")
    gateway = {"/v1/models": listed("gpt", owner="openai"), "/version": listed(version="1")}
    async with listening(by_path(gateway)) as port:
        assert (await choose({}, [replace(vllm, port=port)], within_s=10)).model == "offline/demo"


async def test_a_model_that_ollama_only_passes_on_to_its_cloud_is_not_taken() -> None:
    async with listening(saying(answer("gpt-oss:120b-cloud", "glm:cloud", "qwen3:8b"))) as port:
        assert (await choose({}, servers(port), within_s=10)).model == "ollama/qwen3:8b"


async def test_without_key_or_server_it_is_offline_and_says_why() -> None:
    async with closed_port() as nobody:
        choice = await choose({}, servers(nobody, nobody))
    assert choice.model == "offline/demo"
    assert choice.provider is None
    assert "Ollama" in choice.reason


async def test_an_endless_answer_is_cut_off() -> None:
    async def flood(stream: SocketStream) -> None:
        await stream.send(b'HTTP/1.1 200 OK\r\n\r\n{"data": [')
        with suppress(anyio.BrokenResourceError):
            while True:
                await stream.send(b" " * 65536)

    async with listening(flood) as port:
        with anyio.fail_after(WITHIN_S):
            assert (await choose({}, servers(port), within_s=60)).model == "offline/demo"


class KeepsConnectionsOpen(FakeHttp):
    paths = ("/v1/models", "/api/tags")


async def test_a_real_http_server_that_keeps_connections_open_is_understood() -> None:
    body = answer("real").partition(b"\r\n\r\n")[2]
    async with KeepsConnectionsOpen(lambda _: Reply((body,))) as fake:
        port = urlsplit(fake.base_url).port or 0
        assert (await choose({}, servers(port), within_s=10)).model == "ollama/real"
    assert [(seen.method, seen.path, seen.headers["host"]) for seen in fake.requests] == [
        ("GET", path, f"127.0.0.1:{port}") for path in KeepsConnectionsOpen.paths
    ]


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.0 404 Not LocalModel\r\n\r\n" + answer("x").partition(b"\r\n\r\n")[2],
        b"HTTP/1.0 302 LocalModel\r\nLocation: http://example.com/\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b'HTTP/1.0 200 OK\r\n\r\n{"data": {"id": "x"}}',
        b'HTTP/1.0 200 OK\r\n\r\n{"data": ["x", {"id": 3}, {}]}',
        answer(),
        answer("", "with space", "line\nbreak", "esc\x1b[31m", "x" * 300, "nomic-embed-text"),
    ],
    ids=lambda reply: repr(reply[:30]),
)
def test_what_is_no_list_of_chat_models_counts_as_silence(reply: bytes) -> None:
    assert chat_model(reply) == ""


def test_models_that_only_embed_are_passed_over() -> None:
    assert chat_model(answer("nomic-embed-text", "qwen3:8b")) == "qwen3:8b"


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda body: b"HTTP/1.0 200 OK\r\n\r\n" + body))
def test_no_answer_raises(reply: bytes) -> None:
    chat_model(reply)
