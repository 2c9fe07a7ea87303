"""Damaged files: whatever stands in them, the bot starts, answers, and the damage stays in its thread.

A data folder is made once by the real bot: answered threads, a turn that was cut, a post whose record is missing. Each test
spoils one file of it in many ways and starts the bot on every one, in virtual time and on a disk in memory.
"""

from __future__ import annotations

import errno
import json
import logging
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from tests.explorer.model import ModelDisk
from tests.explorer.scenarios import sound
from tests.explorer.spoil import sealed, spoilt
from tests.sim.loop import virtual_time
from tests.world import Clock, FaultyDisk, Platform, Scripted, calls, converse, message, running, says
from threads import wording
from threads.errors import NewerSchema, StoreUnavailable
from threads.log import entries
from threads.model import ThreadId, message_key
from threads.store.data_folder import thread_folder

DATA = Path("/data")
JOURNAL = DATA / "journal.jsonl"
TALKING, CUT, POSTING, QUIET = (ThreadId("fake", "W", f"C{n}", f"{n}.0") for n in (1, 2, 3, 4))
OLD = {"m1": TALKING, "m2": TALKING, "m3": CUT, "m4": CUT, "m5": POSTING, "m6": QUIET}

taking_pains = pytest.mark.parametrize("pains", [1, pytest.param(3, marks=pytest.mark.slow)])

anyio_backend = virtual_time


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)


def incoming(name: str, thread: ThreadId):
    return message(int(name[1:]), f"{name} \u2028 says \N{SNOWMAN}", thread)


class Lingering(Platform):
    """Stores the post for m5, and never says so."""

    async def post(self, outgoing):
        done = await super().post(outgoing)
        if outgoing.reply_to == "m5":
            self._changed.set()
            await anyio.sleep_forever()
        return done


async def never():
    await anyio.sleep_forever()


@pytest.fixture
async def folder():
    """Return what a killed bot left, and what it had posted."""
    disk, platform = ModelDisk.holding({"/": None}), Lingering()
    model = Scripted(
        calls("list_files"), says("one"), says("two"), says("three"), says("six"), says("five"), never
    )
    async with running(DATA, platform, model, disk=disk) as bot:
        for name in ("m1", "m2", "m3", "m6", "m5", "m4"):
            await bot.orchestrator.receive(incoming(name, OLD[name]))
            if name not in ("m5", "m4"):
                await platform.settled(name)
        with anyio.fail_after(1000):
            while len(platform.posts) < 5 or len(model.requests) < 7:
                await anyio.sleep(0.01)
    return disk.seen(), tuple(platform.posts)


def path_of(thread: ThreadId, name: str) -> str:
    return str(thread_folder(DATA, thread) / name)


async def restart(image, posts, *, find=True, redeliver=False, disk=None):
    """Start the bot on *image*, send two new messages, wait until nothing is pending; return the disk and the platform."""
    disk = disk or ModelDisk.holding(image)
    platform = Platform(find=find)
    platform.posts = list(posts)
    clock = Clock()
    clock.offset = timedelta(seconds=60)
    async with running(DATA, platform, Scripted(), disk=disk, clock=clock) as bot:
        for name in OLD if redeliver else ():
            await bot.orchestrator.receive(incoming(name, OLD[name]))
        await bot.orchestrator.receive(incoming("m101", TALKING))
        await bot.orchestrator.receive(incoming("m102", CUT))
        await platform.settled("m101", "m102")
        with anyio.fail_after(1000):
            while bot.journal.ledger.pending:  # nobody is told of the last record
                await anyio.sleep(0.01)
    return disk, platform


def posts_per_message(platform) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in [*OLD, "m101", "m102"]}
    for post in platform.posts:
        found[post.reply_to].append(post.text)
    return found


def check(what, image, path, disk, platform, *, find=True):
    """Demand all that holds after any damage to *path*."""
    found, seen = posts_per_message(platform), disk.seen()
    assert [text for text in found["m101"] if "ok" in text] == found["m101"], (what, found["m101"])
    assert len(found["m101"]) == len(found["m102"]) == 1, what
    if find:
        assert all(len(texts) <= 1 for texts in found.values()), (what, found)
    for thread in (TALKING, CUT, POSTING, QUIET):
        for name in ("context.jsonl", "log.jsonl"):
            other = path_of(thread, name)
            if other != path and other in image:
                assert seen[other].startswith(image[other]), (what, other)
    assert seen[path_of(QUIET, "context.jsonl")] == image[path_of(QUIET, "context.jsonl")] or path == path_of(
        QUIET, "context.jsonl"
    ), what


def kept_aside(what, data, path, disk):
    broken = [line for line in data.split(b"\n") if line and not sound(line)]
    sidecar = disk.seen().get(f"{path}.broken", b"") or b""
    for line in broken:
        assert line in sidecar, (what, line[:80])


