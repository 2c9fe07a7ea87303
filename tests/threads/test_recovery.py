"""What a start owes, by how old a message is, whether its turn had begun, and whether a person is still asked."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from tests.patience import until
from tests.world import T1, T2, Clock, FaultyDisk, Platform, Scripted, inline, message, running, says
from threads.actor.recovery import plan
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.journal.records import RECENT, Intent, Ledger, Received, record_adapter
from threads.model import ThreadId, TurnSettled
from threads.store.checksummed_lines import encode
from threads.store.disk import PosixDisk

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def owing(*, received_s: float, started_s: float | None = None, attempt: int = 1) -> Ledger:
    incoming, ledger = message(1), Ledger()
    received = Received.of(incoming)
    received.at, received.seq = ago(received_s), 1
    ledger.apply(received)
    if started_s is not None:
        begun = next(iter(ledger.pending.values())).start(attempt, "ref")
        begun.at, begun.seq = ago(started_s), 2
        ledger.apply(begun)
    return ledger


@pytest.mark.parametrize(
    ("received_s", "started_s", "asked", "part"),
    [
        (500, None, False, "serve"),
        (700, None, False, "stale"),
        (3000, 500, False, "serve"),  # it waited for long, and the bot was up
        (1400, 1400, False, "serve"),  # a turn may have run for that long
        (1600, 1600, False, "cut"),
        (3000, 3000, True, "serve"),  # a person is still asked
    ],
)
def test_what_a_message_is_owed_depends_on_how_long_nobody_was_at_work_on_it(
    received_s, started_s, asked, part
):
    ledger = owing(received_s=received_s, started_s=started_s)
    found = plan(
        ledger.pending.values(),
        NOW,
        max_age_s=600,
        resume=True,
        turn_s=lambda _: 900,
        continues=lambda _: asked,
    )
    parts = {"serve": len(found.serve), "stale": len(found.stale), "cut": len(found.cut)}
    assert parts == {"serve": 0, "stale": 0, "cut": 0, part: 1}


@pytest.mark.parametrize(("asked", "attempts"), [(True, 1), (False, 3)])
def test_restarts_while_a_person_is_asked_do_not_make_a_dead_letter(asked, attempts):
    ledger = owing(received_s=60, started_s=60, attempt=3)
    [pending] = plan(
        ledger.pending.values(),
        NOW,
        max_age_s=600,
        resume=True,
        turn_s=lambda _: 900,
        continues=lambda _: asked,
    ).serve
    assert pending.attempts == attempts


def test_without_resuming_a_turn_that_had_begun_gets_the_note_that_says_so():
    found = plan(
        owing(received_s=5, started_s=5).pending.values(),
        NOW,
        max_age_s=600,
        resume=False,
        turn_s=lambda _: 900,
    )
    assert len(found.cut) == 1


def test_what_was_said_behind_a_turn_that_goes_on_goes_on_too():
    ledger = owing(received_s=1400, started_s=1400)
    later = Received.of(message(2))
    later.at, later.seq = ago(1300), 3
    ledger.apply(later)
    found = plan(ledger.pending.values(), NOW, max_age_s=600, resume=True, turn_s=lambda _: 900)
    assert [pending.received.message_id for pending in found.serve] == ["m1", "m2"]
    assert not found.stale


def test_a_turn_that_had_begun_goes_on_before_an_earlier_message_that_was_to_be_refused():
    ledger = owing(received_s=60)
    for n in (2, 3):
        later = Received.of(message(n))
        later.at, later.seq = ago(50), n
        ledger.apply(later)
    begun = next(pending for pending in ledger.pending.values() if pending.received.seq == 2).start(1, "ref")
    begun.at, begun.seq = ago(40), 4
    ledger.apply(begun)
    found = plan(ledger.pending.values(), NOW, max_age_s=600, resume=True)
    assert [pending.received.message_id for pending in found.serve] == ["m2", "m1", "m3"]


async def test_what_is_settled_and_not_in_the_log_is_added_at_the_next_start_however_much_it_is(tmp_path):
    """More messages than a start shows again are settled by one post, and the process dies before their lines."""
    clock, platform = Clock(), Platform()
    folder = tmp_path / "threads" / "fake"
    async with journal_of(tmp_path, clock) as journal:
        for n in range(RECENT + 50):
            await journal.receive(message(n))
        pending = list(journal.ledger.pending.values())
        await journal.append(*[one.settled("failed", by="m0") for one in pending])
    for last in (RECENT + 50, RECENT + 51):  # the second start has nothing to add
        await until_logged(tmp_path, platform, last, clock=clock)
        ends = settled_in(folder)
        assert sorted(ends) == sorted(f"m{n}" for n in range(last + 1))


async def test_a_death_while_the_log_is_completed_leaves_the_rest_for_the_start_after_it(tmp_path):
    clock, platform, disk = Clock(), Platform(), FaultyDisk()
    async with journal_of(tmp_path, clock) as journal:
        await journal.receive(message())
        [pending] = journal.ledger.pending.values()
        await journal.append(pending.settled("answered"))
    disk.refuse["append log.jsonl"] = OSError("no")  # its lines wait in memory, and die there
    async with running(tmp_path, platform, Scripted(), clock=clock, disk=disk) as bot:
        for n in range(2, RECENT + 5):
            await bot.orchestrator.receive(message(n))
            await platform.settled(f"m{n}")
    await until_logged(tmp_path, platform, RECENT + 5, clock=clock)
    assert sorted(settled_in(tmp_path / "threads" / "fake")) == sorted(f"m{n}" for n in range(1, RECENT + 6))


async def test_what_an_interrupted_turn_may_have_left_is_known_to_later_starts_however_much_ended_since(
    tmp_path,
):
    clock, platform = Clock(), Platform()
    async with journal_of(tmp_path, clock) as journal:
        for n in range(RECENT + 5):
            await journal.receive(message(n))
        first, *others = journal.ledger.pending.values()
        first.interrupted = True
        await journal.append(*[one.settled("answered") for one in (first, *others)])
    await until_logged(tmp_path, platform, RECENT + 5, clock=clock)
    again = [(id_, event) for id_, event in platform.events if isinstance(event, TurnSettled) and event.again]
    assert [id_ for id_, event in again if event.interrupted] == ["m0"]
    assert len(again) == RECENT + 1


async def until_logged(data, platform, last, **options):
    """Start a bot, and say one more message: once its end is in the log, what a start adds is there too."""
    async with running(data, platform, Scripted(), **options) as bot:
        await bot.orchestrator.receive(message(last))
        await until(lambda: f"m{last}" in settled_in(data / "threads" / "fake"))


@asynccontextmanager
async def journal_of(data, clock):
    """A process that has only a journal."""
    journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=inline, now=clock)
    journal.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        yield journal
        tasks.cancel_scope.cancel()


def settled_in(folder):
    lines = [
        json.loads(line) for path in folder.glob("*/log.jsonl") for line in path.read_bytes().splitlines()
    ]
    return [line["message_id"] for line in lines if line["kind"] == "settled"]


# which look-ups are made


class Looking(Platform):
    def __init__(self):
        super().__init__()
        self.looks = []

    async def find(self, thread, key):
        self.looks.append(key.rpartition(":")[2])
        return await super().find(thread, key)


async def test_only_what_may_be_posted_is_looked_for(tmp_path):
    clock, platform = Clock(), Looking()
    async with journal_of(tmp_path, clock) as journal:
        for n in range(1, 5):
            await journal.receive(message(n, thread=ThreadId("fake", "W", "C", f"{n}.0")))
        _, begun, ending, posted = journal.ledger.pending.values()
        await journal.append(*[one.start(1, "ref") for one in (begun, ending, posted)])
        for one in (ending, posted):
            await journal.append(Intent(**ids_of(one), text="the answer", post="reply", outcome="answered"))
        posted.platform_id = "p0"
        await journal.append(posted.posted())
    async with running(tmp_path, platform, Scripted(), clock=clock):
        await platform.settled("m1", "m2", "m3", "m4")
    assert sorted(platform.looks) == ["m2", "m3"], "something of what had begun may be shown"
    assert sorted(post.reply_to for post in platform.posts) == ["m1", "m2", "m3"]


async def test_an_answer_in_the_conversation_without_an_intent_is_looked_for(tmp_path):
    clock, platform = Clock(), Looking()
    async with running(tmp_path, platform, Scripted(says("hi")), clock=clock) as bot:
        await bot.orchestrator.receive(message())
        await platform.settled("m1")
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(
        b"\n".join(line for line in lines if b'"received"' in line or b'"started"' in line) + b"\n"
    )
    platform.outcomes.clear()
    async with running(tmp_path, platform, Scripted(), clock=clock):
        await platform.settled("m1")
    assert platform.looks == ["m1"] and platform.texts == ["hi"]


@pytest.mark.parametrize("again", [1, 2])
async def test_after_damage_all_that_is_owed_is_looked_for_also_by_later_starts(tmp_path, again):
    clock, platform = Clock(), Looking()
    async with journal_of(tmp_path, clock) as journal:
        await journal.receive(message())
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b"what was an intent, once\n" + encode(record_adapter(), Received.of(message(2))))
    for _ in range(again - 1):
        async with journal_of(tmp_path, clock):
            pass
    async with running(tmp_path, platform, Scripted(), clock=clock):
        await platform.settled("m1")
    assert "m1" in platform.looks


def ids_of(pending):
    return {"thread_id": pending.received.thread_id, "message_id": pending.received.message_id}


async def test_what_is_forgotten_while_the_journal_is_written_anew_is_gone_too(tmp_path):
    disk, platform, later = PosixDisk(), Platform(), []

    def rename(source, target):
        source.rename(target)
        if later and target.name == "journal.jsonl":
            later.pop().send(None)  # it begins, as when its turn comes in the event loop

    disk.rename = rename
    async with running(tmp_path, platform, Scripted(), disk=disk) as bot:
        await platform.exchange(bot, message(1, "a secret"))
        later.append(bot.journal.forget(T1))
        await bot.journal.forget(T2)
        await bot.journal.append()
    assert b"a secret" not in (tmp_path / "journal.jsonl").read_bytes()
