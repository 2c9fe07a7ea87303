"""An actor's queue keeps its bound and its order, whatever comes back to it."""

import anyio
import pytest

from tests.world import message
from threads.actor.mailbox import Mailbox
from threads.errors import MailboxFull
from threads.journal.records import PendingMessage, Received


def pending(number):
    received = Received.of(message(number))
    received.seq = number
    return PendingMessage(received)


def test_messages_that_come_back_find_their_places_and_the_bound_holds():
    mailbox = Mailbox(3)
    for number in (1, 2, 3):
        mailbox.put(pending(number))
    with pytest.raises(RuntimeError), mailbox.withdrawing(lambda p: p.received.seq < 3) as gone:
        assert [p.received.seq for p in gone] == [1, 2]
        with pytest.raises(MailboxFull):
            mailbox.put(pending(4))
        raise RuntimeError
    assert [p.received.seq for p in mailbox.drain()] == [1, 2, 3]


def test_the_places_of_messages_that_were_settled_are_free():
    mailbox = Mailbox(1)
    mailbox.put(pending(1))
    with mailbox.withdrawing(lambda _: True):
        pass
    mailbox.put(pending(2))
    assert [p.received.seq for p in mailbox.drain()] == [2]


@pytest.mark.anyio
async def test_nothing_passes_a_withdrawn_message_that_comes_back():
    mailbox, taken = Mailbox(2), []

    async def take():
        taken.append((await mailbox.take(600)).received.seq)

    mailbox.put(pending(1))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            with pytest.raises(RuntimeError), mailbox.withdrawing(lambda _: True):
                tasks.start_soon(take)
                await anyio.wait_all_tasks_blocked()
                mailbox.put(pending(2))
                await anyio.wait_all_tasks_blocked()
                raise RuntimeError
    assert taken == [1]


@pytest.mark.anyio
async def test_a_message_that_comes_back_wakes_who_waits_for_one():
    mailbox = Mailbox(1)
    mailbox.put(pending(1))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            with pytest.raises(RuntimeError), mailbox.withdrawing(lambda _: True):
                tasks.start_soon(mailbox.take, 600)
                await anyio.wait_all_tasks_blocked()
                raise RuntimeError
