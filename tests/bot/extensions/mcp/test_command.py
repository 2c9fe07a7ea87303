"""`threadfast mcp` beside a running bot: a real process, a real authorization server."""

import json
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from bot.extensions.mcp.credentials import FOLDER
from tests.bot.extensions.mcp.opened import opened, plain
from tests.fakes.mcp_oauth import CANARY, browse, serving
from tests.patience import WITHIN_S


@pytest.fixture
async def case(tmp_path, free_tcp_port_factory):
    port, redirect_port = free_tcp_port_factory(), free_tcp_port_factory()
    async with serving(port) as site:
        settings = tmp_path / "settings.json"
        oauth = {"account": "bot", "redirect_port": redirect_port}
        servers = {
            "shop": {"url": site.url, "oauth": oauth},
            "mine": {"url": site.url, "oauth": {}},
            "plain": {"command": "true"},
        }
        settings.write_text(json.dumps({"data": "data", "mcp_servers": servers}))
        yield tmp_path, site


@asynccontextmanager
async def command(folder, *words):
    """Run a command, with no browser."""
    environ = {**os.environ, "BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    process = await anyio.open_process(
        [sys.executable, "-m", "bot", "mcp", *words, "--settings", str(folder / "settings.json")],
        env=environ,
        stderr=subprocess.STDOUT,
    )
    async with process:
        try:
            with anyio.fail_after(WITHIN_S):
                yield process
        finally:
            if process.returncode is None:
                process.kill()


async def output(folder, *words):
    async with command(folder, *words) as process:
        text = b"".join([part async for part in process.stdout]).decode()
        return await process.wait(), text


@asynccontextmanager
async def login(folder):
    """Begin to sign in; yields the process and the link that it prints."""
    async with command(folder, "login", "shop") as process:
        printed = ""
        while not (link := re.search(r"\n(http\S+/authorize\S+)\n", printed)):
            printed += (await process.stdout.receive()).decode()
        yield process, link[1]


@pytest.mark.parametrize("way", ["browser", "pasted"])
async def test_an_operator_signs_the_bot_in_and_out(case, way):
    folder, _site = case
    async with login(folder) as (process, link):
        address = await browse(link)
        if way == "browser":
            async with httpx2.AsyncClient() as browser:
                assert (await browser.get(address)).status_code == 200
        else:
            await process.stdin.send(f"nonsense\n{address}\n".encode())
        printed = b"".join([part async for part in process.stdout]).decode()
        assert await process.wait() == 0
    assert "Signed in at shop." in printed
    assert CANARY not in printed
    assert len(list((folder / "data" / FOLDER).iterdir())) == 1
    code, listed = await output(folder, "list")
    assert code == 0
    assert listed.splitlines() == [
        "mine: people sign in by themselves, with `/mcp connect mine` in a direct message.",
        "  its tools are not known yet",
        "plain: no sign-in",
        "  its tools are not known yet",
        "shop: signed in",
        "  its tools are not known yet",
    ]
    assert await output(folder, "logout", "shop") == (0, "Signed out at shop.\n")
    assert await output(folder, "logout", "shop") == (0, "Nobody was signed in at shop.\n")


async def test_the_list_has_each_tool_that_is_left_out_or_offered_with_less(tmp_path):
    server = plain(tmp_path, tools=["fine", {"name": "odd", "inputSchema": "text"}, 5])
    servers = {"shop": server.model_dump(exclude_unset=True)}
    (tmp_path / "settings.json").write_text(json.dumps({"data": "data", "mcp_servers": servers}))
    async with opened(tmp_path, {"shop": server}):
        pass
    assert (await output(tmp_path, "list"))[1].splitlines() == [
        "shop: no sign-in",
        "  2 tools",
        "  left out: (a tool without a name): its name is empty or too long",
        "  offered with less: odd: its schema is not an object",
    ]


async def test_a_refusal_ends_the_command(case):
    folder, site = case
    site.grants.refuses = True
    async with login(folder) as (process, link):
        await process.stdin.send(f"{await browse(link)}\n".encode())
        printed = b"".join([part async for part in process.stdout]).decode()
        assert await process.wait() == 1
    assert "shop: the sign-in was refused there" in printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "no server is called 'none'"),
        ("plain", "has no oauth"),
        ("mine", "people sign in by themselves"),
    ],
)
async def test_a_server_without_such_a_sign_in_is_refused(case, name, words):
    code, printed = await output(case[0], "login", name)
    assert code == 78
    assert words in printed
