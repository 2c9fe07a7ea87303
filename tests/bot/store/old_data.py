"""``python -m tests.bot.store.old_data FOLDER``: a data folder as the bot of today leaves it, to be kept for ever.

A real run of the whole program, cut off in the middle of its turns (only the ledger and the audit write their last
lines): threads with an answer, tools, a failure, a dead letter, an open question, a schedule, notes, a turn at work. `old-data-v1` was made by
it. When the data gets a new version, run it once more into a folder of that version, and leave the older ones alone.
"""

import itertools
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import anyio

from bot.llm.adapters import offline
from bot.ports.errors import BadRequest
from tests.patience import until
from tests.serving import Chat, serving
from threads.model import Message, Text, ThreadId, ToolCall
from transports.base.transport import Capabilities

BEGAN = datetime(2026, 11, 22, 12, tzinfo=UTC)
SETTINGS = {
    "tools": {"enabled": ["files", "memory", "schedule"], "policy": {"write_file(asked*)": "ask"}},
    "llm_retry": {"max_retries": 1, "base_delay_ms": 1},
}
ANSWERED, FAILED, DEAD, ASKED, CUT = (ThreadId("fake", "W", "C1", f"{n}.0") for n in range(1, 6))


class TickingClock:
    """A clock that moves a millisecond at each look."""

    def __init__(self, began: datetime) -> None:
        self._looks = (began + timedelta(milliseconds=n) for n in itertools.count())

    def __call__(self) -> datetime:
        return next(self._looks)


def _said(request):
    """Return what was said to the model last."""
    last = next(message for message in reversed(request.messages) if message.role == "user")
    return " ".join(block.text for block in last.blocks if isinstance(block, Text))


def troubled(honest, begun):
    """Return the rules of `offline/demo` with a few that go wrong; each turn that hangs is noted in *begun*."""

    async def complete(self, request, on_event):
        text = _said(request)
        if "be refused" in text:
            raise BadRequest("the provider refuses")
        if "take for ever" in text:
            begun.append(text)
            await anyio.sleep_forever()
        completion = await honest(self, request, on_event)
        if "tea every day" in text:
            call = ToolCall("c1", "schedule", {"text": "make tea", "cron": "0 16 * * *", "zone": "UTC"})
            return replace(
                completion, message=Message("assistant", (call,), model=offline.NAME), stop="tool_calls"
            )
        return completion

    return complete


async def make(data: Path) -> None:
    seat, begun = Chat(), []
    seat.capabilities = Capabilities(find=True, lands_late=False)

    async def hangs(times: int) -> None:
        await until(lambda: len(begun) >= times)

    with (
        mock.patch("bot.wiring.app.utc_now", TickingClock(BEGAN)),
        mock.patch.object(offline.OfflineModel, "complete", troubled(offline.OfflineModel.complete, begun)),
    ):
        async with serving(data, SETTINGS, model="offline/demo", chat=seat):
            for text in ("hello", "write notes.txt milk and honey", "remember the tea is in the left drawer"):
                await seat.say(text, thread=ANSWERED)
            await seat.say("tea every day", thread=ANSWERED)
            await seat.say("/model offline/demo", thread=ANSWERED)
            await seat.say("be refused", thread=FAILED)
            dead = await seat.send("take for ever", thread=DEAD)
            await hangs(1)
        for attempt in (2, 3):
            async with serving(data, SETTINGS, model="offline/demo", chat=seat):
                await hangs(attempt)
        async with serving(data, SETTINGS, model="offline/demo", chat=seat):
            await seat.settled(dead.id)
            await seat.send("write asked.txt may I", thread=ASKED)
            await seat.until(lambda: any("?" in post.key for post in seat.posts))
            await seat.send("take for ever, unless somebody ends me", thread=CUT)
            await hangs(4)
    (data / "lock").unlink()


if __name__ == "__main__":
    anyio.run(make, Path(sys.argv[1]))
