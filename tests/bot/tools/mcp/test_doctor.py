import os

from rich.console import Console

from bot.admin.doctor.checks import Context, run_checks
from bot.admin.doctor.screen import plain_lines, render
from bot.admin.doctor.tools import mcp_checks
from bot.config.settings import McpServer, Settings
from bot.guards.redaction import Masker
from tests.bot.tools.mcp.opened import plain, starts
from tests.bot.tools.processes import gone
from transports.shared.checks import Finding


async def test_each_server_is_tried_and_ended(tmp_path):
    bad = [{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": "none"}]
    many = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(70)]
    script = 'echo "bad key $KEY" >&2'
    servers = {
        "good": plain(tmp_path),
        "some": plain(tmp_path, "some", tools=bad),
        "wide": plain(tmp_path, "wide", tools=many),
        "dead": McpServer(command="sh", args=("-c", script), env={"KEY": "env:KEY"}),
        "none": McpServer(command="no-such-program-anywhere"),
    }
    environ = {"PATH": os.environ["PATH"], "KEY": "correct-horse-battery"}
    look = Context(Settings(mcp_servers=servers), environ, mask=Masker(["correct-horse-battery"]))
    found = await run_checks(mcp_checks(look), look, lambda _: None)
    assert [(check.name, check.state) for check in found] == [
        ("mcp_servers.dead", "fail"),
        ("mcp_servers.good", "ok"),
        ("mcp_servers.none", "fail"),
        ("mcp_servers.some", "warn"),
        ("mcp_servers.wide", "warn"),
    ]
    dead, good, none, some, wide = (check.found for check in found)
    assert dead == "it ended. It said: bad key [masked]"
    assert good.startswith("1 tool, in ")
    assert none == "its program was not found."
    assert some.startswith("1 tool, in ")
    assert "left out: bad: it is not valid MCP (inputSchema" in some
    assert "64 tools" in wide
    assert "t67: a server may have 64 tools" in wide
    assert "and 3 more" in wide
    assert all(check.fix and check.meaning for check in found if check.state != "ok")
    assert await gone(starts(tmp_path)[0])


def test_what_a_server_says_writes_nothing_into_the_terminal():
    bad = Finding("mcp_servers.\x1b[2J", "fail", "said \x1b[31m[bold]x[/bold]\nok  forged", "", "")
    to = Console(width=80, markup=False)
    with to.capture() as printed:
        to.print(render(bad, to.width))
    for text in (printed.get().replace("\x1b[1;31mfail\x1b[0m", ""), "\n".join(plain_lines(bad))):
        assert "\x1b" not in text
        assert "[bold]x[/bold]" in text
    assert len(list(plain_lines(bad))) == 1
