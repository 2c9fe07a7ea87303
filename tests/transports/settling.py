"""What became of messages, from disk."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.patience import until
from threads.background import background_tasks


def outcomes(data: Path) -> dict[str, str]:
    return {line["message_id"]: line["outcome"] for line in _journal(data, "settled")}


def _journal(data: Path, kind: str) -> list[dict[str, Any]]:
    journal = data / "journal.jsonl"
    # the last line may be under way
    whole = journal.read_bytes().rpartition(b"\n")[0] if journal.exists() else b""
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if line["kind"] == kind]


async def until_settled(data: Path, *ids: str, count: int = 0) -> dict[str, str]:
    """Return all outcomes once these messages, and so many in all, have one."""
    await until(lambda: set(ids) <= outcomes(data).keys() and len(outcomes(data)) >= count)
    return outcomes(data)


async def until_received(data: Path, *ids: str) -> None:
    await until(lambda: set(ids) <= {line["message_id"] for line in _journal(data, "received")})


@asynccontextmanager
async def beside(*work):
    """Run *work* beside the block, and end it there."""
    async with background_tasks() as tasks:
        for one in work:
            tasks.start_soon(one)
        yield tasks
