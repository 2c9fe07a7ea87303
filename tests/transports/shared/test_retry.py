"""Calls that are made again, and what becomes of a live message that cannot be written over."""

from __future__ import annotations

import pytest

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from transports.shared.delivery import rewrite
from transports.shared.retry import retry

LOST = TransportUnavailable("cut")


class Call:
    """Raises one error after another, then returns True."""

    def __init__(self, *errors):
        self.errors, self.count = [*errors], 0

    async def __call__(self):
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return True


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """How long was waited, in place of waiting."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("transports.shared.retry.anyio.sleep", sleep)
    return waits


async def test_a_call_is_repeated_after_the_platforms_word_or_else_our_pause(waits):
    seen = []
    call = Call(LOST, TransportRateLimited("slow down", retry_after=7.0))
    assert await retry(call, (1.0, 2.0), lambda error, fields: seen.append((error.code, fields["attempt"])))
    assert waits == [1.0, 7.0]
    assert seen == [("transport_unavailable", 2), ("transport_rate_limited", 3)]


@pytest.mark.parametrize(("errors", "calls"), [([LOST] * 4, 3), ([TransportRejected("no")], 1)])
async def test_the_last_error_and_one_that_is_final_are_raised(errors, calls):
    call = Call(*errors)
    with pytest.raises(PostFailed):
        await retry(call, (1.0, 2.0))
    assert call.count == calls


async def test_a_message_that_cannot_be_written_over_is_deleted_or_the_answer_waits():
    assert await rewrite.take_over(Call(LOST), Call())
    assert not await rewrite.take_over(Call(LOST, LOST), Call())

    async def stays():
        return False

    with pytest.raises(TransportUnavailable):
        await rewrite.take_over(Call(LOST, LOST), stays)


async def test_what_cannot_be_deleted_is_emptied():
    empty = Call(LOST)
    assert await rewrite.remove(Call(LOST, LOST), empty)
    assert empty.count == 0
    assert not await rewrite.remove(Call(TransportRejected("no")), empty)
    assert empty.count == 1
