"""Reads a skill on demand; the prompt lists each in one line."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.agent.prompt.owner_files import FileUnusable
from bot.extensions.skills.folder import Skills
from bot.observe.audit import Note
from bot.ports.errors import ToolNotFound
from bot.ports.tool import Arguments, ToolContext
from threads.errors import StoreUnavailable
from threads.store.disk import Offload

log = logging.getLogger(__name__)

MAX_READ = 32_000
"""Characters of one result; it says where to continue."""


class LoadSkillArguments(Arguments):
    name: str = Field(max_length=100, description="The skill, as it is listed")
    file: str = Field(default="", max_length=500, description="Another file of the skill; blank is its text")
    offset: int = Field(default=0, ge=0, description="Character to start at")

    def subject(self) -> str:
        return f"{self.name}/{self.file}" if self.file else self.name


@dataclass(frozen=True)
class LoadSkill:
    """``note`` writes the name of each loaded file, and its SHA-256, to the audit."""

    skills: Skills
    offload: Offload
    note: Note
    name: ClassVar[str] = "load_skill"
    description: ClassVar[str] = (
        "Read one of the skills that your instructions list, before you do what it is about, or a file of it."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = LoadSkillArguments

    async def __call__(self, arguments: LoadSkillArguments, context: ToolContext) -> JsonValue:
        text, digest, files = await self.offload(self._read, arguments.name, arguments.file)
        details = {"skill": arguments.subject(), "sha256": digest}
        try:
            await self.note("skill", context.thread, context.message_id, context.asker.id, details)
        except StoreUnavailable as error:
            log.error("audit.lost: %s", error)  # noqa: TRY400 - the disk says why
        end = arguments.offset + MAX_READ
        result: dict[str, JsonValue] = {"text": text[arguments.offset : end]}
        if end < len(text):
            result["next_offset"] = end
        if files:
            result["files"] = list[JsonValue](files)
        return result

    def _read(self, name: str, file: str) -> tuple[str, str, list[str]]:
        """Return the text, its digest, and with a skill itself the names of its other files."""
        try:
            skill = self.skills.load(name)
        except FileUnusable as error:
            known = ", ".join(skill.name for skill in self.skills.found)
            raise ToolNotFound(
                f"Skill {name[:80]!r}: {error}.", suggestion=f"Use: {known}" if known else "There are none."
            ) from error
        if not file:
            return skill.text, skill.digest, self.skills.files(skill)
        try:
            text, digest = self.skills.read(skill, file)
        except FileUnusable as error:
            known = ", ".join(self.skills.files(skill))
            raise ToolNotFound(
                f"File {file[:80]!r} of skill {name}: {error}.",
                suggestion=f"It has: {known or 'no other files'}",
            ) from error
        return text, digest, []
