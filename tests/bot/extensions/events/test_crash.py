"""A bot that dies between accepting an event and its turn: the next goes on, and nothing is twice or lost."""

from __future__ import annotations

import anyio
import pytest

from bot.extensions.events import accepted, starter
from tests.bot.extensions.events.test_story import saying, sending
from tests.patience import WITHIN_S
from tests.serving import Chat
from threads.errors import StoreUnavailable
from threads.store.json_file import JsonFile

CHANGES = ("accepted", "claimed", "the post is known", "begun")
"""What is written of an event, in this order."""


class Deadly(Chat):
    """A chat whose bot dies when it posts in the channel, before that is seen or ``after``."""

    def __init__(self, *, after: bool) -> None:
        super().__init__()
        self.after, self.dead = after, anyio.Event()

    async def post(self, outgoing):
        if outgoing.thread.root or self.dead.is_set():
            return await super().post(outgoing)
        if self.after:
            await super().post(outgoing)
        self.dead.set()
        return await anyio.sleep_forever()


async def sent(ci, dead, *, answered):
    """Send an event, and wait until the bot is dead. Return the answers: none if it dies before it has one."""
    with anyio.fail_after(WITHIN_S):
        if answered:
            codes = [(await ci.send("job 17")).status_code]
            await dead.wait()
            return codes
        async with await anyio.connect_tcp("127.0.0.1", ci.port) as stream:
            await stream.send(ci.raw(b"job 17"))
            await dead.wait()
    return []


async def went_on(tmp_path, fake, chat, *, promised, dsn=""):
    """Check that the next bot starts the turn once, and that one which nobody was promised may be sent again."""
    async with sending(tmp_path, fake, chat=chat, dsn=dsn) as ci:
        if not promised:
            assert (await ci.send("job 17")).status_code == 202
        await ci.settled("p1")
        assert (await ci.send("job 17")).status_code == 202
    posts = [post for post in chat.posts if not post.thread.root]
    assert len(posts) == 1
    assert [post.text for post in chat.posts if post.thread.root] == ["ok"]
    assert len(fake.requests) == 1


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(starter, "LATE_POST_S", 0.0)


@pytest.mark.parametrize("durable", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", range(len(CHANGES)), ids=CHANGES)
async def test_it_dies_before_or_after_a_change_is_durable(tmp_path, monkeypatch, place, durable):
    chat, dead, change, seen = Chat(), anyio.Event(), JsonFile.change, []

    async def dying(self, function):
        if self._path.name != "accepted.json":
            return await change(self, function)
        seen.append(function(self.value) is not self.value)
        if sum(seen) != place + 1 or not seen[-1] or dead.is_set():
            return await change(self, function)
        if durable:
            await change(self, function)
        dead.set()
        return await anyio.sleep_forever()

    async with saying() as fake:
        with monkeypatch.context() as patch:
            patch.setattr(JsonFile, "change", dying)
            async with sending(tmp_path, fake, chat=chat) as ci:
                assert await sent(ci, dead, answered=place > 0) == [202] * (place > 0)
                if place == CHANGES.index("begun"):
                    await ci.settled("p1")
        await went_on(tmp_path, fake, chat, promised=place > 0 or durable)


@pytest.mark.parametrize("after", [False, True])
async def test_it_dies_while_it_posts(tmp_path, after):
    chat = Deadly(after=after)
    async with saying() as fake:
        async with sending(tmp_path, fake, chat=chat) as ci:
            assert await sent(ci, chat.dead, answered=True) == [202]
        await went_on(tmp_path, fake, chat, promised=True)


@pytest.mark.parametrize("after", [False, True])
async def test_another_worker_over_one_database_goes_on_where_the_first_one_died(
    tmp_path, monkeypatch, dsn, after
):
    monkeypatch.setattr(accepted, "LEASE_S", 0.5)
    monkeypatch.setattr(starter, "POLL_S", 0.05)
    chat = Deadly(after=after)
    async with saying() as fake:
        async with sending(tmp_path / "a", fake, chat=chat, dsn=dsn) as ci:
            assert await sent(ci, chat.dead, answered=True) == [202]
        await went_on(tmp_path / "b", fake, chat, promised=True, dsn=dsn)
    assert not (tmp_path / "b" / "accepted.json").exists(), "the event is in the database"


async def test_a_disk_that_is_full_promises_nothing(tmp_path, monkeypatch):
    change, full = JsonFile.change, [True]

    async def refused(self, function):
        if self._path.name == "accepted.json" and full[0]:
            raise StoreUnavailable("accepted.json: no space left")
        return await change(self, function)

    monkeypatch.setattr(JsonFile, "change", refused)
    async with saying() as fake, sending(tmp_path, fake) as ci:
        assert (await ci.send("job 17")).status_code == 503
        full[0] = False
        assert (await ci.send("job 17")).status_code == 202
        await ci.settled("p1")
    assert len(fake.requests) == 1
