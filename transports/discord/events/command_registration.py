"""Registers the slash commands with Discord when they change: Discord takes 200 new ones a day.

A small file holds the digest of the commands that were registered last.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import anyio
import discord
from discord import app_commands

from threads.errors import NewerSchema, StoreUnavailable
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonState
from transports.base.text import digest
from transports.discord.events.interactions import FAILURES

log = logging.getLogger(__name__)

TOO_MANY = 30034
"""Discord's code for more than 200 new commands in a day."""

ADVICE = {
    TOO_MANY: "Discord takes no more new commands today; they are registered at the next start",
    403: "invite the bot again with the scope applications.commands",
}


class _File(JsonState):
    published: str = ""


class CommandRegistration:
    """The commands of one application. If they cannot be registered, typed commands still work."""

    def __init__(self, disk: Disk, path: Path, offload: Offload) -> None:
        self._path, self._offload = path, offload
        self._file = JsonFile(disk, path, offload, _File())
        self._refused, self._syncing = "", anyio.Lock()

    async def sync(self, tree: app_commands.CommandTree[discord.Client]) -> None:
        """Register all the commands at once, if Discord does not know them; in the background. Never raises.

        Commands that Discord refused are not registered again by this process.
        """
        async with self._syncing:
            wanted = digest_of(tree)
            await self._read()
            if wanted in (self._refused, self._file.value.published):
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
                try:
                    await self._file.change(lambda _: _File(published=wanted))
                except StoreUnavailable as error:
                    log.warning("slash.state_not_kept: the slash commands will be set again: %s", error)

    async def _read(self) -> None:
        try:
            await self._offload(self._file.open)
        except (OSError, NewerSchema) as error:
            log.info(
                "slash.state_unread: %s cannot be read, so the slash commands are set again: %s",
                self._path.name,
                error,
            )


def digest_of(tree: app_commands.CommandTree[discord.Client]) -> str:
    """Return a digest of the commands of an application, which changes when they do."""
    payload = [command.to_dict(tree) for command in tree.get_commands()]
    return digest(str(tree.client.application_id), json.dumps(payload, sort_keys=True))


def _advice(failure: BaseException) -> str:
    if not isinstance(failure, discord.HTTPException):
        return ""
    advice = ADVICE.get(failure.code) or ADVICE.get(failure.status)
    return f": {advice}" if advice else ""
