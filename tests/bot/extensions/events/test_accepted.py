"""Who starts an accepted event where several workers could, and what of earlier ones is known."""

import pytest

from bot.extensions.events.accepted import (
    KNOWN_S,
    LEASE_S,
    MOST_KNOWN,
    REPLAY_S,
    AcceptedEvents,
    AcceptedFile,
    Event,
    event_id,
)
from bot.extensions.events.refused import Refused
from tests.world import state_file


class Workers:
    """Two workers over one store, and their clock."""

    def __init__(self, data, *, alone=False):
        self.now = 1e9
        self.state = state_file(data / "accepted.json", AcceptedFile())
        self.first, self.second = (
            AcceptedEvents(self.state, lambda: self.now, me, alone) for me in ("a", "b")
        )

    async def accept(self, key="k", source="ci", per_minute=60):
        event = Event(
            id=event_id(source, key), source=source, channel="fake:W:C1", asks="", text=key, at=self.now
        )
        await self.first.accept(event, per_minute)
        return event.id


async def test_one_of_two_workers_starts_an_event_and_keeps_it_while_it_is_at_work(tmp_path):
    workers = Workers(tmp_path)
    one = await workers.accept()
    assert [event.tried for event in await workers.first.claim(set())] == [False]
    for _ in range(5):
        workers.now += LEASE_S * 0.6
        assert await workers.first.claim({one}) == []
        assert await workers.second.claim(set()) == []


async def test_of_a_worker_that_is_gone_another_takes_it_over_and_knows_that_it_may_be_posted(tmp_path):
    workers = Workers(tmp_path)
    one = await workers.accept()
    await workers.first.claim(set())
    await workers.first.update(one, root="p1")
    assert await workers.second.claim(set()) == []
    workers.now += LEASE_S
    [taken] = await workers.second.claim(set())
    assert (taken.tried, taken.root) == (True, "p1")
    assert await workers.first.claim(set()) == []


async def test_the_only_process_of_a_data_folder_does_not_wait_for_the_one_before(tmp_path):
    workers = Workers(tmp_path, alone=True)
    await workers.accept()
    await workers.first.claim(set())
    [taken] = await workers.second.claim(set())
    assert taken.tried


async def test_a_source_has_its_own_pace(tmp_path):
    workers = Workers(tmp_path)
    for key in "ab":
        await workers.accept(key, per_minute=2)
    await workers.accept("a", per_minute=2)
    with pytest.raises(Refused):
        await workers.accept("c", per_minute=2)
    await workers.accept("c", "hub", per_minute=2)
    workers.now += 61
    await workers.accept("c", per_minute=2)
    assert [event.text for event in workers.state.value.waiting] == ["a", "b", "c", "c"]


async def test_what_may_be_sent_again_is_known_and_what_is_old_is_forgotten(tmp_path):
    workers = Workers(tmp_path)
    old, now = workers.now, workers.now + KNOWN_S
    many = {f"hub:{n}": now - REPLAY_S - n - 1 for n in range(MOST_KNOWN + 10)}
    fresh = {f"ci:{n}": now - 120 for n in range(MOST_KNOWN)}
    await workers.state.change(
        lambda file: file.model_copy(update={"known": {"ci:old": old - 1} | many | fresh})
    )
    workers.now = now
    one = await workers.accept()
    known = workers.state.value.known
    assert {one, *fresh} == set(known)
    await workers.state.change(lambda file: file.model_copy(update={"known": {"ci:old": old - 1} | many}))
    await workers.accept("other")
    assert len(workers.state.value.known) == MOST_KNOWN
    assert "ci:old" not in workers.state.value.known
