"""What extensions keep of a thread goes with its conversation, and not with another part of it."""

from __future__ import annotations

from types import SimpleNamespace

import anyio.lowlevel
import pytest

from bot.wiring.tool_set import ToolSet
from tests.world import T1


@pytest.mark.parametrize(("part", "gone"), [("conversation", [T1]), ("dead_letters", [])])
async def test_the_run_of_a_playbook_goes_with_the_conversation(part, gone):
    async def at_once(_, work):
        await work()
        return True

    async def forget(thread):
        forgotten.append(thread)

    forgotten, tool_set = [], ToolSet(*(None,) * 5, [])
    tool_set.running = [SimpleNamespace(turns={"play": SimpleNamespace(forget=forget)})]
    tool_set.registry = SimpleNamespace(
        between_turns=at_once, log_written=lambda _: anyio.lowlevel.checkpoint()
    )
    assert await tool_set.erase(T1, [part], anyio.lowlevel.checkpoint)
    assert forgotten == gone
