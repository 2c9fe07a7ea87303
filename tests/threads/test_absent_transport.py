"""A data folder that another transport has used: what was said there is left alone until it is served again."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.serving import Chat, serving
from threads.model import ThreadId

OLD = Path(__file__).parents[1] / "bot" / "store" / "old-data-v1"


class Elsewhere(Chat):
    name = "elsewhere"


async def test_a_bot_serves_one_transport_over_what_another_one_left_and_leaves_that_alone(tmp_path):
    data = shutil.copytree(OLD, tmp_path / "data")
    before = (data / "journal.jsonl").read_bytes()
    async with serving(data, {}, model="offline/demo", chat=Elsewhere()) as seat:
        assert "offline/demo" in (await seat.say("hello", thread=ThreadId("elsewhere", "W", "C", "1"))).text
    after = (data / "journal.jsonl").read_bytes()
    assert after.startswith(before)
    assert b"fake:" not in after[len(before) :]
