"""Gets a file that somebody sent to this thread, by its name, and never one of another thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.agent.prompt.earlier_lines import author_label
from bot.agent.prompt.user_message import MOST_OF_A_FILE, describe
from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from threads.errors import PostFailed
from threads.model import File, SentFile
from threads.store.attachments import safe_name

ORIGIN = "file"

MOST_NAMES = 50
"""Names that are listed when none, or more than one, is the one that is asked for."""


class FetchArguments(Arguments):
    name: str = Field(max_length=1_000, description="Its name, as the thread shows it")

    def subject(self) -> str:
        return self.name


@dataclass(frozen=True)
class FetchFile:
    name: ClassVar[str] = "fetch_file"
    description: ClassVar[str] = (
        "Get a file that somebody sent to this thread and that you only have the name of."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = FetchArguments

    async def __call__(self, arguments: FetchArguments, context: ToolContext) -> ToolOutput:
        try:
            sent = await context.sent_files()
        except PostFailed as error:
            raise ToolError("The thread cannot be read now.", suggestion="Try again later.") from error
        named = [one for one in sent if _has_name(one, arguments.name)]
        if len(named) != 1:
            why = (
                "Several files have this name: choose one."
                if named
                else "No file of this thread has this name."
            )
            return ToolOutput({"found": why, **_list(named or sent)}, origin=ORIGIN)
        [file] = await context.fetch(named)
        return _content(file)


def _has_name(sent: SentFile, name: str) -> bool:
    asked = safe_name(name).casefold()
    return asked in (safe_name(sent.attachment.name).casefold(), PurePath(sent.path).name.casefold())


def _list(sent: Sequence[SentFile]) -> dict[str, JsonValue]:
    names: list[JsonValue] = [
        {"name": PurePath(one.path).name, "from": author_label(one.author)} for one in sent[:MOST_NAMES]
    ]
    more = len(sent) - len(names)
    return {"files": names, **({"not_shown": more} if more else {})}


def _content(file: File) -> ToolOutput:
    """Return what the model reads of a file: what it is, and as much of its text as a message would bring."""
    text = file.text[:MOST_OF_A_FILE]
    result: dict[str, JsonValue] = {"found": describe(file, len(text)), **({"text": text} if text else {})}
    return ToolOutput(result, origin=ORIGIN, images=(file.shown,) if file.shown else ())
