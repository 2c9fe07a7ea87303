"""Writes a text file of the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from bot.ports.tool import Arguments, ToolContext
from bot.tools.files.write import MAX_WRITTEN, Writer
from threads.store.checksummed_lines import scrub

from .paths import AnyPathArguments, normalize

ScrubbedText = Annotated[
    str, BeforeValidator(lambda value: scrub(value) if isinstance(value, str) else value)
]
"""A text in which half an emoji becomes a question mark."""


class WriteArguments(AnyPathArguments):
    path: str = Field(max_length=4096, description="File to write, relative to the workspace")
    content: ScrubbedText = Field(max_length=MAX_WRITTEN, description="The whole content of the file")


@dataclass(frozen=True)
class WriteFile:
    writer: Writer
    name: ClassVar[str] = "write_file"
    description: ClassVar[str] = (
        "Write a text file in this thread's workspace. An existing file is replaced; missing folders are created."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = WriteArguments

    async def __call__(self, arguments: WriteArguments, context: ToolContext) -> JsonValue:
        data = arguments.content.encode()
        async with self.writer.lock(context.workspace):
            created = await self.writer.offload(self.writer.write, context.workspace, arguments.path, data)
        return {"written": normalize(arguments.path), "size": len(data), "created": created}
