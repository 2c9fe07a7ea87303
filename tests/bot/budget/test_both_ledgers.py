"""What holds for the ledger of one machine and for the one of many workers alike."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from bot.budget.accounts import Accounts
from bot.budget.budgets import Call, OverLimit, Pace, Policy, Shortage
from bot.budget.ledger import Ledger
from bot.extensions.postgres import ledger as postgres_ledger
from bot.extensions.postgres.ledger import PostgresLedger
from bot.extensions.postgres.session import DatabaseSession, Pool
from bot.extensions.postgres.worker import WorkerLost
from bot.ports.model import Usage
from tests.bot.extensions.postgres.workers import rows, workers
from tests.patience import WITHIN_S, until
from threads.store.disk import PosixDisk
from threads.store.disk_threads import DiskThreads

HARD = Policy(True, 0.8, {"thread": 1_000_000})
now = partial(datetime.now, UTC)


def ledger_of(seat):
    return PostgresLedger(seat.store.pool, lambda: seat.worker.number, now, WorkerLost)


@pytest.fixture(params=["files", "postgres"])
async def ledgers(request, tmp_path):
    """Return how a ledger of the same store is opened, again and again."""
    if request.param == "files":

        @asynccontextmanager
        async def opened():
            disk_threads = DiskThreads(1)
            ledger = Ledger(PosixDisk(), tmp_path / "usage", offload=disk_threads, now=now)
            ledger.open()
            async with ledger.writing():
                yield ledger
            disk_threads.close()
    else:
        dsn = request.getfixturevalue("dsn")

        @asynccontextmanager
        async def opened():
            async with workers(dsn, 1) as [seat], ledger_of(seat).writing() as ledger:
                yield ledger

    return opened


async def test_a_call_is_refused_that_does_not_fit_and_says_by_how_much(ledgers):
    async with ledgers() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        first = await account.reserve("fake/one", 700_000)
        with pytest.raises(OverLimit) as refused:
            await account.reserve("fake/one", 400_000)
        [shortage] = refused.value.shortages
        assert shortage == Shortage(("thread", "t1"), limit=1_000_000, used=700_000, missing=100_000)
        account.commit(first, Usage(100, 10), 600_000, "ok")
        await until_spent(ledger, 600_000)
        account.commit(await account.reserve("fake/one", 400_000), Usage(), 400_000, "ok")


async def test_a_grant_raises_one_limit_and_a_warning_is_said_once_for_it(ledgers):
    async with ledgers() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        account.commit(await account.reserve("fake/one", 900_000), Usage(), 900_000, "ok")
        await until_spent(ledger, 900_000)
        assert await account.warnings() == [
            "(Budget warning: $0.90 of $1.00 spent for this thread, $0.10 left.)"
        ]
        assert await account.warnings() == []
        await account.grant(("thread", "t1"), 100_000, "boss")
        assert await account.warnings() == [
            "(Budget warning: $0.90 of $1.10 spent for this thread, $0.20 left.)"
        ]
        await account.reserve("fake/one", 200_000)


async def test_a_call_that_is_cancelled_before_it_goes_out_costs_nothing(ledgers):
    async with ledgers() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await account.reserve("fake/one", 900_000)
        await account.reserve("fake/one", 1_000_000)


async def test_what_a_process_had_set_aside_counts_in_full_once_it_is_gone(ledgers):
    async with ledgers() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        account.commit(await account.reserve("fake/one", 300_000), Usage(50, 5), 100_000, "ok")
        await account.reserve("fake/one", 200_000)
        await until_spent(ledger, 100_000)
    async with ledgers() as ledger:
        again = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        await until_spent(ledger, 300_000)
        assert again.usage.input == 50
        with pytest.raises(OverLimit):
            await again.reserve("fake/one", 700_001)
        await again.reserve("fake/one", 700_000)


async def test_a_call_that_a_death_cut_off_costs_its_prompt_and_the_time_that_passed(ledgers):
    async with ledgers() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        for _ in range(20):
            await account.reserve("fake/one", 50_000, Pace(at_once=7, per_s=1))
    async with ledgers() as ledger:
        again = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        with anyio.fail_after(WITHIN_S):
            while (total := ledger.budgets.total(("thread", "t1"))).reserved or not total.spent:
                await ledger.read([("thread", "t1")])
                await anyio.sleep(0.01)
        assert 20 * 8 <= total.spent <= 20 * (7 + 60), "a second in flight, and less than a minute"
        await again.reserve("fake/one", 900_000)


async def until_spent(ledger, micros):
    with anyio.fail_after(WITHIN_S):
        while ledger.budgets.total(("thread", "t1")).spent != micros:
            await ledger.read([("thread", "t1")])
            await anyio.sleep(0.01)


async def test_racing_workers_never_pass_a_limit_and_the_sums_are_exact(dsn):
    policy = Policy(True, 0.8, {"thread": 1_000_000, "day": 1_500_000}, {"slack:T:C": 300_000})
    elsewhere, spent = replace(policy, day_limits={}), []

    async def spend(seat, ledger, number):
        account = await Accounts(ledger, elsewhere if number % 3 else policy).open(
            f"t{number % 2}", "ann", f"m{seat.worker.number}-{number}"
        )
        for _ in range(30):
            with suppress(OverLimit):
                account.commit(await account.reserve("fake/one", 40_000), Usage(1, 1), 9_000, "ok")
                spent.append(9_000)
            within_limits(dsn, policy)

    async with workers(dsn, 3) as seats, AsyncExitStack() as stack:
        ledgers = [await stack.enter_async_context(ledger_of(seat).writing()) for seat in seats]
        async with anyio.create_task_group() as tasks:
            for seat, ledger in zip(seats, ledgers, strict=True):
                for number in range(4):
                    tasks.start_soon(spend, seat, ledger, number)
    assert rows(dsn, "SELECT spent, reserved FROM account WHERE scope = 'day'") == [(sum(spent), 0)]
    assert sum(spent) > 1_400_000
    [(there,)] = rows(dsn, "SELECT spent FROM account WHERE scope = 'scope_day'")
    assert 200_000 < there <= 300_000
    assert rows(dsn, "SELECT count(*) FROM reservation") == [(0,)]


def within_limits(dsn, policy):
    for scope, key, used in rows(dsn, "SELECT scope, key, spent + reserved FROM account"):
        limit = policy.limit((scope, key))
        assert limit is None or used <= limit


async def test_a_worker_that_was_taken_for_dead_can_reserve_nothing(dsn):
    async with workers(dsn, 1) as [seat]:
        ledger = ledger_of(seat)
        rows(dsn, "DELETE FROM worker RETURNING id")
        with pytest.raises(WorkerLost):
            await ledger.reserve(Call("t1", "ann", "m1", "fake/one", ledger.today), 1, HARD)


async def test_a_statement_that_is_sent_again_counts_once(dsn):
    async with workers(dsn, 1) as [seat], ledger_of(seat).writing() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        run, sent = DatabaseSession.rows, []

        async def twice(self, statement, parameters=()):
            sent.append(statement)
            await run(self, statement, parameters)
            return await run(self, statement, parameters)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DatabaseSession, "rows", twice)
            account.commit(await account.reserve("fake/one", 900_000), Usage(7, 1), 900_000, "ok")
            await until_spent(ledger, 900_000)
            assert len(await account.warnings()) == 1
            await account.grant(("thread", "t1"), 5, "boss")
    found = rows(dsn, "SELECT spent, reserved, granted, prompt FROM account WHERE scope = 'thread'")
    assert found == [(900_000, 0, 5, 7)]
    assert rows(dsn, "SELECT count(*) FROM spending") == [(4,)]


async def test_what_lapsed_counts_in_full_and_a_late_commit_adds_nothing(dsn):
    async with workers(dsn, 1) as [seat], ledger_of(seat).writing() as ledger:
        account = await Accounts(ledger, HARD).open("t1", "ann", "m1")
        call = await account.reserve("fake/one", 300_000)
        rows(dsn, "DELETE FROM worker RETURNING id")
        rows(dsn, "SELECT lapse()")
        account.commit(call, Usage(7, 1), 100_000, "ok")
        while not rows(dsn, "SELECT FROM spending HAVING count(*) = 2"):
            await ledger.read([("thread", "t1")])
    found = rows(dsn, "SELECT spent, reserved, prompt FROM account WHERE scope = 'thread'")
    assert found == [(300_000, 0, 7)]


async def test_an_outage_of_the_database_is_logged_once_by_the_ledger(monkeypatch, caplog):
    monkeypatch.setattr(postgres_ledger, "REFRESH_S", 0.01)
    tries = []

    async def away(*_):
        tries.append(1)
        raise ConnectionError("away")

    monkeypatch.setattr(DatabaseSession, "rows", away)
    async with PostgresLedger(Pool(""), lambda: 1, now, WorkerLost).writing():
        await until(lambda: len(tries) >= 5)
    assert caplog.messages.count("usage.not_read: away") == 1
