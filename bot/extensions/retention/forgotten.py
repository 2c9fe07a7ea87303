"""forgotten.json: which people and threads were forgotten, and when. It holds ids and numbers, and no content.

After a restore of an older backup they are there again, so each that was forgotten after that backup is forgotten
once more. The list itself is put aside by the restore: the newest one that was put aside counts. A store of many
workers has the list, and each worker a copy of it in its data folder: what only the copy has was forgotten later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, Field

from bot.extensions.retention.whom import Whom
from bot.store.restored_answers import Restored
from threads.model import Spoken, ThreadId
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFiles, JsonState, State

NAME = "forgotten"
FILES = "files"
"""The kind of a store that is the data folder."""


class Receipt(BaseModel):
    """What one forgetting took: how many of what. ``at`` is UTC.

    ``said_at`` is when somebody said `/forget`, by the clock of the platform.
    """

    at: AwareDatetime
    said_at: AwareDatetime | None = None
    took: dict[str, int] = Field(default_factory=dict)


class ForgottenFile(JsonState):
    receipts: dict[str, Receipt] = Field(default_factory=dict)


def is_forgotten(receipts: Mapping[str, Receipt], thread: ThreadId, line: Spoken) -> bool:
    """Return whether a line of a thread, which the platform still has, is older than a forgetting that took it.

    What the bot said itself may answer anybody, so it goes with each person.
    """
    takes = (Whom(thread=str(thread)).name, Whom(person=line.author.id).name)
    said = datetime.fromisoformat(line.sent_at) if line.sent_at else datetime.min.replace(tzinfo=UTC)
    return any(
        said <= (receipt.said_at or receipt.at)
        for name, receipt in receipts.items()
        if name in takes or (line.ours and Whom.named(name).person)
    )


async def open_list(disk: Disk, folder: Path, offload: Offload) -> State[ForgottenFile]:
    """Return the list in a folder, empty at first. Raises OSError and `threads.errors.NewerSchema`."""
    return await JsonFiles(disk, folder, offload).open(NAME, ForgottenFile())


async def note(state: State[ForgottenFile], receipts: Mapping[str, Receipt]) -> None:
    """Add to a list. Raises `threads.errors.StoreUnavailable`."""
    await state.change(lambda file: ForgottenFile(receipts={**file.receipts, **receipts}))


async def came_back(disk: Disk, data: Path, offload: Offload, restored: Restored | None) -> list[str]:
    """Return who was forgotten after the backup that a folder came from, and not again since the restore.

    Their receipts are in the folder's list from now on. Raises as `open_list` and `note`.
    """
    if restored is None:
        return []
    state = await open_list(disk, data, offload)
    known = dict(state.value.receipts)
    for aside in await offload(lambda: sorted(data.glob("before-restore-*"))):
        for name, receipt in (await open_list(disk, aside, offload)).value.receipts.items():
            if name not in known or receipt.at > known[name].at:
                known[name] = receipt
    if known != state.value.receipts:
        await note(state, known)
    return [name for name, one in known.items() if restored.backup_at <= one.at < restored.restored_at]


async def missing_from(listed: State[ForgottenFile], copy: State[ForgottenFile]) -> dict[str, Receipt]:
    """Return what only the copy of the list has, or has from later; the copy has all of the list from now on.

    Raises as `note`.
    """
    later = {
        name: one
        for name, one in copy.value.receipts.items()
        if name not in listed.value.receipts or listed.value.receipts[name].at < one.at
    }
    if {**listed.value.receipts, **later} != copy.value.receipts:
        await note(copy, {**listed.value.receipts, **later})
    return later
