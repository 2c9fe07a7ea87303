"""Small values of all workers, and what only one of them does."""

from __future__ import annotations

import anyio
import pytest
from pydantic import Field

from bot.extensions.postgres import states as states_module
from bot.extensions.postgres.session import DatabaseSession, SessionLost
from tests.bot.extensions.postgres.workers import rows, workers
from tests.patience import until
from threads.background import background_tasks
from threads.errors import NewerSchema, StoreUnavailable
from threads.store.json_file import JsonState


class Names(JsonState):
    names: tuple[str, ...] = ()
    days: dict[str, str] = Field(default_factory=dict)


def adding(*names):
    return lambda old: Names(names=(*old.names, *names))


def waits():
    """Take no note that another worker has the role."""


async def test_changes_of_all_workers_come_together_and_each_sees_them_unasked(dsn):
    async with workers(dsn, 3) as seats:
        opened = [await seat.store.states.open("names", Names()) for seat in seats]
        async with anyio.create_task_group() as tasks:
            for number, state in enumerate(opened):
                for again in range(5):
                    tasks.start_soon(state.change, adding(f"{number}-{again}"))
        await until(lambda: all(len(state.value.names) == 15 for state in opened))
        assert len({state.value.names for state in opened}) == 1
        assert len(set(opened[0].value.names)) == 15


async def test_what_a_function_refuses_changes_nothing_and_the_same_value_is_not_written(dsn):
    def refuse(_):
        raise ValueError("no")

    async with workers(dsn, 1) as [seat]:
        state = await seat.store.states.open("names", Names())
        await state.change(adding("a"))
        with pytest.raises(ValueError, match="no"):
            await state.change(refuse)
        await state.change(lambda old: old)
        assert rows(dsn, "SELECT rev, body ->> 'names' FROM slot") == [(1, '["a"]')]


async def test_a_change_whose_answer_is_lost_is_made_once(dsn, monkeypatch):
    run, lost = DatabaseSession.rows, []

    async def losing(self, statement, parameters=()):
        found = await run(self, statement, parameters)
        if statement == states_module.REPLACE and not lost:
            lost.append(statement)
            raise SessionLost("cut")
        return found

    monkeypatch.setattr(DatabaseSession, "rows", losing)
    monkeypatch.setattr(states_module, "PAUSE_S", 0.0)
    async with workers(dsn, 1) as [seat]:
        state = await seat.store.states.open("names", Names())
        await state.change(adding("a"))
        assert state.value.names == ("a",)


async def test_without_a_server_a_change_is_refused_and_the_value_stays(dsn, monkeypatch):
    async with workers(dsn, 1) as [seat]:
        state = await seat.store.states.open("names", Names())

        async def away(*_):
            raise SessionLost("away")

        with monkeypatch.context() as patch:
            patch.setattr(DatabaseSession, "rows", away)
            patch.setattr(states_module, "PAUSE_S", 0.0)
            with pytest.raises(StoreUnavailable):
                await state.change(adding("a"))
        assert state.value.names == ()


async def test_a_value_of_a_newer_version_is_left_as_it_is(dsn):
    rows(dsn, "INSERT INTO slot VALUES ('names', 3, '{\"v\": 2}') RETURNING rev")
    async with workers(dsn, 1) as [seat]:
        with pytest.raises(NewerSchema, match="newer"):
            await seat.store.states.open("names", Names())


async def test_a_role_has_one_holder_at_a_time_and_passes_on_when_that_one_dies(dsn):
    holding, held = set(), []

    def work(seat):
        async def run():
            holding.add(seat)
            held.append(seat)
            assert len(holding) == 1
            try:
                await anyio.sleep_forever()
            finally:
                holding.discard(seat)

        return run

    async with workers(dsn, 3) as seats, background_tasks() as tasks:
        for seat in seats:
            tasks.start_soon(seat.store.hold, "reader:slack", work(seat), waits)
        await until(lambda: held)
        first = held[0]
        holding.discard(first)  # its process is gone, with all that it did
        await first.kill()
        await until(lambda: len(held) == 2)
        assert held[1] is not first


async def test_whoever_is_cut_off_stops_before_another_may_hold_the_role(dsn, cut_off):
    ends = []

    async def work():
        try:
            await anyio.sleep_forever()
        finally:
            found = rows(dsn, "SELECT count(*) FROM worker WHERE alive_until > clock_timestamp()")
            ends.append(found)

    async with workers(dsn, 1) as [seat], background_tasks() as tasks:
        tasks.start_soon(seat.store.hold, "gateway", work, waits)
        await until(lambda: rows(dsn, "SELECT FROM role"))
        cut_off(dsn, seat.worker.number)
        await until(lambda: ends)
        assert ends == [[(1,)]]


async def test_workers_share_a_rate_and_each_waits_its_turn(dsn):
    async with workers(dsn, 2) as [one, other]:
        waits = [await seat.store.take_token("post", 0.01, 2.0) for seat in (one, other, one, other)]
        assert waits[:2] == [0.0, 0.0]
        assert 50 < waits[2] <= 100 < waits[3] <= 200


async def test_a_token_that_may_be_dropped_leaves_a_reserve_to_all_workers(dsn):
    slow = 0.001
    async with workers(dsn, 2) as [one, other]:
        granted = [await seat.store.try_token("post", slow, 6.0, 3.0) for seat in (one, other) * 3]
        assert granted == [True] * 3 + [False] * 3
        assert [await seat.store.take_token("post", slow, 6.0) for seat in (one, other, one)] == [0.0] * 3
        assert await other.store.take_token("post", slow, 6.0) > 900


async def test_without_a_server_each_worker_keeps_to_its_share_of_a_rate(dsn, monkeypatch):
    async with workers(dsn, 1) as [seat]:

        async def away(*_):
            raise SessionLost("away")

        seat.worker.alive = 3
        monkeypatch.setattr(DatabaseSession, "rows", away)
        assert await seat.store.take_token("post", 2.0, 2.0) == 1.5
        assert not await seat.store.try_token("post", 2.0, 2.0, 1.0)
        monkeypatch.undo()


async def test_a_sender_is_refused_without_a_debt_and_has_more_as_time_passes(dsn):
    def use(wanted):
        [[used]] = rows(dsn, f"SELECT use_tokens('sender:U1', 6, {wanted})")
        return used

    def passes(seconds):
        rows(dsn, f"UPDATE bucket SET at = at - interval '{seconds} s' RETURNING at")

    assert [use(4), use(4), use(4)] == [4, 2, 0]
    passes(20)
    assert use(4) == 2
    passes(1000)
    assert use(9) == 6


async def test_rates_that_nobody_uses_are_deleted_after_an_hour(dsn):
    rows(dsn, "SELECT use_tokens('sender:U1', 6, 1), use_tokens('sender:U2', 6, 1), take_token('post', 1, 1)")
    rows(dsn, "UPDATE bucket SET at = at - interval '61 min' WHERE name <> 'sender:U2' RETURNING name")
    rows(dsn, "SELECT collect()")
    assert rows(dsn, "SELECT name FROM bucket ORDER BY name") == [("post",), ("sender:U2",)]


async def test_audit_lines_that_are_sent_again_are_there_once(dsn):
    async with workers(dsn, 1) as [seat]:
        lines = [("2026-11-24", b'{"at":"1"}\n'), ("2026-11-24", b'{"at":"2"}\n')]
        await seat.store.append_audit(lines[:1])
        await seat.store.append_audit(lines)
    assert rows(dsn, "SELECT line::text FROM audit ORDER BY id") == [('{"at":"1"}',), ('{"at":"2"}',)]
