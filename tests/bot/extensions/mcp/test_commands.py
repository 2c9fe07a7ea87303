"""`/mcp` where servers are late, and what it says of their tools."""

from types import SimpleNamespace

import anyio
import pytest

from bot.extensions.mcp.commands import McpCommands
from bot.extensions.mcp.references import References
from bot.ports.documents import PlainDocuments
from tests.bot.extensions.mcp.opened import offload_to_thread, opened, plain, starts
from tests.patience import WITHIN_S, until
from threads.errors import TransportRejected
from threads.model import Author, Incoming, ThreadId

THERE, ELSEWHERE = ThreadId("slack", "T", "C", "1"), ThreadId("slack", "T", "C", "2")


def said(text, thread=THERE, key="m1"):
    return Incoming(key, thread, Author("U1"), text)


@pytest.mark.parametrize("asked", ["/mcp", "/mcp late:triage", "look at @late:file:///a"])
async def test_a_server_that_comes_late_is_told_where_somebody_asked_for_it(tmp_path, asked):
    posted, told = [], anyio.Event()

    async def post(outgoing):
        posted.append((outgoing.thread, outgoing.key, outgoing.text, outgoing.kind))
        told.set()
        if outgoing.thread == ELSEWHERE:
            raise TransportRejected("the channel is gone")

    tools = ["one", {"name": "odd", "inputSchema": "text"}, 5]
    configured = {"late": plain(tmp_path, "late", tools=tools), "p": plain(tmp_path)}
    async with opened(tmp_path, configured) as servers:
        references = References(servers, PlainDocuments(offload_to_thread), None, None)
        commands = McpCommands(configured, servers, references, post)
        servers.on_arrival = commands.tell_arrival
        for incoming in (said(asked, ELSEWHERE, "m0"), said(asked)):
            if asked == "/mcp":
                reply = await commands.command("", incoming)
                assert "p: 1 tool" in reply.splitlines()
            else:
                reply = await commands.prepare(SimpleNamespace(incoming=incoming, messages=[]))
            assert reply.count("late is not there yet (it ended). I say so here when it is.") == 1
        (tmp_path / "tools-late.json.there").touch()
        with anyio.fail_after(WITHIN_S):
            await told.wait()
            await until(lambda: len(posted) >= 2)
        text = "The MCP server late is there now, with 2 tools (1 offered with less, 1 left out)."
        assert posted == [(ELSEWHERE, "mcp:late:m0", text, "notice"), (THERE, "mcp:late:m1", text, "notice")]
        assert "late: 2 tools (1 offered with less, 1 left out)" in await commands.command("", said("/mcp"))
    assert len(starts(tmp_path, "late")) > 1
