"""Public MCP servers, as their authors publish them: their tools are offered, and a call comes back."""

from __future__ import annotations

import subprocess

import pytest

from bot.extensions.mcp.settings import McpServer
from tests.bot.extensions.mcp.opened import call, opened
from tests.real_servers.installed import PYTHON, needs_servers

pytestmark = [needs_servers, pytest.mark.anyio]


def module(name, *args):
    return McpServer(command=str(PYTHON), args=("-m", name, *map(str, args)))


SERVERS = {
    "time": lambda _: module("mcp_server_time", "--local-timezone", "UTC"),
    "fetch": lambda _: module("mcp_server_fetch"),
    "git": lambda folder: module("mcp_server_git", "--repository", folder),
    "sqlite": lambda folder: McpServer(
        command=str(PYTHON.with_name("mcp-server-sqlite")), args=("--db-path", str(folder / "x.db"))
    ),
    "calculator": lambda _: module("mcp_server_calculator"),
}
CALLS = {
    "time": ("get_current_time", {"timezone": "UTC"}, "UTC"),
    "git": ("git_status", {}, "On branch"),
    "sqlite": ("list_tables", {}, "["),
    "calculator": ("calculate", {"expression": "6*7"}, "42"),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_its_tools_are_offered_and_one_is_called(tmp_path, name):
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    async with opened(tmp_path, {name: SERVERS[name](tmp_path)}) as servers:
        offered = [tool.name for tool in servers.tools]
        assert offered, servers
        if name in CALLS:
            tool, arguments, words = CALLS[name]
            if name == "git":
                arguments = {"repo_path": str(tmp_path)}
            output = await call(servers, f"{name}__{tool}", **arguments)
            assert words in str(output.result)
