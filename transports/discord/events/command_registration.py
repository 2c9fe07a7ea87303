"""Telling Discord which slash commands there are: only when they changed, for it takes 200 new ones a day.

Which were told last is in one small file, as a digest.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Literal

import anyio
import discord
from discord import app_commands
from pydantic import BaseModel, ValidationError

from threads.store.disk import Disk, Offload, read_or_empty, replace_file
from transports.discord.events.interactions import FAILURES, digest

log = logging.getLogger(__name__)

TOO_MANY = 30034
"""Discord's code for more than 200 new commands in a day."""

ADVICE = {
    TOO_MANY: "Discord takes no more new commands today; it will be tried again when this starts anew",
    403: "invite the bot again with the scope applications.commands",
}


class _File(BaseModel):
    v: Literal[1] = 1
    published: str = ""


class CommandRegistration:
    """The commands of one application. Slash commands that could not be told cost nothing else: words work too."""

    def __init__(self, disk: Disk, path: Path, offload: Offload) -> None:
        self._disk, self._path, self._offload = disk, path, offload
        self._refused = ""
        self._syncing = anyio.Lock()

    async def sync(self, tree: app_commands.CommandTree[discord.Client]) -> None:
        """Tell Discord all the commands at once, if it does not know them; to be run beside everything else.

        Never raises. What it refused is not told again by this process.
        """
        async with self._syncing:
            wanted = digest_of(tree)
            if wanted in (self._refused, await self._offload(self._read)):
                return
            try:
                await tree.sync()
            except FAILURES as failure:
                refused = isinstance(failure, discord.HTTPException) and failure.status in (400, 403)
                self._refused = wanted if refused else ""
                log.warning(
                    "slash.not_set: the slash commands could not be set: %s%s", failure, _advice(failure)
                )
            else:
                await self._offload(self._write, wanted)

    def _read(self) -> str:
        try:
            data = read_or_empty(self._disk, self._path)
            return _File.model_validate_json(data).published if data else ""
        except (OSError, ValidationError) as error:
            log.info(
                "slash.state_unread: %s cannot be read, so the slash commands are set anew: %s",
                self._path.name,
                error,
            )
            return ""

    def _write(self, published: str) -> None:
        try:
            replace_file(self._disk, self._path, _File(published=published).model_dump_json().encode())
        except OSError as error:
            log.warning(
                "slash.state_not_kept: %s could not be written; the slash commands will be set again: %s",
                self._path.name,
                error,
            )


def digest_of(tree: app_commands.CommandTree[discord.Client]) -> str:
    """Return a name for all the commands of an application, the same as long as they are."""
    payload = [command.to_dict(tree) for command in tree.get_commands()]
    return digest(str(tree.client.application_id), json.dumps(payload, sort_keys=True))


def _advice(failure: BaseException) -> str:
    if not isinstance(failure, discord.HTTPException):
        return ""
    advice = ADVICE.get(failure.code) or ADVICE.get(failure.status)
    return f": {advice}" if advice else ""
