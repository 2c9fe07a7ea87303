"""What one worker was asked to remember, all of them know."""

from __future__ import annotations

import anyio
import pytest

from bot.agent.prompt.memory import Memory
from bot.agent.prompt.memory_files import MemoryFiles
from bot.extensions.postgres.memory import PostgresMemory
from tests.world import T1, Clock, inline
from threads.store.disk import PosixDisk

ODD = "tea \u2028 \x00 é"


@pytest.fixture
async def stores(pool):
    return [PostgresMemory(pool) for _ in range(3)]


@pytest.fixture
def memories(stores):
    return [Memory(store, now=Clock(), is_admin=lambda user: user == "ADMIN") for store in stores]


async def test_a_note_is_read_and_forgotten_by_any_worker(memories):
    one, other, _ = memories
    note = await one.add(T1, "channel", "we drink tea", "U1")
    assert "we drink tea" in await other.read(T1)
    assert note.id in await other.describe(T1)
    assert (await other.forget(T1, note.id, "U1")).startswith("Forgotten")
    assert await one.read(T1) == ""


async def test_what_workers_remember_at_once_is_all_there(memories):
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(memories[number % 3].add, T1, "channel", f"note {number}", "U1")
    notes = (await memories[0].notes(T1))["channel"]
    assert sorted(note.text for note in notes if note.text) == sorted(f"note {n}" for n in range(30))


async def test_both_stores_hold_the_same_text(stores, tmp_path):
    texts = []
    for store in (stores[0], MemoryFiles(PosixDisk(), tmp_path, inline)):
        memory = Memory(store, now=Clock(), is_admin=lambda _: True)
        for scope in ("thread", "channel", "global"):
            await memory.add(T1, scope, ODD, "U1")
        first = await memory.add(T1, "global", "another", "U1")
        await memory.forget(T1, first.id, "U1")
        texts.append(await memory.describe(T1))
    assert texts[0] == texts[1]