def kinds_left(journal: bytes, data: bytes) -> dict[str, list[str]]:
    """Return which kinds of record each message still has in the spoilt *data* of a journal, in order."""
    whole = set(journal.splitlines())
    left: dict[str, list[str]] = {name: [] for name in OLD}
    for line in data.split(b"\n")[:-1]:
        if line in whole:
            record = json.loads(line)
            left[record["message_id"]].append(record["kind"])
    return left


async def test_the_folder_holds_what_the_tests_need(folder):
    image, posts = folder
    records = [json.loads(line) for line in image[str(JOURNAL)].splitlines()]
    kinds = {name: [r["kind"] for r in records if r["message_id"] == name] for name in OLD}
    assert kinds["m1"] == kinds["m6"] == ["received", "started", "intent", "posted", "settled"]
    assert (kinds["m4"], kinds["m5"]) == (["received", "started"], ["received", "started", "intent"])
    assert [post.reply_to for post in posts] == ["m1", "m2", "m3", "m6", "m5"]
    disk, platform = await restart(image, posts)
    check("nothing", image, "", disk, platform)
    assert {name: len(texts) for name, texts in posts_per_message(platform).items()} == dict.fromkeys(
        [*OLD, "m101", "m102"], 1
    )


@taking_pains
async def test_a_damaged_journal_answers_nobody_twice(folder, pains):
    image, posts = folder
    for what, data in spoilt(image[str(JOURNAL)], random.Random(1), step=69 // pains, flips=67 * pains):
        disk, platform = await restart({**image, str(JOURNAL): data}, posts)
        check(what, image, str(JOURNAL), disk, platform)
        kept_aside(what, data, JOURNAL, disk)


@taking_pains
async def test_a_damaged_journal_answers_nobody_twice_even_if_all_is_delivered_again(folder, pains):
    image, posts = folder
    for what, data in spoilt(image[str(JOURNAL)], random.Random(2), step=159 // pains, flips=33 * pains):
        disk, platform = await restart({**image, str(JOURNAL): data}, posts, redeliver=True)
        check(what, image, str(JOURNAL), disk, platform)
        silent = {name for name, texts in posts_per_message(platform).items() if not texts}
        assert not silent, what


@taking_pains
async def test_where_the_platform_cannot_be_asked_only_lost_records_are_answered_twice(folder, pains):
    image, posts = folder
    for what, data in spoilt(image[str(JOURNAL)], random.Random(3), step=159 // pains, flips=33 * pains):
        left = kinds_left(image[str(JOURNAL)], data)
        disk, platform = await restart({**image, str(JOURNAL): data}, posts, find=False)
        check(what, image, str(JOURNAL), disk, platform, find=False)
        for name, texts in posts_per_message(platform).items():
            if len(texts) > 1:
                assert len(texts) == 2, (what, name)
                assert not set(left[name]) & {"posted", "settled"}, (what, name)
                assert "intent" not in left[name] or wording.MAYBE_REPEAT in texts[1], (what, name)


@taking_pains
async def test_a_damaged_conversation_costs_its_own_thread_some_lines_at_most(folder, pains):
    image, posts = folder
    path = path_of(TALKING, "context.jsonl")
    for what, data in spoilt(image[path], random.Random(4), step=33 // pains, flips=60 * pains):
        disk, platform = await restart({**image, path: data}, posts)
        check(what, image, path, disk, platform)
        kept_aside(what, data, path, disk)
        assert all(map(sound, disk.seen()[path].splitlines())), what
        said = posts_per_message(platform)["m101"][0]
        damaged = any(line and not sound(line) for line in data.split(b"\n"))
        if damaged:
            assert said.startswith((wording.HISTORY_DAMAGED, wording.HISTORY_LOST)), (what, said)


@taking_pains
async def test_a_conversation_damaged_in_a_cut_turn_is_finished_all_the_same(folder, pains):
    image, posts = folder
    path = path_of(CUT, "context.jsonl")
    for what, data in spoilt(image[path], random.Random(5), step=45 // pains, flips=20 * pains):
        disk, platform = await restart({**image, path: data}, posts)
        check(what, image, path, disk, platform)
        assert len(posts_per_message(platform)["m4"]) == 1, what


@taking_pains
async def test_a_damaged_log_keeps_its_bytes_and_takes_new_lines(folder, pains):
    image, posts = folder
    path = path_of(TALKING, "log.jsonl")
    for what, data in spoilt(image[path], random.Random(6), step=39 // pains, flips=60 * pains):
        disk, platform = await restart({**image, path: data}, posts)
        check(what, image, path, disk, platform)
        seen = disk.seen()
        together = seen[path] + (seen.get(f"{path}.broken") or b"")
        for line in data.split(b"\n"):
            assert line in together, what
        if data.endswith(b"\n"):
            assert seen[path].startswith(data), what
        told = [(e.kind, e.message_id) for e in entries(disk, Path(path))]
        assert told[-3:] == [("message", "m101"), ("reply", "m101"), ("settled", "m101")], what


async def test_a_journal_of_a_newer_version_stops_the_start_and_is_left_alone(folder):
    image, posts = folder
    line = image[str(JOURNAL)].split(b"\n")[0]
    for newer in (
        newer_version(line),
        sealed(b'{"v":99,"kind":"reaction"'),
        sealed(b'{"kind":"received","v":2'),
    ):
        for at in (0, len(image[str(JOURNAL)])):
            data = image[str(JOURNAL)][:at] + newer + b"\n" + image[str(JOURNAL)][at:]
            disk = ModelDisk.holding({**image, str(JOURNAL): b"junk\n" + data})
            with pytest.raises(BaseExceptionGroup) as caught:
                await restart({}, posts, disk=disk)
            assert caught.group_contains(NewerSchema, match="newer Threadfast")
            assert disk.seen() == {**image, str(JOURNAL): b"junk\n" + data}


def newer_version(line: bytes) -> bytes:
    return sealed(line.rpartition(b',"crc":')[0].replace(b'"v":1', b'"v":99'))


async def test_a_conversation_of_a_newer_version_is_left_alone_and_said(folder):
    image, posts = folder
    path = path_of(TALKING, "context.jsonl")
    data = newer_version(image[path].split(b"\n")[0]) + b"\n" + image[path]
    disk = ModelDisk.holding({**image, path: b"junk\n" + data})
    _, platform = await restart({}, posts, disk=disk)
    found = posts_per_message(platform)
    assert found["m101"][0].startswith(wording.FRIENDLY["schema_mismatch"])
    assert "ok" in found["m102"][0]
    assert disk.seen()[path] == b"junk\n" + data
    assert f"{path}.broken" not in disk.seen()


async def test_a_log_of_a_newer_version_does_not_stop_anything(folder):
    image, posts = folder
    for thread in (TALKING, POSTING):
        path = path_of(thread, "log.jsonl")
        data = (
            newer_version(image[path_of(TALKING, "log.jsonl")].split(b"\n")[0])
            + b"\n"
            + (image.get(path) or b"")
        )
        disk, platform = await restart({**image, path: data}, posts)
        check("newer log", image, path, disk, platform)
        assert disk.seen()[path].startswith(data)


async def test_on_the_real_disk_too(tmp_path, platform):
    await converse(tmp_path, platform, Scripted(), message(1))
    journal = tmp_path / "journal.jsonl"
    whole = journal.read_bytes()
    for what, data in [
        ("torn", whole[:-20]),
        ("flipped", whole.replace(b"hello", b"hallo")),
        ("NULs", bytes(900)),
    ]:
        journal.write_bytes(data)
        journal.with_name("journal.jsonl.broken").unlink(missing_ok=True)
        again = Platform()
        again.posts = list(platform.posts)
        async with running(tmp_path, again, Scripted()) as bot:
            await again.exchange(bot, message(2))
            await again.until(lambda bot=bot: not bot.journal.ledger.pending)
        assert Counter(post.key for post in again.posts) == {
            message_key(message(n).thread, f"m{n}"): 1 for n in (1, 2)
        }, what
        assert journal.with_name("journal.jsonl.broken").read_bytes(), what
        assert journal.with_name("journal.jsonl.broken").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
async def test_a_refusing_disk_takes_no_message_and_loses_none(tmp_path, code):
    disk, platform = FaultyDisk(), Platform()
    async with running(tmp_path, platform, Scripted(), disk=disk) as bot:
        await platform.exchange(bot, message(1))
        refusal = OSError(code, "refused")
        disk.refuse = dict.fromkeys(("create", "append", "write"), refusal)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await bot.orchestrator.receive(message(2))
        disk.refuse = {}
        await platform.exchange(bot, message(2))
    assert Counter(post.reply_to for post in platform.posts) == {"m1": 1, "m2": 1}


async def test_a_disk_that_fills_up_during_a_turn_delays_the_answer_and_loses_nothing(tmp_path):
    disk, platform = FaultyDisk(), Platform()

    async def fills_up():
        disk.refuse = dict.fromkeys(("create", "append", "write"), OSError(errno.ENOSPC, "full"))
        return says("late")

    async with running(tmp_path, platform, Scripted(fills_up), disk=disk) as bot:
        await bot.orchestrator.receive(message(1))
        await anyio.sleep(600)
        assert platform.texts == []
        disk.refuse = {}
        await platform.settled("m1")
    assert len(platform.texts) == 1
    assert platform.texts[0].endswith("late")
