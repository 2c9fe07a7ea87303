"""What became of messages, from disk."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path

import anyio


def outcomes(data: Path) -> dict[str, str]:
    journal = data / "journal.jsonl"
    lines = [json.loads(line) for line in (journal.read_bytes().splitlines() if journal.exists() else ())]
    return {line["message_id"]: line["outcome"] for line in lines if line["kind"] == "settled"}


async def until_settled(data: Path, *ids: str) -> dict[str, str]:
    with anyio.fail_after(20):
        while not set(ids) <= set(outcomes(data)):
            await anyio.sleep(0.02)
    return outcomes(data)


async def until_kept(path: Path) -> None:
    with anyio.fail_after(20):
        while not path.exists():
            await anyio.sleep(0.02)


@asynccontextmanager
async def beside(*work):
    """Run *work* beside the block, and end it there."""
    async with anyio.create_task_group() as tasks:
        for one in work:
            tasks.start_soon(one)
        yield tasks
        tasks.cancel_scope.cancel()
