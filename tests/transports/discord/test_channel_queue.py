import anyio
import pytest

from threads.background import background_tasks
from transports.discord.events.channel_queue import ChannelQueues


@pytest.fixture
async def tasks():
    async with background_tasks() as group:
        yield group


def work(done, name, gate=None):
    async def do():
        if gate:
            await gate.wait()
        done.append(name)

    return do


async def test_in_a_channel_one_thing_comes_after_the_other_and_no_channel_waits_for_another(tasks):
    queues, done, gate = ChannelQueues(tasks), [], anyio.Event()
    queues.put("slow", work(done, "message", gate))
    queues.put("slow", work(done, "its edit"))
    queues.put("quick", work(done, "elsewhere"))
    await anyio.wait_all_tasks_blocked()
    assert done == ["elsewhere"]
    assert (queues.busy("slow"), queues.busy("quick")) == (True, False)
    gate.set()
    await anyio.wait_all_tasks_blocked()
    assert done == ["elsewhere", "message", "its edit"]
    assert not queues.busy("slow")


async def test_what_waits_is_bounded_over_all_channels_and_there_is_room_again_later(tasks, monkeypatch):
    monkeypatch.setattr("transports.discord.events.channel_queue.MOST_HELD", 2)
    queues, done, gate = ChannelQueues(tasks), [], anyio.Event()
    assert queues.put("a", work(done, 1, gate))
    assert queues.put("b", work(done, 2, gate))
    assert not queues.put("a", work(done, 3))
    gate.set()
    await anyio.wait_all_tasks_blocked()
    assert queues.put("a", work(done, 4))
    await anyio.wait_all_tasks_blocked()
    assert sorted(done) == [1, 2, 4]


async def test_a_bug_costs_one_thing_and_not_those_behind_it(tasks, caplog, monkeypatch):
    monkeypatch.setattr("transports.discord.events.channel_queue.MOST_HELD", 2)
    queues, done = ChannelQueues(tasks), []

    async def broken():
        raise ZeroDivisionError

    for _ in range(3):
        assert queues.put("a", broken)
        assert queues.put("a", work(done, "next"))
        await anyio.wait_all_tasks_blocked()
    assert done == ["next"] * 3
    assert "was not taken in" in caplog.text
