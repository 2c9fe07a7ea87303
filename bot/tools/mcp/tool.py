"""One tool of a server, as the gate sees it; the `__` in its name makes the gate ask until a rule allows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from bot.tools.mcp.result import MAX_PARTS, convert_result, decode_image
from bot.tools.mcp.schema import arguments_model
from bot.tools.mcp.server import Server
from bot.tools.mcp.tool_list import ListedTool
from threads.model import Image

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_PICTURES = 4
"""Pictures of one result that are images to the model."""

Save = Callable[[Path, str, bytes], Awaitable[str]]
"""Saves a file of that name in a workspace and returns its path there. Raises `ToolError`."""


@dataclass(frozen=True)
class McpTool:
    """``name`` is ours, ``tool`` the server's own."""

    server: Server
    tool: str
    name: str
    description: str
    arguments: type[Arguments]
    save: Save
    risk: ClassVar[Literal["net"]] = "net"

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        result = await self.server.call(self.tool, arguments.model_dump(mode="json"), context.deadline)
        return convert_result(
            result, self.server.origin, await self._save_images(result, context), self.server.mask
        )

    async def _save_images(self, result: CallToolResult, context: ToolContext) -> dict[int, Image]:
        """Save the pictures of a result in the workspace; return them by their place in the result."""
        images: dict[int, Image] = {}
        for index, block in enumerate(result.content[:MAX_PARTS]):
            picture = decode_image(block) if len(images) < MAX_PICTURES else None
            if picture is None:
                continue
            data, media_type = picture
            name = f"{context.stem}-{index}.{media_type.rpartition('/')[2]}"
            with suppress(ToolError):  # without room for it, the result says that it is left out
                images[index] = Image(await self.save(context.workspace, name, data), media_type)
        return images


def make_tool(server: Server, name: str, listed_tool: ListedTool, save: Save) -> McpTool:
    description = f"A tool of the {server.origin}, which says of it: {listed_tool.description or 'nothing'}"
    return McpTool(
        server, listed_tool.name, name, description, arguments_model(name, listed_tool.parameters), save
    )
