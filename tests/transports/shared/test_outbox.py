"""What a post does when its answer is lost, and the look-ups after it are lost too; in virtual time."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import anyio
import pytest

from tests.sim.loop import SimLoop
from threads.errors import Fenced, PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from threads.model import Outgoing, ThreadId
from threads.wording import MAYBE_REPEAT
from transports.base.transport import Capabilities
from transports.shared.delivery.outbox import Outbox

REPLY = Outgoing(ThreadId("memory", "", "c", "r"), "memory::c:m1", "hello", "reply")
CUT = TransportUnavailable("the look-up was cut off")


@pytest.fixture
def anyio_backend():
    return "asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), 1000.0)}


class Platform:
    """Shows each post, loses the answers to the first ones, and refuses the first look-ups."""

    name = "memory"

    def __init__(self, refusals: list[PostFailed], *, lost: int = 1, shows: bool = True, find: bool = True):
        self.capabilities = Capabilities(find=find)
        self.refusals, self.lost, self.shows = refusals, lost, shows
        self.texts: list[str] = []
        self.looked_at: list[float] = []

    async def reconnected(self):
        """It never was away."""

    async def post(self, outgoing):
        lost, self.lost = self.lost > 0, self.lost - 1
        if self.shows or not lost:
            self.texts.append(outgoing.text)
        if lost:
            raise TransportUnavailable("the answer was cut off", maybe_posted=True)
        return f"p{len(self.texts)}"

    async def find(self, thread, key):
        self.looked_at.append(anyio.current_time())
        if self.refusals:
            raise self.refusals.pop(0)
        return "p1" if self.texts else None


async def post(platform) -> SimpleNamespace:
    began = anyio.current_time()
    found = await Outbox(platform, anyio.lowlevel.checkpoint).post(REPLY)
    return SimpleNamespace(id=found, waits=[at - began for at in platform.looked_at])


async def test_a_worker_that_lost_the_thread_between_two_tries_posts_no_more():
    platform, tries = Platform([], shows=False), []

    async def ensure():
        tries.append(list(platform.texts))
        if len(tries) == 2:
            raise Fenced

    with pytest.raises(Fenced):
        await Outbox(platform, ensure).post(REPLY)
    assert platform.texts == []
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("changes", "posts"),
    [({}, 0), ({"kind": "error"}, 1), ({"text": f"hello\n\n{MAYBE_REPEAT}", "expired": True}, 1)],
)
async def test_a_reply_that_got_too_old_while_the_store_was_away_is_given_up(changes, posts):
    platform = Platform([], lost=0)
    outbox = Outbox(platform, lambda: anyio.sleep(601), max_age_s=600)
    with nullcontext() if posts else pytest.raises(TransportUnavailable):
        await outbox.post(replace(REPLY, **changes))
    assert len(platform.texts) == posts
    assert anyio.current_time() == 1601, "it is given up at once"


async def test_a_post_that_its_transport_held_back_because_the_thread_was_lost_is_not_tried_again(caplog):
    platform = Platform([], shows=False)

    async def hold_back(_outgoing):
        raise Fenced

    platform.post = hold_back
    with pytest.raises(Fenced):
        await post(platform)
    assert caplog.records == []


@pytest.mark.parametrize("refused", [1, 2])
async def test_a_post_that_is_out_is_found_though_look_ups_fail_first(refused):
    platform = Platform([CUT] * refused)
    done = await post(platform)
    assert (done.id, platform.texts) == ("p1", ["hello"])
    assert done.waits == [1.0, 2.0, 5.0][: refused + 1]  # a second after the post, then one and three more


async def test_a_post_that_is_not_out_goes_out_unmarked_once_a_look_up_says_so():
    platform = Platform([CUT, CUT], shows=False)
    done = await post(platform)
    assert (done.id, platform.texts) == ("p1", ["hello"])


async def test_a_repeat_is_marked_only_after_three_look_ups_that_failed():
    platform = Platform([CUT] * 3)
    await post(platform)
    assert platform.texts == ["hello", f"hello\n\n{MAYBE_REPEAT}"]
    assert len(platform.looked_at) == 3


async def test_a_post_that_went_out_marked_can_still_be_found_and_is_marked_once():
    platform = Platform([CUT] * 6, lost=3)
    done = await post(platform)
    assert done.id == "p1"
    assert platform.texts == ["hello", *[f"hello\n\n{MAYBE_REPEAT}"] * 2]


async def test_a_look_up_waits_for_as_long_as_the_platform_says():
    platform = Platform([TransportRateLimited("too many", retry_after=40)])
    assert (await post(platform)).waits == [1.0, 41.0]


@pytest.mark.parametrize(
    "refusal", [TransportRejected("not in the channel"), TransportRateLimited("too many", retry_after=3600)]
)
async def test_a_look_up_without_hope_is_not_made_again(refusal):
    platform = Platform([refusal])
    assert len((await post(platform)).waits) == 1
    assert platform.texts[-1].endswith(MAYBE_REPEAT)


async def test_where_nothing_can_be_looked_up_a_repeat_is_marked_at_once():
    platform = Platform([], find=False)
    await post(platform)
    assert platform.texts == ["hello", f"hello\n\n{MAYBE_REPEAT}"]
    assert platform.looked_at == []


async def test_a_post_that_is_given_up_is_looked_for_to_the_end():
    platform = Platform([CUT] * 11, lost=4)
    assert (await post(platform)).id == "p1"
    assert len(platform.looked_at) == 12


@pytest.mark.parametrize(("progresses", "parts"), [(True, 9), (False, 4)])
async def test_a_long_post_is_given_up_only_after_tries_that_brought_nothing_out(progresses, parts):
    class InParts(Platform):
        """Nine parts, one for each try."""

        async def post(self, outgoing):
            self.texts.append(outgoing.text)
            if len(self.texts) < 9:
                error = TransportUnavailable("503")
                error.progressed = progresses
                raise error
            return "p1"

    platform = InParts([])
    if progresses:
        assert (await post(platform)).id == "p1"
    else:
        with pytest.raises(TransportUnavailable):
            await post(platform)
    assert len(platform.texts) == parts


class Away(Platform):
    """Has no link until ``back_at``; the first post may be out."""

    def __init__(self, back_at: float, *, looks: bool, lost: bool):
        super().__init__([], lost=0)
        self.back_at, self.looks, self.in_doubt = back_at, looks, lost

    async def reconnected(self):
        await anyio.sleep_until(self.back_at)

    async def post(self, outgoing):
        if anyio.current_time() < self.back_at:
            raise TransportUnavailable("no link", maybe_posted=self.in_doubt)
        return await super().post(outgoing)

    async def find(self, thread, key):
        if not self.looks:
            raise TransportUnavailable("no link")
        return await super().find(thread, key)


async def try_to_post(platform, kind="reply"):
    try:
        await Outbox(platform, anyio.lowlevel.checkpoint, 300.0).post(replace(REPLY, kind=kind))
    except PostFailed as error:
        return platform.texts, error.maybe_posted
    return platform.texts, None


@pytest.mark.parametrize(
    ("away_s", "kind", "lost", "looks", "told"),
    [
        (200, "reply", False, True, (["hello"], None)),
        (400, "reply", False, True, ([], False)),
        (400, "notice", False, True, (["hello"], None)),  # what is no answer does not get old
        (400, "reply", True, True, ([], False)),  # it was looked for, and is not out
        (400, "reply", True, False, ([f"hello\n\n{MAYBE_REPEAT}"], None)),  # nobody knows whether it is out
    ],
)
async def test_a_reply_that_gets_too_old_is_given_up_unless_it_may_be_out(away_s, kind, lost, looks, told):
    platform = Away(anyio.current_time() + away_s, looks=looks, lost=lost)
    began = anyio.current_time()
    assert await try_to_post(platform, kind) == told
    assert told[1] is None or 300 <= anyio.current_time() - began <= 500
