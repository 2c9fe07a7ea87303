"""The system prompt from the admin's files: IDENTITY.md and the list of skills, read when a turn begins.

It stays the same bytes until a file changes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from bot.agent.prompt.cached_file import CachedFile
from bot.agent.prompt.skills import Skills, listing
from bot.agent.prompt.system_prompt import system_prompt
from threads.store.disk import Disk, Offload

log = logging.getLogger(__name__)

LARGEST = 64_000
"""Bytes of IDENTITY.md."""


class Instructions:
    def __init__(self, disk: Disk, data: Path, name: str, skills: Skills | None, offload: Offload) -> None:
        self._identity = CachedFile(disk, data / "IDENTITY.md", LARGEST)
        self._name, self._skills, self._offload = name, skills, offload
        self._prompt = ""

    async def prompt(self) -> str:
        """Return the current system prompt."""
        return await self._offload(self._read)

    @property
    def problem(self) -> str:
        """What is wrong with IDENTITY.md, for the operator; `Skills.problems` has the rest."""
        return f"IDENTITY.md: {self._identity.problem}" if self._identity.problem else ""

    def _read(self) -> str:
        identity = self._identity.read() or ""
        skills = listing(self._skills.scan()) if self._skills else ""
        prompt = system_prompt(self._name, identity, skills)
        if prompt != self._prompt:
            if self._prompt:
                log.info("prompt.changed: IDENTITY.md or the skills changed, and count from now on")
            self._prompt = prompt
        return prompt
