"""What servers do beside the protocol, over their own wires: lost sessions, halves of characters, odd results."""

import json

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, methods
from pydantic_core import from_json
from starlette.responses import JSONResponse, Response

from bot.extensions.mcp.compatibility import call_result
from bot.extensions.mcp.http import READ_S
from bot.extensions.mcp.json_text import repair
from bot.extensions.mcp.settings import McpServer
from bot.ports.errors import McpUnavailable, ToolError
from tests.bot.extensions.mcp.opened import call, opened, plain
from tests.bot.extensions.mcp.session_server import session_server
from tests.patience import WITHIN_S, until


def error(status, code, message, **more):
    """A refusal as a JSON-RPC error."""
    body = {"jsonrpc": "2.0", "error": {"code": code, "message": message}, **more}
    return lambda _: JSONResponse(body, status)


def words(status, text, kind="text/plain"):
    return lambda _: Response(text, status, media_type=kind)


LOST = {
    "nothing but 404": words(404, ""),
    "410": words(410, "gone"),
    "Python": error(404, -32600, "Session not found", id="server-error"),
    "TypeScript": error(404, -32001, "Session not found", id=None),
    "TypeScript's examples": error(400, -32000, "Bad Request: No valid session ID provided", id=None),
    "TypeScript, before initialize": error(400, -32000, "Bad Request: Server not initialized", id=None),
    "unknown header": error(404, -32000, "Not Found: Unknown Mcp-Session-Id header", id=None),
    "Go": words(404, "session not found\n"),
    "mcp-go": words(400, "Invalid session ID"),
    "Rust": words(401, "Unauthorized: Session not found"),
    "401 without words": words(401, ""),
    "403": error(403, -32600, "Forbidden", id=None),
    "Swift": words(404, "Unknown session. Send initialize first."),
    "a server error": error(500, -32603, "Session expired", id=None),
    "an answer with 200": lambda id_: error(200, -32001, "Session not found", id=id_)(id_),
    "another object with 200": words(200, '{"error": "Session not found"}', "application/json"),
    "an event with 200": words(
        200, 'event: message\ndata: {"error":"Session not found"}\n\n', "text/event-stream"
    ),
}


@pytest.mark.parametrize("how", LOST)
async def test_a_lost_session_is_opened_anew_and_the_call_is_made_again(tmp_path, free_tcp_port, how):
    async with session_server(free_tcp_port) as site:
        async with opened(tmp_path, {"web": McpServer(url=site.url)}) as servers:
            await call(servers, "web__hello")
            site.sessions.clear()
            site.refusal = LOST[how]
            with anyio.fail_after(WITHIN_S):
                async with anyio.create_task_group() as tasks:
                    for _ in range(5):
                        tasks.start_soon(call, servers, "web__hello")
            assert (servers.servers[0].state, servers.servers[0].reason) == ("connected", "")
        assert site.calls == ["s1", *["s2"] * 5], "nothing ran twice, and one new session was enough"


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (error(404, -32601, "Method not found", id=None), "Method not found"),
        (error(400, -32602, "Invalid params: session_id is required", id=None), "session_id is required"),
        (error(500, -32603, "The database session has ended", id=None), "The database session has ended"),
        (words(413, "too large"), "HTTP 413"),
        (words(502, "Bad Gateway"), "HTTP 502; the call may or may not have worked"),
    ],
)
async def test_other_refusals_are_told_as_they_are(tmp_path, free_tcp_port, refusal, told):
    async with session_server(free_tcp_port) as site:
        async with opened(tmp_path, {"web": McpServer(url=site.url)}) as servers:
            site.sessions.clear()
            site.refusal = refusal
            with pytest.raises(ToolError, match=f"The server refused the call: .*{told}"):
                await call(servers, "web__hello")
        assert site.opened == 1


async def test_a_call_that_is_refused_in_the_new_session_too_is_told(tmp_path, free_tcp_port):
    async with session_server(free_tcp_port) as site:
        async with opened(tmp_path, {"web": McpServer(url=site.url)}) as servers:
            site.knows_calls = False
            with pytest.raises(McpUnavailable, match="does not take the call: it has forgotten the session"):
                await call(servers, "web__hello")
        assert (site.opened, site.calls) == (2, [])


async def test_a_change_of_the_tools_is_heard_on_the_stream_of_a_session(
    tmp_path, free_tcp_port, monkeypatch
):
    patience, send = {}, httpx2.AsyncClient.send

    async def sent(self, request, **options):
        patience[request.method] = request.extensions["timeout"]["read"]
        return await send(self, request, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "send", sent)
    async with (
        session_server(free_tcp_port) as site,
        opened(tmp_path, {"web": McpServer(url=site.url)}) as servers,
    ):
        heard = anyio.Event()
        servers.on_tools = lambda _name, _tools: heard.set()
        site.tools.append("more")
        site.changed.set()
        with anyio.fail_after(WITHIN_S):
            await heard.wait()
        assert [tool.name for tool in servers.tools] == ["web__hello", "web__more"]
    assert (patience["GET"], patience["POST"]) == (None, READ_S), "the stream may be silent for hours"


