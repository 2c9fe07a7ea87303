import anyio
import pytest

from transports.discord.events.channel_queue import ChannelQueues


@pytest.fixture
async def tasks():
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


def work(done, name, gate=None):
    async def do():
        if gate:
            await gate.wait()
        done.append(name)

    return do


@pytest.mark.anyio
async def test_in_a_channel_one_thing_comes_after_the_other_and_no_channel_waits_for_another(tasks):
    lanes, done, gate = ChannelQueues(tasks), [], anyio.Event()
    lanes.put("slow", work(done, "message", gate))
    lanes.put("slow", work(done, "its edit"))
    lanes.put("quick", work(done, "elsewhere"))
    await anyio.wait_all_tasks_blocked()
    assert done == ["elsewhere"]
    assert (lanes.busy("slow"), lanes.busy("quick")) == (True, False)
    gate.set()
    await anyio.wait_all_tasks_blocked()
    assert done == ["elsewhere", "message", "its edit"]
    assert not lanes.busy("slow")


@pytest.mark.anyio
async def test_what_waits_is_bounded_over_all_channels_and_there_is_room_again_later(tasks):
    lanes, done, gate = ChannelQueues(tasks, most=2), [], anyio.Event()
    assert lanes.put("a", work(done, 1, gate))
    assert lanes.put("b", work(done, 2, gate))
    assert not lanes.put("a", work(done, 3))
    gate.set()
    await anyio.wait_all_tasks_blocked()
    assert lanes.put("a", work(done, 4))
    await anyio.wait_all_tasks_blocked()
    assert sorted(done) == [1, 2, 4]


@pytest.mark.anyio
async def test_a_bug_costs_one_thing_and_not_those_behind_it(tasks, caplog):
    lanes, done = ChannelQueues(tasks, most=2), []

    async def broken():
        raise ZeroDivisionError

    for _ in range(3):
        assert lanes.put("a", broken)
        assert lanes.put("a", work(done, "next"))
        await anyio.wait_all_tasks_blocked()
    assert done == ["next"] * 3
    assert "was not taken in" in caplog.text
