import base64
from types import SimpleNamespace

import anyio
import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from bot.extensions.mcp.tool import MAX_TEXT, convert_result, make_tool
from bot.extensions.mcp.tool_list import ListedTool
from bot.ports.errors import ToolError, ToolInvalidInput
from tests.tool_context import tool_context
from threads.model import Image

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def text(said):
    return TextContent(type="text", text=said)


def picture(data=PNG, kind="image/png"):
    return ImageContent(type="image", data=base64.b64encode(data).decode(), mimeType=kind)


def result(*content, data=None, failed=False):
    return CallToolResult(content=list(content), structured_content=data, is_error=failed)


def read(*content, **more):
    return convert_result(result(*content, **more), "MCP server s", {}, str)


def test_one_text_is_just_that():
    got = read(text("hello"))
    assert (got.result, got.errors, got.origin, got.images) == ("hello", (), "MCP server s", ())


def test_nothing_is_an_empty_list():
    assert read().result == []


@pytest.mark.parametrize(
    ("said", "data"),
    [('{"a": 1}', {"a": 1}), ("3", {"result": 3}), ("hi", {"result": "hi"}), ("[1, 2]", {"result": [1, 2]})],
)
def test_data_that_the_text_says_too_is_not_said_twice(said, data):
    assert read(text(said), data=data).result == said


def test_data_that_the_text_does_not_say_is_given_too():
    assert read(text("2 found"), data={"ids": [1, 2]}).result == ["2 found", {"ids": [1, 2]}]
    assert read(data={"ids": [1, 2]}).result == {"ids": [1, 2]}


def test_a_failure_is_the_servers_own_words_and_from_outside():
    with pytest.raises(ToolError, match="no such table") as failed:
        read(text("no such table"), picture(), failed=True)
    assert failed.value.origin == "MCP server s"
    with pytest.raises(ToolError, match="It did not say why"):
        read(failed=True)
    with pytest.raises(ToolError) as long:
        read(text("x" * 1_000_000), failed=True)
    assert len(str(long.value)) == 20_000


def test_a_result_is_capped_over_all_its_parts():
    got = read(*[text("x" * 300_000)] * 10)
    assert sum(map(len, got.result)) == MAX_TEXT
    assert "Only the first" in got.errors[0].message
    many = read(*[text("x")] * 1000)
    assert len(many.result) == 200
    data = read(data={"a": "x" * 2_000_000})
    assert isinstance(data.result, str)
    assert len(data.result) == MAX_TEXT


def test_what_cannot_be_read_is_named():
    blob = BlobResourceContents(uri="file:///a.zip", blob="AAAA", mime_type="application/zip")
    sound = AudioContent(type="audio", data="AAAA", mimeType="audio/wav")
    got = read(text("see"), picture(), sound, EmbeddedResource(type="resource", resource=blob))
    assert got.result == "see"
    assert [error.item for error in got.errors] == ["image", "audio", "file:///a.zip"]


def called(answer, files, room=9):
    """Return what the tool makes of an answer; it saves up to *room* files in *files*."""

    async def call(*_):
        return answer

    async def save(_workspace, name, data):
        if len(files) == room:
            raise ToolInvalidInput("no room")
        files[path := f"tool-output/{name}"] = data
        return path

    server = SimpleNamespace(name="s", origin="MCP server s", mask=str, call=call, of=lambda _: server)
    listed = ListedTool(name="t", description="", parameters={"type": "object"})
    tool = make_tool(server, "s__t", listed, save)
    return anyio.run(tool, tool.arguments.model_validate({}), tool_context(call_id="call/1"))


def test_a_picture_is_kept_in_the_workspace_and_shown():
    files = {}
    got = called(result(text("see"), picture()), files)
    assert got.images == (Image("tool-output/call-1-1.png", "image/png"),)
    assert got.result == ["see", {"image": "tool-output/call-1-1.png"}]
    assert files == {"tool-output/call-1-1.png": PNG}


def test_at_most_four_pictures_are_shown():
    got = called(result(*[picture()] * 6), {})
    assert len(got.images) == 4
    assert len(got.errors) == 2


@pytest.mark.parametrize(
    "odd",
    [
        picture(b"<svg onload=alert(1)>", "image/svg+xml"),
        picture(b"MZ\x90\x00", "image/png"),
        ImageContent(type="image", data="not base64!", mimeType="image/png"),
        picture(PNG + b"\0" * 4_000_000),
    ],
)
def test_what_only_says_that_it_is_a_picture_is_left_out(odd):
    files = {}
    got = called(result(odd), files)
    assert (got.images, files) == ((), {})
    assert len(got.errors) == 1


def test_a_picture_without_room_is_left_out():
    got = called(result(text("see"), picture()), {}, room=0)
    assert (got.result, got.images) == ("see", ())
    assert len(got.errors) == 1