async def test_a_server_that_is_gone_when_a_call_is_made_has_not_run_it(tmp_path, free_tcp_port):
    configured = {"web": McpServer(url=f"http://127.0.0.1:{free_tcp_port}/mcp")}
    async with opened(tmp_path, configured) as servers:
        with anyio.fail_after(WITHIN_S):
            async with session_server(free_tcp_port):
                await until(lambda: servers.tools)
            with pytest.raises(McpUnavailable, match="cannot be used: it cannot be reached"):
                await call(servers, "web__hello")


HALVES = {
    rb'"half \ud83d"': "half \ufffd",
    rb'"half \uDE00 there"': "half \ufffd there",
    rb'"whole \ud83d\ude00"': "whole \U0001f600",
    rb'"two \ud83d\ud83d\ude00"': "two \ufffd\U0001f600",
    rb'"a path C:\\ud83d"': r"a path C:\ud83d",
    b'"cut \xf0\x9f\x98"': "cut \ufffd",
    b'"bell \x07, tab \t"': "bell \ufffd, tab  ",
}


@pytest.mark.parametrize("wire", ["program", "application/json", "text/event-stream"])
async def test_halves_of_characters_cost_one_character_each(tmp_path, free_tcp_port, wire):
    results = {b'{"content": [{"type": "text", "text": %s}]}' % sent: read for sent, read in HALVES.items()}
    async with session_server(free_tcp_port) as site:
        site.content_type = wire
        server = plain(tmp_path, tools=("raw",)) if wire == "program" else McpServer(url=site.url)
        async with opened(tmp_path, {"s": server}) as servers:
            for sent, read in results.items():
                site.result = sent
                name = "s__raw" if wire == "program" else "s__hello"
                assert (await call(servers, name, result=sent.hex())).result == read


async def test_half_of_a_character_in_the_arguments_costs_no_connection(tmp_path, free_tcp_port):
    async with session_server(free_tcp_port) as site:
        configured = {"web": McpServer(url=site.url), "p": plain(tmp_path)}
        async with opened(tmp_path, configured) as servers:
            assert json.loads((await call(servers, "p__hello", text="half \ud83d")).result) == {
                "text": "half ?"
            }
            await call(servers, "web__hello", text="half \ud83d")
            assert site.opened == 1


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: json.dumps(text).encode()))
def test_a_good_text_stays_as_it_is_and_any_other_can_be_repaired_once(text):
    repaired = repair(text)
    assert repair(repaired) == repaired
    try:
        value = from_json(text)
    except ValueError:
        return
    assert from_json(repaired) == value


ODD_RESULTS = {
    b"{}": [],
    b'{"content": null}': [],
    b'{"structuredContent": {"ids": [1]}}': {"ids": [1]},
    b'{"content": [], "structuredContent": [1, 2]}': {"result": [1, 2]},
    b'{"temperature": 20}': '{"temperature": 20}',
    b'{"content": "plain"}': "plain",
    b'{"content": {"type": "text", "text": "one"}}': "one",
    b'{"content": ["a", {"type": "text", "text": 5}]}': ["a", '{"type": "text", "text": 5}'],
    b'{"content": [{"type": "json", "json": {"a": 1}}], "isError": null}': '{"type": "json", "json": {"a": 1}}',
    b'{"content": [{"type": "text", "text": "t", "annotations": 5}], "_meta": null}': "t",
}


async def test_odd_results_are_read_as_far_as_they_go(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path, tools=("raw",))}) as servers:
        for sent, read in ODD_RESULTS.items():
            assert (await call(servers, "p__raw", result=sent.hex())).result == read
        with pytest.raises(ToolError, match="no such row"):
            await call(servers, "p__raw", result=b'{"isError": true, "content": "no such row"}'.hex())


@given(
    st.dictionaries(
        st.sampled_from(["content", "isError", "structuredContent", "_meta", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["type", "text", "data", "uri"]), inner, max_size=3)
            ),
            max_leaves=6,
        ),
    ),
    st.sampled_from(["2024-11-05", "2025-11-25", "2026-07-28"]),
)
def test_whatever_a_call_returns_is_a_result_of_the_protocol(sent, version):
    result = call_result(sent, version)
    methods.validate_server_result("tools/call", version, result)
    CallToolResult.model_validate(result)
