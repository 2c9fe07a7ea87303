"""Several workers over one database: whose thread it is, who takes over, and who may write no more."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import psycopg
import pytest

from bot.extensions.postgres.journal import CHECKED_AT_ONCE, event_adapter
from bot.extensions.postgres.reading import PostgresReader
from bot.extensions.postgres.worker import CLAIMED_AT_ONCE, LEASE_S, LOOK_S, PATIENCE_S, SPARE, WorkerLost
from bot.observe.audit import Audit
from bot.observe.audit_sinks import audit_logs
from bot.reports.audit_trail import Filter, describe, read_audit
from bot.reports.line_reader import Damage
from tests.bot.extensions.postgres.workers import OTHER, THREAD, Seat, intent, message, rows, said, workers
from tests.patience import WITHIN_S, until
from threads.errors import Fenced, StoreUnavailable
from threads.journal.records import Received, record_adapter
from threads.model import Deleted, Edited
from threads.store.checksummed_lines import encode

CUTS = 12
CUT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = ANY (ARRAY{shared}::int[]) "
    "OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 7777 AND objid = {number})"
)


def run(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


async def test_a_message_that_all_workers_receive_is_new_to_one_and_served_by_one(dsn):
    found = []
    async with workers(dsn, 3) as seats:
        async with anyio.create_task_group() as tasks:
            for seat in seats:
                for number in range(20):

                    async def receive(seat=seat, number=number):
                        found.append((number, await seat.journal.receive(message(number))))

                    tasks.start_soon(receive)
        [owner] = [seat for seat in seats if str(THREAD) in seat.journal.owned]
        await owner.until(lambda: len(owner.routed) == 20)
        assert sorted(number for number, new in found if new) == list(range(20))
        assert [len(seat.routed) for seat in seats if seat is not owner] == [0, 0]


async def test_messages_are_served_in_the_order_of_their_commits_whoever_received_them(dsn):
    async with workers(dsn, 2) as (one, other):
        for number in range(10):
            await (one, other)[number % 2].journal.receive(message(number))
        await one.until(lambda: len(one.routed) == 10)
        assert [pending.incoming.id for pending in one.routed] == [f"m{number}" for number in range(10)]
        seqs = [pending.received.seq for pending in one.routed]
        assert seqs == sorted(seqs)


async def test_a_second_id_of_a_message_is_known_to_all(dsn):
    async with workers(dsn, 2) as (one, other):
        first = message(1)
        assert await one.journal.receive(first)
        aliased = message(2, OTHER)
        object.__setattr__(aliased, "alias", "m3")
        assert await one.journal.receive(aliased)
        assert not await other.journal.receive(message(3, OTHER))
        assert await other.journal.knows(message(3, OTHER).key)
        assert not await other.journal.knows(message(4, OTHER).key)


async def test_of_two_copies_that_begin_a_thread_each_at_the_same_moment_one_is_new(dsn):
    """Slack gives a message that a client sends again the same `client_msg_id`, and another time."""
    copy, again = (replace(message(n, thread), alias="c1") for n, thread in ((1, THREAD), (2, OTHER)))
    body = encode(record_adapter(), Received.of(copy)).decode()
    found = []
    async with workers(dsn, 1) as (one,), anyio.create_task_group() as tasks:
        with psycopg.connect(dsn) as elsewhere:
            values = [copy.key], [str(copy.thread)], [copy.keys[1]], [body]
            elsewhere.execute("SELECT take_in(NULL, %s, %s, %s, %s, NULL, NULL)", values)

            async def receive():
                found.append(await one.journal.receive(again))

            tasks.start_soon(receive)
            await until(lambda: found or rows(dsn, "SELECT FROM pg_locks WHERE NOT granted") != [])
            assert not found
    assert found == [False]


async def test_what_a_worker_had_begun_that_is_cut_off_goes_on_elsewhere_and_it_may_write_no_more(
    dsn, cut_off
):
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await one.journal.receive(message(2))
        await one.until(lambda: len(one.routed) == 2)
        context = one.store.context(THREAD)
        await one.journal.append(one.routed[0].start(1, "ref"))
        await context.load()
        await context.save([said("hi", "m1"), said("step 1")])
        cut_off(dsn, one.worker.number)
        await other.until(lambda: len(other.taken) == 2)
        first, second = other.taken
        assert (first.incoming.id, first.attempts, first.interrupted) == ("m1", 1, True)
        assert (second.incoming.id, second.attempts, second.interrupted) == ("m2", 0, False)
        assert (await other.store.context(THREAD).load()).messages == [said("hi", "m1"), said("step 1")]
        with pytest.raises(Fenced):
            await one.journal.append(intent(one.routed[0]))
        with pytest.raises(Fenced):
            await context.save([said("hi", "m1"), said("step 1"), said("a zombie's step")])
        with pytest.raises(Fenced):
            await context.archive()
        assert rows(dsn, "SELECT intent FROM message WHERE intent IS NOT NULL") == []
        assert (await other.store.context(THREAD).load()).messages == [said("hi", "m1"), said("step 1")]
        await other.settle(first)
        assert [name for name, _ in other.ends] == ["m1"]


async def test_in_a_batch_only_the_records_of_a_lost_thread_are_refused(dsn):
    async with workers(dsn, 2) as (one, two):
        await one.journal.receive(message(1))
        await one.journal.receive(message(2, OTHER))
        await one.until(lambda: len(one.routed) == 2)
        run(dsn, f"UPDATE thread SET epoch = epoch + 1, owner = {two.worker.number} WHERE id = '{OTHER}'")
        mine, lost = (one.journal.put(pending.start(1, "ref")) for pending in one.routed)
        await one.journal.durable(mine)
        with pytest.raises(Fenced):
            await one.journal.durable(lost)
        assert one.lost == [OTHER]
        [(begun,)] = rows(dsn, "SELECT thread FROM message WHERE started IS NOT NULL")
        assert begun == str(THREAD)


async def test_a_batch_that_is_sent_again_after_an_unknown_fate_changes_nothing(dsn):
    async with workers(dsn, 1) as (one,):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        pending = one.routed[0]
        records = [pending.start(1, "ref"), intent(pending)]
        await one.journal.append(*records)
        await one.journal.append(*records)
        await one.journal.append(pending.settled("answered"))
        await one.journal.append(pending.settled("failed"))
        assert rows(dsn, "SELECT outcome FROM message") == [("answered",)]


async def test_a_row_keeps_the_very_bytes_of_the_record(dsn):
    async with workers(dsn, 1) as (one,):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        started = one.routed[0].start(1, "ref")
        await one.journal.append(started)
        [(line,)] = rows(dsn, "SELECT started::text FROM message")
        assert line.encode() + b"\n" == encode(record_adapter(), started)
        assert one.routed[0].incoming.text == message(1).text


async def test_a_thread_without_work_is_given_up_and_its_next_message_is_served_by_whoever_receives_it(dsn):
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        await one.settle(one.routed[0])
        assert str(THREAD) in one.journal.owned, "its actor is there still"
        one.busy.clear()
        await until(lambda: not rows(dsn, "SELECT FROM thread WHERE owner IS NOT NULL"))
        await other.journal.receive(message(2))
        await other.until(lambda: other.routed)
        assert [pending.incoming.id for pending in other.routed] == ["m2"]
        assert [pending.incoming.id for _, pending in other.journal.ledger.recent] == ["m1"], (
            "so /retry finds it"
        )


async def test_edits_and_deletions_reach_the_owner_whoever_receives_them(dsn):
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        edited, deleted = Edited("m1", THREAD, "better"), Deleted("m1", THREAD)
        assert not await one.journal.forward(edited), "the owner carries it out itself"
        assert await other.journal.forward(edited)
        assert await other.journal.forward(deleted)
        await one.until(lambda: len(one.changes) == 2)
        assert one.changes == [edited, deleted]
        await until(lambda: not rows(dsn, "SELECT FROM mail"))


async def test_a_conversation_is_put_aside_whole_and_begins_anew(dsn):
    async with workers(dsn, 1) as (one,):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        context = one.store.context(THREAD)
        assert (await context.load()).messages == []
        talk = [said("a", "m1"), said("b"), said("c", "m2"), said("d")]
        await context.save(talk[:2])
        await context.save(talk)
        assert (await one.store.context(THREAD).load()).messages == talk
        await context.copy_to_archive()
        await context.save([said("in short"), *talk[2:]])
        assert (await one.store.context(THREAD).load()).messages == [said("in short"), *talk[2:]]
        await context.archive()
        found = await one.store.context(THREAD).load()
        assert (found.messages, found.anew) == ([], True)
        assert await one.store.begun(THREAD)
        assert await one.store.recent("slack", 60, 10) == [THREAD]
        kept = rows(dsn, "SELECT generation, count(*) FROM context GROUP BY 1 ORDER BY 1")
        assert kept == [(0, 4), (1, 3)]


async def test_a_worker_that_was_taken_for_dead_starts_over_and_says_nothing_until_then(dsn):
    async with workers(dsn, 1) as (one,):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        await one.worker.ensure_ownership()
        run(dsn, "DELETE FROM worker")
        await one.until(lambda: one.died)
        assert isinstance(one.died, WorkerLost)
        assert one.lost == [THREAD]
        with pytest.raises(Fenced):
            await one.worker.ensure_ownership()


async def test_while_the_server_is_away_nothing_is_acknowledged_and_then_all_goes_on(server, caplog):
    dsn = server.new_database()
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        server.crash()
        with pytest.raises(StoreUnavailable):
            await other.journal.receive(message(2))
        with pytest.raises(StoreUnavailable):
            await one.journal.append(one.routed[0].start(1, "ref"))
        await anyio.to_thread.run_sync(server.start)
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    assert await other.journal.receive(message(2))
                    break
                except StoreUnavailable:
                    await anyio.sleep(0.05)
        await one.until(lambda: len(one.routed) == 2)
        await one.settle(one.routed[0])
        assert (one.died, other.died, one.lost) == (None, None, []), "whoever was blind judges nobody"
    outages = [record for record in caplog.messages if record.startswith("worker.cut_off")]
    assert len(outages) == 2, "an outage is logged once by each"


@pytest.mark.parametrize("which", ["the one with the lock", "all"])
async def test_a_worker_whose_connections_are_cut_takes_its_lock_again_and_goes_on(dsn, caplog, which):
    async with workers(dsn, 2) as (one, other):
        await anyio.sleep(LEASE_S)  # a worker judges others once it has seen a lease
        for number in range(CUTS):
            shared = [connection.info.backend_pid for _, connection in one.store.pool._idle if which == "all"]
            await anyio.to_thread.run_sync(run, dsn, CUT.format(number=one.worker.number, shared=shared))
            with anyio.fail_after(WITHIN_S):
                while not await received(one, message(number)):
                    await anyio.sleep(0.01)
            await one.until(lambda number=number: len(one.routed) == number + 1)
            with anyio.fail_after(WITHIN_S):
                await one.worker.ensure_ownership()
            await one.settle(one.routed[-1])
        assert (one.died, other.died, one.lost, other.taken, other.routed) == (None, None, [], [], [])
    assert [name for name, _ in one.ends] == [f"m{number}" for number in range(CUTS)]
    assert sum(record.startswith("worker.cut_off") for record in caplog.messages) == CUTS


async def received(seat, incoming):
    try:
        return await seat.journal.receive(incoming)
    except StoreUnavailable:
        return False


async def test_mail_that_cannot_be_carried_out_now_waits_and_ends_no_worker(dsn):
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        failures = iter([StoreUnavailable("away"), Fenced()])
        changed = one.changed

        async def fail_first(event):
            if error := next(failures, None):
                raise error
            await changed(event)

        one.changed = fail_first
        assert await other.journal.forward(Deleted("m1", THREAD))
        await one.until(lambda: one.changes)
        assert one.died is None


async def test_mail_that_takes_long_in_one_thread_holds_up_nothing_of_the_others(dsn):
    async with workers(dsn, 2) as (one, other):
        await one.journal.receive(message(1))
        await other.journal.receive(message(2, OTHER))
        await other.until(lambda: other.routed)
        await one.until(lambda: one.routed)
        changed = one.changed

        async def hang_in_one(event):
            await changed(event)
            if event.thread == THREAD:
                await anyio.sleep_forever()

        one.changed = hang_in_one
        assert await other.journal.forward(Deleted("m1", THREAD))
        await one.until(lambda: one.changes)
        await other.kill()
        await other.store.leave()
        await one.until(lambda: one.taken)
        await one.journal.receive(message(3, OTHER))
        await one.until(lambda: one.routed[-1].incoming.id == "m3")
        assert not await one.journal.forward(Deleted("m3", OTHER))
        body = event_adapter().dump_json(Deleted("m3", OTHER)).decode()
        run(dsn, f"INSERT INTO mail (thread, event) VALUES ('{OTHER}', '{body}')")
        await one.until(lambda: len(one.changes) == 2)
        await anyio.sleep(3 * LOOK_S)
        assert [event.thread for event in one.changes] == [THREAD, OTHER], "each is opened once"


async def test_many_threads_that_are_free_are_taken_up_without_a_pause_between(dsn, monkeypatch):
    monkeypatch.setattr("bot.extensions.postgres.worker.LOOK_S", 60)
    count = 2 * CLAIMED_AT_ONCE + 1
    async with workers(dsn, 2) as (one, other):
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(one.journal.receive, message(number, replace(THREAD, root=str(number))))
        await one.until(lambda: len(one.routed) == count)
        await one.kill()
        await one.store.leave()
        await other.until(lambda: len(other.taken) == count)


def in_thread(number):
    return message(number, replace(THREAD, root=f"1.{number}"))


async def test_a_worker_with_more_to_do_than_the_others_leaves_new_threads_to_them(dsn):
    async with workers(dsn, 2) as (one, other):
        await one.until_share()
        for number in range(SPARE + 20):
            await one.journal.receive(in_thread(number))
        await other.until(lambda: len(one.routed) + len(other.routed) == SPARE + 20)
        assert one.taken == other.taken == [], "nobody had begun to serve them"
        assert len(other.routed) >= 3
        follow_up = replace(message(2000), thread=one.routed[0].incoming.thread)
        await other.journal.receive(follow_up)
        await one.until(lambda: one.routed[-1].incoming == follow_up)


@pytest.mark.parametrize("hangs", [True, False], ids=["another hangs", "another takes no more"])
async def test_a_worker_serves_itself_what_no_other_takes(dsn, monkeypatch, hangs):
    async with workers(dsn, 2) as (one, other):

        async def look(*_):
            await anyio.sleep(0)

        monkeypatch.setattr(other.worker, "_look", look)
        other.journal.accepting = hangs
        await one.until_share() if hangs else await anyio.sleep(2 * PATIENCE_S)
        received = 0
        while received < SPARE + 5 or (hangs and one.journal.left_at < 0 and received < SPARE + 100):
            await one.journal.receive(in_thread(received))  # on a slow machine it hears late of the other
            received += 1
        assert (one.journal.left_at > 0) == hangs
        await one.until(lambda: len(one.routed) == received)


def circuit(event):
    return {"event": f"circuit.{event}", "model": "a/b", "reason": "a/b: overloaded"}


async def test_a_worker_that_was_killed_leaves_no_circuit_open_in_the_audit(dsn):
    async with workers(dsn, 2, name="host:{}".format) as seats:
        audits = [Audit(seat.store.append_audit, seat.store.now, worker=seat.name) for seat in seats]
        async with audit_logs(audits[1], str):  # both workers' lines go to one handler in one process
            for audit in audits:
                audit.tell("circuit", circuit("opened"))
                await audit.flush()
            killed, other = seats
            await killed.kill()
            with anyio.fail_after(WITHIN_S):
                while True:
                    await audits[1].flush()
                    found = await anyio.to_thread.run_sync(read_records, dsn)
                    if any(one.kind == "stop" for one in found):
                        break
                    await anyio.sleep(0.05)
        *_, stop = found
        assert (stop.worker, stop.details["worker"]) == (other.name, killed.name)
        assert (
            describe(stop)
            == "worker.gone: host:0 died or was cut off; the others serve its threads, on host:1"
        )


async def test_the_same_record_of_two_workers_at_one_time_is_two_records(dsn):
    at = datetime(2027, 1, 1, tzinfo=UTC)
    async with workers(dsn, 2, name="host:{}".format) as seats:
        for seat in seats:
            audit = Audit(seat.store.append_audit, lambda: at, worker=seat.name)
            audit.tell("start", {"model": "a/b"})
            await audit.flush()
        assert len(await anyio.to_thread.run_sync(read_records, dsn)) == 2


def read_records(dsn):
    with closing(PostgresReader(dsn, Path("/nowhere"))) as reader:
        return [*read_audit(reader, Filter(), Damage())]


async def test_a_look_checks_some_of_the_own_threads_and_the_next_one_the_others(dsn):
    seat, asked = Seat(dsn), []
    seat.serves = lambda thread: bool(asked.append(str(thread))) or True
    seat.journal._taker = seat
    threads = [f"slack:W:C:{number}" for number in range(3 * CHECKED_AT_ONCE)]
    seat.journal.take(((thread, 1) for thread in threads), claimed=False)
    seat.journal._unread.clear()
    for look in range(1, 4):
        assert seat.journal.idle() == []
        assert len(asked) == look * CHECKED_AT_ONCE
    assert sorted(asked) == sorted(threads)


async def test_a_look_at_a_worker_with_many_quiet_threads_brings_no_rows(dsn):
    async with workers(dsn, 1) as (one,):
        me = one.worker.number
        run(
            dsn,
            f"INSERT INTO thread (id, owner, epoch) SELECT 'slack:W:C:q' || n, {me}, 1 FROM generate_series(1, 500) n",
        )
        assert rows(dsn, f"SELECT * FROM look({me}, 3, 0.3, '{{slack}}')") == []
        run(dsn, "INSERT INTO message (key, thread, received) VALUES ('k', 'slack:W:C:q7', NULL)")
        assert rows(dsn, f"SELECT what, name FROM look({me}, 3, 0.3, '{{slack}}')") == [
            ("owed", "slack:W:C:q7")
        ]
        run(dsn, "DELETE FROM message")
