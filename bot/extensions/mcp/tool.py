"""One tool of a server, as the gate sees it; the `__` in its name makes the gate ask until a rule allows it.

What it returns is capped, is never cut inside a secret, and is marked as from outside.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from pydantic import JsonValue
from pydantic_core import from_json

from bot import wording
from bot.extensions.mcp.credentials import person_of
from bot.extensions.mcp.plain_text import truncate
from bot.extensions.mcp.schema import arguments_model
from bot.extensions.mcp.server import Server
from bot.extensions.mcp.tool_list import ListedTool
from bot.guards.redaction import safe_prefix
from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, ItemError, ToolContext, ToolOutput
from bot.tools.quote import quote
from threads.model import Image
from threads.store.image_header import HEAD, MAX_BYTES, read_header

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MAX_TEXT = 200_000
"""Characters of one result that are kept; a search for secrets in a million takes the event loop half a second."""
MAX_ERROR = 20_000
"""Characters of a failure that are kept."""
MAX_PARTS = 200
"""Parts of one result that are kept."""
MAX_PICTURES = 4
"""Pictures of one result that the model gets as images."""

Save = Callable[[Path, str, bytes], Awaitable[str]]
"""Saves a file of that name in a workspace and returns its path there. Raises `ToolError`."""


class Connections(Protocol):
    """The connections to the server ``name``: one for all, or one for each person."""

    @property
    def name(self) -> str: ...

    def of(self, person: str) -> Server:
        """Return the connection that serves a person. Raises `ToolBusy`."""

    def connections(self) -> Sequence[Server]: ...


@dataclass(frozen=True, slots=True)
class News:
    """``of`` returns whether a tool is another one than a person has accepted; ``accept`` accepts it."""

    of: Callable[[], Literal["", "new", "changed"]]
    accept: Callable[[], Awaitable[None]]


async def _accept_nothing() -> None:
    pass


NO_NEWS = News(lambda: "", _accept_nothing)


@dataclass(frozen=True)
class McpTool:
    """``name`` is our name for it, ``tool`` the server's own."""

    server: Connections
    tool: str
    name: str
    description: str
    arguments: type[Arguments]
    save: Save
    unseen: News = NO_NEWS
    risk: ClassVar[Literal["net"]] = "net"

    @property
    def news(self) -> str:
        """Return what a person should know before the next call, or ""."""
        kind = self.unseen.of()
        return wording.tool_news(self.server.name, kind, quote(self.description)) if kind else ""

    async def accept(self) -> None:
        """Take note that a person has let the tool be used as it is now."""
        await self.unseen.accept()

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        server = self.server.of(person_of(context.thread, context.asker))
        result = await server.call(self.tool, arguments.model_dump(mode="json"), context.deadline)
        return convert_result(result, server.origin, await self._save_images(result, context), server.mask)

    async def _save_images(self, result: CallToolResult, context: ToolContext) -> dict[int, Image]:
        """Save the pictures of a result in the workspace; return them by their place in the result."""
        images: dict[int, Image] = {}
        for index, block in enumerate(result.content[:MAX_PARTS]):
            picture = _decode_image(block) if len(images) < MAX_PICTURES else None
            if picture is None:
                continue
            data, media_type = picture
            name = f"{context.stem}-{index}.{media_type.rpartition('/')[2]}"
            with suppress(ToolError):  # without room for it, the result says that it is left out
                images[index] = Image(await self.save(context.workspace, name, data), media_type)
        return images


def make_tool(
    server: Connections, name: str, listed_tool: ListedTool, save: Save, news: News = NO_NEWS
) -> McpTool:
    says = listed_tool.description or "nothing"
    description = f"A tool of the MCP server {server.name}, which says of it: {says}"
    arguments = arguments_model(name, listed_tool.parameters)
    return McpTool(server, listed_tool.name, name, description, arguments, save, news)


@dataclass(slots=True)
class _TextBudget:
    """The characters that may still be kept; no text is cut inside a secret that ``mask`` knows."""

    left: int
    mask: Callable[[str], str]
    exceeded: bool = False

    def take(self, text: str) -> str:
        taken = safe_prefix(text, self.left, self.mask)
        self.exceeded = self.exceeded or len(taken) < len(text)
        self.left -= len(taken)
        return taken


def convert_result(
    result: CallToolResult, origin: str, images: Mapping[int, Image], mask: Callable[[str], str]
) -> ToolOutput:
    """Return what the model reads; *images* are the saved pictures, by their place in the result.

    Raises `ToolError` with the server's own words for a result that reports a failure.
    """
    budget = _TextBudget(MAX_ERROR if result.is_error else MAX_TEXT, mask)
    if result.is_error:
        texts = [budget.take(block.text) for block in result.content[:MAX_PARTS] if block.type == "text"]
        message = "\n".join(filter(None, texts)) or "It did not say why."
        raise ToolError(message, suggestion="Fix the arguments, or go on without it.", origin=origin)
    parts: list[JsonValue | ItemError] = [
        {"image": images[index].file} if index in images else _part(block, budget)
        for index, block in enumerate(result.content[:MAX_PARTS])
    ]
    errors = [part for part in parts if isinstance(part, ItemError)]
    values: list[JsonValue] = [part for part in parts if not isinstance(part, ItemError)]
    structured: JsonValue = result.structured_content
    if structured is not None and not (budget.exceeded or any(_repeats(v, structured) for v in values)):
        text = json.dumps(structured, ensure_ascii=False)
        values.append(structured if len(text) <= budget.left else budget.take(text))
    if budget.exceeded or len(result.content) > MAX_PARTS:
        limits = f"Only the first {MAX_TEXT:,} characters and {MAX_PARTS} parts were kept."
        errors.append(ItemError("result", "unknown", limits))
    return ToolOutput(
        values[0] if len(values) == 1 else values, tuple(errors), origin, tuple(images.values())
    )


def _decode_image(block: ContentBlock) -> tuple[bytes, str] | None:
    """Return a block's picture and its media type if models can take it; its bytes decide, not its claim."""
    if block.type != "image" or len(block.data) > 4 * MAX_BYTES // 3:
        return None
    try:
        data = base64.b64decode(block.data, validate=True)
    except ValueError:
        return None
    header = read_header(data[:HEAD])
    return (data, header.media_type) if header and header.fits else None


def _part(block: ContentBlock, budget: _TextBudget) -> JsonValue | ItemError:
    match block.type:
        case "text":
            return budget.take(block.text)
        case "resource_link":
            return {
                "resource": truncate(str(block.uri), 2000, budget.mask),
                "name": truncate(block.name, 200, budget.mask),
            }
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            address = truncate(str(resource.uri), 2000, budget.mask)
            if isinstance(text, str):
                return {"resource": address, "text": budget.take(text)}
            return _unreadable(address, resource.mime_type, budget)
        case "image" | "audio":
            return _unreadable(block.type, block.mime_type, budget)


def _unreadable(item: str, media_type: str | None, budget: _TextBudget) -> ItemError:
    kind = truncate(media_type or "binary data", 80, budget.mask)
    return ItemError(item, "unknown", f"It holds {kind}, which cannot be read here.")


def _repeats(value: JsonValue, structured: JsonValue) -> bool:
    """Return whether a text repeats the structured data: the protocol asks servers to send both."""
    if not isinstance(value, str):
        return False
    bare = structured.get("result") if isinstance(structured, dict) and len(structured) == 1 else None
    if value == bare:
        return True
    try:
        parsed = from_json(value)
    except ValueError:
        return False
    return bool(parsed == structured or (bare is not None and parsed == bare))
