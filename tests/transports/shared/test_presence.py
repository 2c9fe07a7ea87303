"""Signs of work, whatever the platform: a failure costs nothing, and what is known is bounded."""

from __future__ import annotations

import anyio

from threads.background import background_tasks
from threads.model import Taken, ThreadId, TurnSettled
from transports.shared.live import presence as module
from transports.shared.live.presence import LiveMessage, Presence

HERE = ThreadId("slack", "T1", "C1", "1.0")


class Signs(Presence[LiveMessage, None]):
    def __init__(self):
        super().__init__(LiveMessage, 10)
        self.ended = []

    def posted(self, thread, message_id):
        raise NotImplementedError

    def _note(self, live, message_id, event):
        if message_id == "broken":
            raise ValueError

    def _settle(self, thread, message_id, end):
        pass

    def _forget(self, thread, message_id, end):
        del self._messages[thread, message_id]
        self.ended.append((message_id, end.outcome))


async def test_what_breaks_on_our_side_costs_no_turn(caplog):
    signs = Signs()
    signs.show(HERE, "broken", Taken())
    assert caplog.text.count("not shown") == 1
    async with background_tasks() as tasks:
        tasks.start_soon(signs.run)
        signs.soon(lambda: 1 / 0)
        await anyio.sleep(0.01)
    assert caplog.text.count("not shown") == 2


def test_the_message_that_was_silent_for_longest_is_given_up_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(module, "MOST_LIVE", 2)
    signs = Signs()
    for message_id in ("1", "2", "1", "3"):
        signs.show(HERE, message_id, Taken())
    signs.show(HERE, "1", TurnSettled("answered"))
    assert signs.ended == [("2", "failed"), ("1", "answered")]
