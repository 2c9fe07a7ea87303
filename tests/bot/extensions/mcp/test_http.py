import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from bot.extensions.mcp.server import Timeouts
from bot.extensions.mcp.settings import McpServer
from bot.extensions.mcp.tool import MAX_TEXT
from bot.ports.errors import McpUnavailable, ToolError, ToolTimeout
from tests.bot.extensions.mcp.opened import QUICK, call, opened, plain, workshop
from tests.bot.tools.site import hanging, serving
from tests.patience import WITHIN_S, until

PROGRAM = Path(__file__).parent / "program.py"


@asynccontextmanager
async def run_program(port: int, *more: str):
    process = await anyio.open_process(
        [sys.executable, str(PROGRAM), str(port), *more], stdin=None, stdout=None, stderr=None
    )
    try:
        with anyio.fail_after(WITHIN_S):
            while process.returncode is None:
                with suppress(OSError):
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                await anyio.sleep(0.05)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.aclose()


def at(port: int, **more: object) -> McpServer:
    return McpServer(url=f"http://127.0.0.1:{port}/mcp", **more)


@pytest.fixture(params=["stdio", "sse", "json"])
async def servers(request, tmp_path, free_tcp_port):
    """The SDK's own server on each wire."""
    if request.param == "stdio":
        async with opened(tmp_path, {"shop": workshop()}) as servers:
            yield servers
    else:
        async with (
            run_program(free_tcp_port, request.param),
            opened(tmp_path, {"shop": at(free_tcp_port)}) as servers,
        ):
            yield servers


async def test_a_real_server_is_used_on_each_wire(servers):
    """One test for all of this: a server takes a second to start."""
    (server,) = servers.servers
    assert (len(servers.tools), server.state) == (9, "connected")

    assert (await call(servers, "shop__add", a=1, b=2)).result == "3"
    returned = await call(servers, "shop__echo", text="hi")
    assert (returned.result, returned.origin) == ("hi", "MCP server shop")
    assert (await call(servers, "shop__prints")).result == "printed"

    with pytest.raises(ToolError, match="no such customer: 42") as failed:
        await call(servers, "shop__fails")
    assert failed.value.origin == "MCP server shop"
    with pytest.raises(ToolError):  # an elicitation is declined
        await call(servers, "shop__asks")
    for name, arguments in (("no_such_tool", {}), ("add", {"a": "one"})):
        assert (await server.call(name, arguments, anyio.current_time() + 20)).is_error

    big = await call(servers, "shop__big", size=8_000_000)
    assert len(big.result) == MAX_TEXT
    assert f"{MAX_TEXT:,}" in big.errors[0].message
    parts = await call(servers, "shop__parts")
    assert parts.result == [
        "one",
        {"resource": "file:///notes.txt", "text": "from a resource"},
        {"resource": "file:///more.txt", "name": "more"},
    ]
    assert [error.item for error in parts.errors] == ["image"]

    with pytest.raises(ToolTimeout):
        await call(servers, "shop__slow", within_s=0.2, seconds=30)
    with anyio.move_on_after(0.2) as stop:
        await call(servers, "shop__slow", seconds=30)
    assert stop.cancelled_caught
    results = {}

    async def add(number: int) -> None:
        results[number] = (await call(servers, "shop__add", a=number, b=1)).result

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(add, number)
    assert results == {number: str(number + 1) for number in range(50)}


async def test_a_program_that_dies_in_a_call_is_started_again(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path, tools=("hello", "die"))}) as servers:
        with pytest.raises(McpUnavailable, match="may or may not have worked"):
            await call(servers, "p__die")
        assert (await call(servers, "p__hello")).result == "{}"


async def test_a_server_that_dies_in_the_middle_of_calls_and_comes_back(tmp_path, free_tcp_port):
    outcomes = []

    async def doomed(servers):
        try:
            await call(servers, "web__slow", seconds=60)
        except McpUnavailable as error:
            outcomes.append(str(error))

    async with run_program(free_tcp_port) as process, opened(tmp_path, {"web": at(free_tcp_port)}) as servers:
        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(doomed, servers)
                await anyio.sleep(0.5)
                process.kill()
        assert len(outcomes) == 3
        await process.wait()
        with pytest.raises(McpUnavailable):
            await call(servers, "web__add", a=1, b=1)
        async with run_program(free_tcp_port):
            await until(lambda: servers.servers[0].state == "connected")
            assert (await call(servers, "web__add", a=1, b=1)).result == "2"


async def test_nobody_at_the_address(tmp_path, free_tcp_port):
    async with opened(tmp_path, {"web": at(free_tcp_port)}) as servers:
        assert servers.tools == []
        assert servers.servers[0].reason == "it cannot be reached"


REDIRECT = b"HTTP/1.1 307 Temporary\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "it did not answer within 0.5 s"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "it refused the connection"),
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "it refused the connection"),
        (REDIRECT, "it refused the connection"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "the connection broke"),
        (JSON + b"content-length: 5\r\n\r\nhello", "it refused the connection"),
        (JSON + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello", "the connection broke"),
        (JSON + b"\r\n" + b" " * 21_000_000, "it refused the connection"),
    ],
    ids=["nothing", "404", "401", "redirect", "ssh", "text", "gzip", "too long"],
)
async def test_something_else_at_the_address(tmp_path, answer, reason):
    times = QUICK if answer else Timeouts(address=0.5)
    async with serving() as site:
        site.pages["/mcp"] = answer or hanging
        async with opened(tmp_path, {"web": at(site.ports["plain"])}, times=times) as servers:
            assert servers.tools == []
            assert servers.servers[0].reason == reason


async def test_headers_are_sent_as_they_were_looked_up(tmp_path):
    headers = {"Authorization": "env:KEY"}
    environ = dict(os.environ, KEY="Bearer correct-horse")
    async with (
        serving() as site,
        opened(tmp_path, {"web": at(site.ports["plain"], headers=headers)}, environ=environ),
    ):
        pass
    head = site.heads[0].lower()
    assert "authorization: bearer correct-horse" in head
    assert "accept-encoding: identity" in head
