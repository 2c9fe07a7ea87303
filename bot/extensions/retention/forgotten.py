"""forgotten.json: which people and threads were forgotten, and when. It holds ids and numbers, and no content.

After a restore of an older backup they are there again, so each that was forgotten after that backup is forgotten
once more. The list itself is put aside by the restore: the newest one that was put aside counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, Field

from bot.store.restored_answers import Restored
from threads.store.disk import Disk, read_or_empty, replace_file
from threads.store.json_file import JsonState, read_state

NAME = "forgotten.json"


class Receipt(BaseModel):
    """What one forgetting took: how many of what. ``at`` is UTC."""

    at: AwareDatetime
    took: dict[str, int] = Field(default_factory=dict)


class ForgottenFile(JsonState):
    receipts: dict[str, Receipt] = Field(default_factory=dict)


def read_list(disk: Disk, folder: Path) -> ForgottenFile:
    """Return the list in a folder; one that is missing or damaged is empty. Blocking. Raises OSError."""
    data = read_or_empty(disk, folder / NAME)
    return (read_state(data, ForgottenFile(), NAME) if data else None) or ForgottenFile()


def note(disk: Disk, data: Path, receipts: Mapping[str, Receipt]) -> None:
    """Add to the list of a data folder. Blocking. Raises OSError."""
    whole = ForgottenFile(receipts={**read_list(disk, data).receipts, **receipts})
    replace_file(disk, data / NAME, whole.model_dump_json().encode())


def came_back(disk: Disk, data: Path, restored: Restored | None) -> list[str]:
    """Return who was forgotten after the backup that a folder came from, and not again since the restore.

    Their receipts are in the folder's list from now on. Blocking. Raises OSError.
    """
    if restored is None:
        return []
    known = dict(read_list(disk, data).receipts)
    aside = sorted(data.glob("before-restore-*"))
    for folder in aside:
        for name, receipt in read_list(disk, folder).receipts.items():
            if name not in known or receipt.at > known[name].at:
                known[name] = receipt
    if known:
        note(disk, data, known)
    return [name for name, receipt in known.items() if _is_back(receipt.at, restored)]


def _is_back(at: datetime, restored: Restored) -> bool:
    return restored.backup_at <= at < restored.restored_at
