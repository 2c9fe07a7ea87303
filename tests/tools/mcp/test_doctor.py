import json
import os

import pytest

from bot.doctor import Check, diagnose, doctor_table, run_doctor
from bot.settings_model import McpServer, Settings, Tools
from tests.tools.mcp.opened import gone, plain, starts


def settings(servers, **tools):
    return Settings(mcp_servers=servers, tools=Tools(**tools))


@pytest.mark.anyio
async def test_each_server_is_tried_and_ended(tmp_path):
    many = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(70)]
    script = 'echo "bad key $KEY" >&2'
    servers = {
        "good": plain(tmp_path),
        "wide": plain(tmp_path, "wide", tools=many),
        "dead": McpServer(command="sh", args=("-c", script), env={"KEY": "env:KEY"}),
        "none": McpServer(command="no-such-program-anywhere"),
    }
    environ = {"PATH": os.environ["PATH"], "KEY": "correct-horse-battery"}
    sandbox, *found = await diagnose(settings(servers, sandbox="off"), environ)
    assert (sandbox.name, sandbox.state) == ("sandbox", "ok")
    assert [(check.name, check.state) for check in found] == [
        ("mcp_servers.dead", "fail"),
        ("mcp_servers.good", "ok"),
        ("mcp_servers.none", "fail"),
        ("mcp_servers.wide", "warn"),
    ]
    dead, good, none, wide = (check.found for check in found)
    assert dead == "it ended. It said: bad key [masked]"
    assert good.startswith("1 tool, in ")
    assert none == "its program was not found."
    assert "64 tools" in wide
    assert "t67: a server may have 64 tools" in wide
    assert "and 3 more" in wide
    assert all(check.fix for check in found if check.state != "ok")
    assert await gone(starts(tmp_path)[0])


def test_the_exit_code_says_whether_something_fails(capsys):
    quiet = settings({}, sandbox="off")
    assert run_doctor(quiet, os.environ) == 0
    assert "commands are switched off" in capsys.readouterr().out
    bad = settings({"x": McpServer(command="no-such-program-anywhere")}, sandbox="off")
    assert run_doctor(bad, os.environ, json=True) == 1
    assert [entry["state"] for entry in json.loads(capsys.readouterr().out)] == ["ok", "fail"]


def test_what_a_server_says_writes_nothing_into_the_terminal():
    table = doctor_table([Check("mcp_servers.\x1b[2J", "fail", "said \x1b[31m[bold]x[/bold]", "")])
    cells = [str(cell) for column in table.columns for cell in column.cells]
    assert not any("\x1b" in cell for cell in cells)
    assert "[bold]x[/bold]" in cells[2]
