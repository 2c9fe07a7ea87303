"""What was answered before a backup was restored is not answered again."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bot.store.restored_answers import Restored, skip_answered
from tests.serving import Chat
from threads.errors import StoreUnavailable, TransportUnavailable


async def test_a_message_that_cannot_be_looked_up_now_is_not_taken_now():
    class Unreachable:
        finds = True

        async def find(self, thread, key):
            raise TransportUnavailable("down")

    taken = []

    async def receive(event):
        taken.append(event)

    async def unknown(key):
        return False

    def skipping(until):
        came = Restored(backup="b", backup_at=until, restored_at=until)
        return skip_answered(receive, came, unknown, {"fake": Unreachable()})

    seat, now = Chat(), datetime.now(UTC)
    seat.sink = skipping(now)
    with pytest.raises(StoreUnavailable):
        await seat.send("hello")
    seat.sink = skipping(now - timedelta(days=400))
    await seat.send("said since the restore")
    assert [event.text for event in taken] == ["said since the restore"]


async def test_without_a_restore_nothing_stands_between_a_platform_and_the_bot():
    receive = partial(print)
    assert skip_answered(receive, None, lambda _: None, {}) is receive
