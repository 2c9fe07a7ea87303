"""What servers send and the SDK refuses as a whole, put into the form that it takes. A bad part costs that part only.

| sent                                                   | becomes                                            |
|--------------------------------------------------------|----------------------------------------------------|
| a tool with more than a name, a description, a schema  | only these: nothing else of it is used             |
| a tool whose schema is not one of an object            | the same with that schema inside of another        |
| a tool without a name                                  | left out, and that is said                         |
| a list that is null                                    | an empty list                                      |
| a result of a call without ``content``, or with null   | one with the JSON of what it has, if it has any    |
| ``content`` that is not a list                         | a list with that part                              |
| a part that is a text, or breaks the protocol          | a text: itself, or its JSON                        |
| structured content that is not an object               | the same under ``result``, as SDKs send it         |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import methods
from pydantic import JsonValue, ValidationError

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream  # private, but only a type

_OTHER_RESULTS = frozenset(
    {"protocolVersion", "supportedVersions", "tools", "prompts", "messages", "contents"}
)
"""A key of each result that we ask for, except that of a call."""
_CALL_KEYS = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
_AS_SENT = "x-as-sent"
"""Where a schema is that the protocol does not take."""


class CompatibleStream(ObjectReceiveStream[SessionMessage | Exception]):
    """Receives what a server sends, in the form that the SDK takes. ``version`` is the protocol's, once agreed on.

    ``nameless`` counts the tools that were left out of the lists.
    """

    def __init__(self, read: ReadStream[SessionMessage | Exception]) -> None:
        self._read = read
        self.version = ""
        self.nameless = 0

    async def receive(self) -> SessionMessage | Exception:
        item = await self._read.receive()
        match item:
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": [*tools]} as result)):
                named = [tool for tool in tools if isinstance(tool, dict) and _is_name(tool.get("name"))]
                self.nameless += len(tools) - len(named)
                result["tools"] = [self._tool(tool, result) for tool in named]
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": None} as result)):
                result["tools"] = []
            case SessionMessage(message=types.JSONRPCResponse(result=result) as response):
                if self.version and not _OTHER_RESULTS & result.keys():
                    response.result = call_result(result, self.version)
        return item

    async def aclose(self) -> None:
        await self._read.aclose()

    def _tool(self, sent: dict[str, JsonValue], result: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the parts of a tool that are used; *result* is the list that it came in."""
        about, schema = sent.get("description"), sent.get("inputSchema")
        description = about if isinstance(about, str) else ""
        tool = {"name": sent["name"], "description": description, "inputSchema": schema}
        try:
            methods.validate_server_result("tools/list", self.version, {**result, "tools": [tool]})
            types.Tool.model_validate(tool, by_name=False)
        except (ValidationError, KeyError, ValueError):
            tool["inputSchema"] = {"type": "object", _AS_SENT: schema}
        return tool


def _is_name(name: JsonValue) -> bool:
    return isinstance(name, str) and name != ""


def sent_schema(parameters: dict[str, JsonValue]) -> JsonValue:
    """Return the schema of a tool as its server sent it."""
    return parameters.get(_AS_SENT, parameters)


def call_result(sent: dict[str, JsonValue], version: str) -> dict[str, JsonValue]:
    """Return the result of a call as the protocol of this version has it."""
    if _is_valid(sent, version):
        return sent
    content, data = sent.get("content"), sent.get("structuredContent")
    if content is None:
        other = {key: value for key, value in sent.items() if key not in _CALL_KEYS}
        content = [json.dumps(other, ensure_ascii=False)] if other and data is None else []
    parts = content if isinstance(content, list) else [content]
    result: dict[str, JsonValue] = {
        "content": [_part(part, version) for part in parts],
        "isError": sent.get("isError") not in (None, False, 0, "", "false"),
        "resultType": "complete",
    }
    if data is not None:
        result["structuredContent"] = data if isinstance(data, dict) else {"result": data}
    return result


def _part(part: JsonValue, version: str) -> JsonValue:
    if isinstance(part, dict) and _is_valid({"content": [part], "resultType": "complete"}, version):
        return part
    text = part.get("text") if isinstance(part, dict) else part
    return {"type": "text", "text": text if isinstance(text, str) else json.dumps(part, ensure_ascii=False)}


def _is_valid(result: dict[str, JsonValue], version: str) -> bool:
    try:
        methods.validate_server_result("tools/call", version, result)
        types.CallToolResult.model_validate(result, by_name=False)
    except (ValidationError, KeyError, ValueError):
        # An answer may also be a question of the server, which has no content.
        return result.get("resultType") == "input_required"
    return True
