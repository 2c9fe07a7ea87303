"""What runs about a thread beside its actor ends when another worker takes the thread over."""

from dataclasses import replace

import anyio
import pytest

from tests.sim.loop import virtual_time
from tests.world import T1, T2, Platform, Scripted, message, running
from threads.errors import TransportUnavailable
from threads.model import Outgoing

anyio_backend = virtual_time

COMMAND = message(1, "/status")
STALE = replace(message(1), stale=True)


class Away(Platform):
    """Refuses posts until it is back."""

    def __init__(self):
        super().__init__()
        self.tried, self.back = anyio.Event(), False

    async def post(self, outgoing: Outgoing) -> str:
        self.tried.set()
        if not self.back:
            raise TransportUnavailable("not now")
        return await super().post(outgoing)


@pytest.mark.parametrize("event", [COMMAND, STALE], ids=["command", "note"])
@pytest.mark.parametrize(("lost", "posts"), [(T1, 0), (T2, 1)], ids=["its thread", "another"])
async def test_a_post_that_waits_ends_when_its_thread_is_lost(tmp_path, event, lost, posts):
    platform = Away()
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(event)
        await platform.tried.wait()
        bot.orchestrator.release(lost)
        platform.back = True
        await anyio.sleep(300)
    assert len(platform.posts) == posts


async def test_a_thread_that_comes_back_at_once_has_its_note_posted(tmp_path):
    platform = Away()
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(STALE)
        await platform.tried.wait()
        bot.orchestrator.release(T1)
        platform.back = True
        await bot.orchestrator.receive(replace(message(2), stale=True))
        await platform.settled("m2")
    assert [post.reply_to for post in platform.posts] == ["m2"]
