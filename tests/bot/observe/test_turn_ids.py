"""What joins a thread's text, the log and the trace: each line that is logged in a turn has the turn's ids."""

import io
import json
import logging

import anyio.to_thread
import pytest

from bot.observe.logs import configure_logging
from bot.ports.tool import Arguments
from tests.world import Platform, Scripted, calls, message, running, says


@pytest.fixture
def lines(restored_logging):
    """Everything that is logged, as it is written."""
    out = io.StringIO()
    configure_logging("info", "json", out)
    return lambda: [json.loads(line) for line in out.getvalue().splitlines()]


class BrokenTool:
    name, description, risk, arguments = "breaks", "BrokenTool.", "read", Arguments

    async def __call__(self, arguments, context):
        logging.getLogger("foreign").warning("about to break")
        await anyio.to_thread.run_sync(logging.getLogger("a.thread").warning, "from a thread")
        raise ValueError("broken")


async def test_a_tool_that_fails_in_a_turn_is_logged_with_the_turns_three_ids(tmp_path, lines):
    platform = Platform()
    async with running(
        tmp_path, platform, Scripted(calls("breaks"), says("sorry")), tools=[BrokenTool()]
    ) as core:
        await core.orchestrator.receive(message(1))
        await platform.settled("m1")
    started = next(
        record
        for line in (tmp_path / "journal.jsonl").read_text().splitlines()
        if (record := json.loads(line)).get("kind") == "started"
    )
    within = [line for line in lines() if line["logger"] in ("bot.tools.gate", "foreign", "a.thread")]
    assert len(within) == 3
    for line in within:
        assert line["thread_id"] == "fake:W:C1:1.0"
        assert line["message_id"] == "m1"
        assert line["correlation_id"] == started["correlation_id"]
    assert "broken" in within[-1]["traceback"]


def test_a_line_outside_of_a_turn_has_no_ids(lines):
    logging.getLogger("bot.test").warning("outside")
    assert "thread_id" not in lines()[0]
