import json

import anyio
import anyio.lowlevel
import pytest

from bot.config.load import secrets_of
from bot.config.settings import McpServer, Settings
from bot.tools.mcp.connection import settings_digest
from tests.bot.tools.mcp.opened import NO_ARGUMENTS, call, opened, plain, starts
from tests.bot.tools.processes import gone
from tests.patience import WITHIN_S
from tests.tool_context import make_toolbox, tool_context, unheard
from threads.errors import NewerSchema
from threads.model import ToolCall


async def test_tools_are_learned_once_and_then_known_without_starting_anything(tmp_path):
    configured = {"p": plain(tmp_path)}
    async with opened(tmp_path, configured) as servers:
        first = make_toolbox(servers.tools, timeout_s=1).specs
        assert servers.servers[0].state == "connected"
    async with opened(tmp_path, configured) as servers:
        assert servers.servers[0].state == "stopped"
        assert make_toolbox(servers.tools, timeout_s=1).specs == first
        assert len(starts(tmp_path)) == 1
        assert (await call(servers, "p__hello")).result == "{}"
        assert len(starts(tmp_path)) == 2


async def test_what_a_server_lists_later_counts_from_the_next_start_on(tmp_path, caplog):
    configured = {"p": plain(tmp_path, tools=("hello", "old"))}
    async with opened(tmp_path, configured):
        pass
    plain(tmp_path, tools=("hello", "new"))
    async with opened(tmp_path, configured) as servers:
        await call(servers, "p__hello")
        assert [tool.name for tool in servers.tools] == ["p__hello", "p__old"]
        assert "takes effect at the next start: new, old" in caplog.text
    async with opened(tmp_path, configured) as servers:
        assert [tool.name for tool in servers.tools] == ["p__hello", "p__new"]


async def test_other_settings_are_another_server(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path)}):
        pass
    async with opened(tmp_path, {"p": plain(tmp_path, env={"MODE": "other"})}):
        pass
    assert len(starts(tmp_path)) == 2


async def test_a_server_that_is_not_configured_any_more_is_forgotten(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path), "q": plain(tmp_path, "q")}):
        pass
    async with opened(tmp_path, {"q": plain(tmp_path, "q", env={"A": "b"})}):
        pass
    assert set(json.loads((tmp_path / "data" / "mcp.json").read_text())["servers"]) == {"q"}


async def test_a_start_waits_a_little_for_unknown_servers_and_goes_on_without(tmp_path):
    both = {"mute": plain(tmp_path, "mute"), "p": plain(tmp_path)}
    with anyio.fail_after(WITHIN_S):
        async with opened(tmp_path, both, learn_s=1) as servers:
            assert [tool.name for tool in servers.tools] == ["p__hello"]
            assert [server.state for server in servers.servers] == ["connecting", "connected"]
    assert await gone(starts(tmp_path, "mute")[0])


async def test_only_servers_that_are_down_are_told_as_trouble(tmp_path):
    both = {"broken": McpServer(command=str(tmp_path / "none")), "p": plain(tmp_path)}
    async with opened(tmp_path, both) as servers:
        states = set()
        with anyio.fail_after(WITHIN_S):
            while states != {"waiting", "connecting"}:
                assert servers.trouble() == "broken: 0 tools, down: its program was not found"
                states.add(servers.servers[0].state)
                await anyio.lowlevel.checkpoint()
    async with opened(tmp_path, {"p": plain(tmp_path)}) as servers:
        assert servers.trouble() == ""


async def test_a_damaged_file_is_put_aside_and_the_tools_are_learned_anew(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mcp.json").write_text('{"v": 1, "servers": {"p": {"tools": 5')
    async with opened(tmp_path, {"p": plain(tmp_path)}) as servers:
        assert [tool.name for tool in servers.tools] == ["p__hello"]
    assert (tmp_path / "data" / "mcp.json.broken").exists()


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mcp.json").write_text('{"v": 99}')
    with pytest.raises(NewerSchema):
        async with opened(tmp_path, {"p": plain(tmp_path)}):
            pass


BAD = [
    {"name": "a text", "inputSchema": "object"},
    {"name": "null", "inputSchema": None},
    {"name": "no schema"},
    {"name": "requires a text", "inputSchema": {"type": "object", "required": "a"}},
    {"name": "described by a number", "inputSchema": NO_ARGUMENTS, "description": 7},
    {"name": "returns a text", "inputSchema": NO_ARGUMENTS, "outputSchema": "x"},
    {"name": "hints at a number", "inputSchema": NO_ARGUMENTS, "annotations": 3},
    *[None, 5, [], {"no": "name"}, {"name": 5, "inputSchema": NO_ARGUMENTS}],
]


async def test_bad_tools_are_left_out_and_cost_their_server_nothing_else(tmp_path, caplog):
    async with opened(tmp_path, {"p": plain(tmp_path, tools=["one", *BAD, "two"])}) as servers:
        assert [tool.name for tool in servers.tools] == ["p__one", "p__two"]
        left_out = servers.servers[0].listing.left_out
        assert json.loads((await call(servers, "p__one")).result) == {}
    assert [fault.partition(":")[0] for fault in left_out].count("(a tool without a name)") == 5
    assert len(left_out) == len(BAD)
    assert all(": its schema" in fault or ": it is not valid MCP" in fault for fault in left_out)
    assert "mcp.left_out: p: " in caplog.text


async def test_a_listing_that_is_no_listing(tmp_path):
    server = plain(tmp_path)
    (tmp_path / "tools-.json").write_text('"none"')
    async with opened(tmp_path, {"p": server}) as servers:
        assert servers.tools == []
        assert servers.servers[0].reason == "what it answers is not MCP"


async def test_a_file_that_cannot_be_kept_costs_only_the_next_start(tmp_path, caplog):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mcp.json.tmp").mkdir()  # what is to be replaced cannot be written
    async with opened(tmp_path, {"p": plain(tmp_path)}) as servers:
        assert servers.servers[0].state == "connected"
        assert [tool.name for tool in servers.tools] == ["p__hello"]
    assert "could not be kept" in caplog.text


async def test_every_server_is_ended_when_the_bot_is_stopped(tmp_path):
    many = {f"s{n}": plain(tmp_path, f"s{n}") for n in range(4)}
    with anyio.move_on_after(30) as scope:
        async with opened(tmp_path, many):
            scope.cancel()
            await anyio.sleep_forever()
    for n in range(4):
        assert await gone(starts(tmp_path, f"s{n}")[0])


def test_secrets_are_collected_for_the_mask_and_are_in_no_digest():
    environ = {"KEY": "correct-horse"}
    server = McpServer(command="x", env={"A": "env:KEY", "B": "env:UNSET", "C": "literal"})
    assert secrets_of(Settings(mcp_servers={"s": server}), environ) == ["correct-horse"]
    assert settings_digest(server) == settings_digest(server.model_copy())
    assert settings_digest(server) != settings_digest(server.model_copy(update={"args": ("a",)}))


async def test_the_gate_marks_a_result_as_from_the_server(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path)}) as servers:
        call = ToolCall("1", "p__hello", {"text": "x" * 200})
        box = make_toolbox(servers.tools, timeout_s=20)
        (result,) = await box.run([call], tool_context(tmp_path / "workspace"), unheard)
    assert result.outside
    assert 'from="MCP server p"' in json.loads(result.content)["result"]
