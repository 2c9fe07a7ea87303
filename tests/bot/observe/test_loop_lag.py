"""What blocks the event loop is named while it does."""

import logging
import re
import time

import anyio
import pytest

from bot.observe import loop_lag
from bot.observe.loop_lag import LoopLag


def sleeping(seen):
    """Block until it was seen, waiting."""
    end = time.monotonic() + 20
    while not seen() and time.monotonic() < end:
        time.sleep(0.01)


def spinning(seen):
    """Block until it was seen, working."""
    end = time.monotonic() + 20
    while not seen() and time.monotonic() < end:
        pass


def hold_the_interpreter(seen):
    """Block until it was seen, mostly without letting any other thread run."""
    end = time.monotonic() + 20
    while not seen() and time.monotonic() < end:
        assert re.fullmatch(r"(?:a|a)*c", "a" * 23) is None


def told(caplog):
    return [record for record in caplog.records if record.name == "bot.observe.loop_lag"]


async def blocked(caplog, block, slow_s=0.1):
    lag = LoopLag(slow_s)
    with caplog.at_level(logging.WARNING), lag.watching():
        await anyio.sleep(0.1)
        block(lambda: told(caplog))
        await anyio.sleep(0.2)
    return lag, told(caplog)


@pytest.mark.parametrize("block", [sleeping, spinning])
async def test_what_blocks_the_loop_is_logged_with_its_stack_and_then_how_long_it_was(caplog, block):
    lag, (during, after) = await blocked(caplog, block)
    assert during.getMessage().startswith("loop.blocked")
    assert any("test_loop_lag.py" in line for line in during.stack)
    assert during.blocked_s >= 0.1
    assert after.getMessage().startswith("loop.freed")
    assert after.blocked_s >= during.blocked_s
    assert lag.worst_s() == pytest.approx(after.blocked_s, abs=0.001)


async def test_what_holds_the_interpreter_is_logged_too(caplog):
    _, (during, *_) = await blocked(caplog, hold_the_interpreter)
    assert during.getMessage().startswith("loop.blocked")


async def test_a_loop_that_turns_is_not_logged(caplog):
    lag, records = await blocked(caplog, lambda _: None, slow_s=2.0)
    assert records == []
    assert lag.worst_s() < 2.0


async def test_stalls_in_a_row_are_logged_once_and_counted(caplog, monkeypatch):
    with caplog.at_level(logging.WARNING), LoopLag(0.5).watching():
        sleeping(lambda: told(caplog))
        for _ in range(2):
            await anyio.sleep(0.2)
            time.sleep(1)
        await anyio.sleep(0.2)
        monkeypatch.setattr(loop_lag, "QUIET_S", 0)
        sleeping(lambda: len(told(caplog)) > 2)
    events = [record.getMessage().partition(":")[0] for record in told(caplog)]
    assert events[:3] == ["loop.blocked", "loop.freed", "loop.blocked"]
    assert told(caplog)[2].untold == 2
