import os
from contextlib import asynccontextmanager

import anyio
import uvicorn
from rich.console import Console
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.config.extensions import settings_model
from bot.extensions.doctor.checks import run_checks
from bot.extensions.doctor.screen import plain_lines, render
from bot.extensions.mcp.checks import mcp_checks
from bot.extensions.mcp.settings import McpOAuth, McpServer
from bot.guards.redaction import Masker
from bot.host.checks import Context
from tests.bot.extensions.mcp.opened import plain, starts
from tests.bot.tools.processes import gone
from tests.fakes.mcp_oauth import serving
from tests.patience import until
from transports.shared.checks import Finding

Settings = settings_model()


async def test_each_server_is_tried_and_ended(tmp_path):
    bad = [{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": "none"}, 5]
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
    assert some.startswith("2 tools, in ")
    assert "left out: (a tool without a name): its name is empty" in some
    assert "offered with less: bad: its schema is not an object" in some
    assert "64 tools" in wide
    assert "t67: a server may have 64 tools" in wide
    assert "and 3 more" in wide
    assert all(check.fix and check.meaning for check in found if check.state != "ok")
    assert await gone(starts(tmp_path)[0])


async def test_of_a_server_with_a_sign_in_the_authorization_server_is_looked_for(free_tcp_port_factory):
    async def finding(url, **options):
        servers = {"shop": McpServer(url=url, oauth=McpOAuth())}
        look = Context(Settings(mcp_servers=servers), {}, **options)
        [found] = await run_checks(mcp_checks(look), look, lambda _: None)
        return found

    async with serving(free_tcp_port_factory()) as site:
        found = await finding(site.url)
        assert found.state == "ok"
        assert found.found == "127.0.0.1 lets people sign in; people sign in by `/mcp connect shop`"
        assert site.grants.clients == {}, "it registers nothing"
    dead = await finding(site.url)
    assert (dead.state, dead.found) == ("fail", "127.0.0.1: it cannot be reached")
    assert "firewall" in dead.fix
    assert (await finding(site.url, offline=True)).state == "ok"
    async with named(free_tcp_port_factory(), f"http://127.0.0.2:{free_tcp_port_factory()}") as url:
        elsewhere = await finding(url)
        assert (elsewhere.state, elsewhere.found) == ("fail", "127.0.0.2: it cannot be reached")


@asynccontextmanager
async def named(port, issuer):
    """Serve a server that only names its authorization server."""

    async def answer(request):
        url = f"http://127.0.0.1:{port}/mcp"
        if "well-known" in request.url.path:
            return JSONResponse({"resource": url, "authorization_servers": [issuer]})
        return Response(status_code=401)

    app = Starlette(routes=[Route("/{path:path}", answer)])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve)
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{port}/mcp"
        server.should_exit = server.force_exit = True


def test_what_a_server_says_writes_nothing_into_the_terminal():
    bad = Finding("mcp_servers.\x1b[2J", "fail", "said \x1b[31m[bold]x[/bold]\nok  forged", "", "")
    to = Console(width=80, markup=False)
    with to.capture() as printed:
        to.print(render(bad))
    for text in (printed.get().replace("\x1b[1;31mfail\x1b[0m", ""), "\n".join(plain_lines(bad))):
        assert "\x1b" not in text
        assert "[bold]x[/bold]" in text
    assert len(list(plain_lines(bad))) == 1
