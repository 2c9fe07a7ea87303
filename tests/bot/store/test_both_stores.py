"""What every store promises: the files of one machine, and PostgreSQL for many."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio
import anyio.to_thread
import pytest

from bot.extensions.postgres.reading import PostgresReader
from bot.extensions.postgres.store import PostgresStore
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage, records
from tests.bot.extensions.postgres.workers import OTHER, THREAD, intent, message, said
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.file_store import FileStore
from threads.journal.ports import NullTaker
from threads.model import Edited, StopRequest, message_key
from threads.store.context import line_adapter
from threads.store.disk import PosixDisk

now = partial(datetime.now, UTC)


class Core(NullTaker):
    """A core that notes what a store tells it. What the last process left comes in ``left``."""

    def __init__(self):
        self.routed, self.left, self.ends, self._news = [], [], [], anyio.Event()

    def route(self, pending):
        self._note(self.routed, pending)

    def take_up(self, pending):
        for one in pending:
            self._note(self.left, one)

    def settled(self, pending, end):
        self._note(self.ends, (pending.received.message_id, end.outcome))

    def serves(self, _):
        return True

    def _note(self, notes, one):
        notes.append(one)
        news, self._news = self._news, anyio.Event()
        news.set()

    async def until(self, predicate):
        with anyio.fail_after(WITHIN_S):
            while not predicate():
                await self._news.wait()


@pytest.fixture(params=["files", "postgres"])
def process(request, tmp_path):
    """Return how a process opens the store, as a context: it yields the store, and the core that it tells."""
    offload = anyio.to_thread.run_sync
    if request.param == "files":
        make = partial(FileStore, tmp_path, PosixDisk(), offload=offload, journal_offload=offload, now=now)
        read = partial(FileReader, tmp_path)
    else:
        dsn = request.getfixturevalue("dsn")
        make = partial(PostgresStore, dsn, tmp_path, name="w", version="1", now=now)
        read = partial(PostgresReader, dsn, tmp_path)

    @asynccontextmanager
    async def run():
        store, core = make(), Core()
        await store.open(["slack"])
        core.left += store.journal.ledger.pending.values()
        async with background_tasks() as tasks:
            store.start(tasks, core)
            yield store, core
        await store.leave()

    run.read = read
    return run


async def receive(store, core, number, **changes):
    """Receive a message and return it as the store hands it over."""
    incoming = replace(message(number), **changes)
    assert await store.journal.receive(incoming)
    await core.until(lambda: any(one.incoming.id == incoming.id for one in core.routed))
    return next(one for one in core.routed if one.incoming.id == incoming.id)


async def test_a_message_is_handed_over_as_it_was_received(process):
    odd = "  \u2028 \x00 \U0001f600 \ud7ff\ufffe é\n"
    async with process() as (store, core):
        given = {
            "text": odd,
            "alias": "c-1",
            "reply_address": "https://example.org/x",
            "quoted": f"> {odd}",
            "replaces": "m0",
        }
        pending = await receive(store, core, 1, **given)
        assert pending.incoming == replace(message(1), **given)


async def test_a_copy_under_either_id_is_not_new(process):
    async with process() as (store, core):
        await receive(store, core, 1, alias="c-1")
        for copy in (message(1), replace(message(2), id="c-1"), replace(message(3), alias="c-1")):
            assert not await store.journal.receive(copy)
            assert await store.journal.knows(copy.keys[-1])
        assert not await store.journal.knows(message_key(THREAD, "m9"))
        assert len(core.routed) == 1


async def test_how_a_message_ended_is_known_under_either_id_after_a_restart_too(process):
    key, alias = message_key(THREAD, "m1"), message_key(THREAD, "c-1")
    async with process() as (store, core):
        pending = await receive(store, core, 1, alias="c-1")
        assert await store.journal.outcome(key) is None
        await store.journal.append(pending.settled("refused"))
        assert [await store.journal.outcome(each) for each in (key, alias)] == ["refused", "refused"]
    async with process() as (store, _):
        assert [await store.journal.outcome(each) for each in (key, alias)] == ["refused", "refused"]
        assert await store.journal.outcome(message_key(THREAD, "m9")) is None


async def test_messages_of_a_thread_come_in_the_order_of_receipt(process):
    async with process() as (store, core):
        for number in range(30):
            await store.journal.receive(message(number, OTHER if number % 3 else THREAD))
        await core.until(lambda: len(core.routed) == 30)
        for thread in (THREAD, OTHER):
            own = [one.received.seq for one in core.routed if one.incoming.thread == thread]
            assert own == sorted(own)


async def test_what_was_not_settled_is_left_to_the_next_process_with_its_records(process):
    async with process() as (store, core):
        done, begun, _ = [await receive(store, core, number) for number in (1, 2, 3)]
        await store.journal.append(done.start(1, "r1"), intent(done))
        done.platform_id = "p1"
        await store.journal.append(done.posted(), done.settled("answered"))
        await store.journal.append(begun.start(1, "r2"), intent(begun))
        await core.until(lambda: core.ends == [("m1", "answered")])
    async with process() as (_, core):
        await core.until(lambda: len(core.left) == 2)
        first, second = core.left
        assert (first.incoming.id, first.attempts, first.intent.text) == ("m2", 1, "yes")
        assert (second.incoming.id, second.attempts, second.intent) == ("m3", 0, None)


async def test_an_edit_counts_until_the_turn_begins(process):
    async with process() as (store, core):
        pending = await receive(store, core, 1)
        assert not await store.journal.forward(Edited("m1", THREAD, "it is this process's own"))
        assert await store.journal.amend(Edited("m1", THREAD, "new", "> theirs"))
        await store.journal.append(pending.start(1, "r1"))
        assert not await store.journal.amend(Edited("m1", THREAD, "too late"))
    async with process() as (_, core):
        await core.until(lambda: core.left)
        assert (core.left[0].incoming.text, core.left[0].incoming.quoted) == ("new", "> theirs")


async def test_a_conversation_is_loaded_as_it_was_saved(process):
    async with process() as (store, core):
        await receive(store, core, 1)
        context = store.context(THREAD)
        assert (await context.load()).messages == []
        talk = [said("a \u2028 \x00", "m1"), said("b"), said("c", "m2")]
        for messages in (talk[:1], talk[:2], [talk[0], talk[2]], talk):
            await context.save(messages)
            assert (await store.context(THREAD).load()).messages == messages


async def test_a_thread_is_begun_by_a_message_that_waits_and_by_a_conversation(process):
    async with process() as (store, core):
        first = await receive(store, core, 1)
        assert await store.begun(THREAD)
        assert not await store.begun(OTHER)
        await store.journal.append(first.settled("refused"))
        await core.until(lambda: core.ends)
        assert not await store.begun(THREAD), "nobody was answered there"
        context = store.context(THREAD)
        await context.load()
        await receive(store, core, 2)
        await context.save([said("a", "m2")])
        assert await store.begun(THREAD)


async def test_only_one_message_is_the_first_of_its_day(process):
    async with process() as (store, _):
        assert await store.first_today("U1", "m1")
        assert not await store.first_today("U1", "m2")
        assert await store.first_today("U1", "m1"), "it came again"
        assert await store.first_today("U2", "m2")


async def test_a_conversation_that_is_put_aside_begins_anew(process):
    async with process() as (store, core):
        await receive(store, core, 1)
        context = store.context(THREAD)
        await context.load()
        await context.save([said("a", "m1")])
        await context.copy_to_archive()
        assert (await store.context(THREAD).load()).messages == [said("a", "m1")]
        await context.archive()
        loaded = await store.context(THREAD).load()
        assert (loaded.messages, loaded.anew) == ([], True)


async def test_the_end_of_a_conversation_is_archived_alone(process):
    talk = [said("a", "m1"), said("b"), said("c", "m2"), said("d")]
    async with process() as (store, core):
        await receive(store, core, 1)
        context = store.context(THREAD)
        await context.load()
        await context.save(talk)
        await context.copy_to_archive(2)
        assert (await store.context(THREAD).load()).messages == talk
        await context.save([*talk[:2], said("e", "m3")])
    with closing(process.read()) as reader:
        [thread] = reader.find(str(THREAD))
        told = [line.message for line in records(reader.conversation(thread), line_adapter(), Damage())]
    assert told == [*talk[2:], *talk[:2], said("e", "m3")]


async def test_threads_that_changed_lately_are_found_newest_first(process):
    async with process() as (store, core):
        assert await store.recent("slack", 60, 10) == []
        for number, thread in enumerate((THREAD, OTHER)):
            await receive(store, core, number, thread=thread)
            await store.context(thread).save([said("a", f"m{number}")])
            await anyio.sleep(0.02)  # file systems tell times apart by some milliseconds
        assert await store.recent("slack", 60, 10) == [OTHER, THREAD]
        assert await store.recent("slack", 60, 1) == [OTHER]
        assert await store.recent("discord", 60, 10) == []


async def test_how_far_was_read_is_left_to_the_next_process(process):
    async with process() as (store, _):
        marks = store.marks("slack")
        assert await anyio.to_thread.run_sync(marks.read) == b""
        await anyio.to_thread.run_sync(marks.write, b"far")
    async with process() as (store, _):
        marks = store.marks("slack")
        own, left = (
            await anyio.to_thread.run_sync(marks.read),
            await anyio.to_thread.run_sync(marks.take_over),
        )
        assert [own, *left] in ([b"far"], [b"", b"far"])


async def test_files_of_a_thread_stay(process):
    async with process() as (store, core):
        await receive(store, core, 1)
        root = await store.workspace(THREAD)
        root.mkdir(parents=True, exist_ok=True)
        (root / "plan").write_text("plan")
        await store.keep_workspace(THREAD)
    async with process() as (store, core):
        await core.until(lambda: core.left)
        assert (await store.workspace(THREAD) / "plan").read_text() == "plan"


async def test_one_process_alone_holds_every_role_and_owns_what_it_serves(process):
    async with process() as (store, core):
        pending, held = await receive(store, core, 1), anyio.Event()

        async def work():
            held.set()

        async with background_tasks() as tasks:
            tasks.start_soon(store.hold, "schedules", work, lambda: None)
            with anyio.fail_after(WITHIN_S):
                await held.wait()
        with anyio.fail_after(WITHIN_S):
            await store.ensure_ownership()
        assert store.workers == 1
        assert await store.take_token("t", 1000, 1000) == 0
        assert await store.try_token("t", 1000, 1000, 10)
        request = StopRequest("m2", replace(THREAD, root=""), pending.received.seq + 1)
        assert await store.journal.stop_elsewhere(request) == (0, 0)
