"""A backup is taken while the bot works, and what is restored from it keeps the promises."""

import gzip
import json
import os
import random
import tarfile
import zlib
from collections import Counter
from contextlib import suppress

import anyio
import pytest

from bot.budget.ledger import Ledger
from bot.extensions.backup import restore, snapshot
from bot.extensions.backup.archive import BackupDamaged, read, verify
from bot.extensions.backup.snapshot import BackupFailed, Report, back_up, copy_steps
from bot.store import unfinished_restore
from bot.store.layout import Step
from tests.bot.extensions.backup.archives import now, put_back, tree
from tests.patience import WITHIN_S, until
from tests.serving import Chat, serving
from threads.errors import NewerSchema
from threads.journal.records import Ledger as Promises
from threads.journal.records import record_adapter
from threads.model import ThreadId
from threads.store.checksummed_lines import scan
from threads.store.data_folder import FolderTaken, lock_data_folder
from threads.store.disk import PosixDisk
from transports.base.transport import Capabilities

PLACES = [ThreadId("fake", "W", "C", f"{n}.0") for n in range(4)]
TEXTS = ("hello", "write notes.txt something to keep", "remember tea at four", "read notes.txt", "/status")
SETTINGS = {"tools": {"enabled": ["files", "memory"]}, "limits": {"messages_per_minute_per_user": None}}


@pytest.fixture
def data(tmp_path):
    """A small folder as a bot leaves it."""
    folder = tmp_path / "data"
    place = folder / "threads" / "fake" / "W~C~1.0"
    (place / "workspace" / "empty").mkdir(parents=True)
    (place / "workspace" / "a.txt").write_text("hello")
    (place / "context.jsonl").write_bytes(b"one\ntwo\n")
    (folder / "journal.jsonl").write_bytes(b"first\nsecond\n")
    (folder / "models.json").write_text("{}")
    return folder


async def talk(seat, sent, upto):
    """Say something in every thread again and again, and wait for the answers."""

    async def one(place, chance):
        while len(sent) < upto:
            incoming = await seat.send(chance.choice(TEXTS), thread=place)
            sent.append(incoming)
            await seat.settled(incoming.id)

    async with anyio.create_task_group() as tasks:
        for n, place in enumerate(PLACES):
            tasks.start_soon(one, place, random.Random(n))


async def catch_up(seat, sent, data):
    """Hand over all that was ever said, as a platform does, and wait until everything pending has its outcome."""
    for incoming in sent:
        await seat.sink(incoming)

    await until(lambda: not promises_of(data).pending)


def promises_of(data):
    promises = Promises()
    for line in scan((data / "journal.jsonl").read_bytes()).good:
        promises.apply(record_adapter().validate_json(line))
    return promises


def answered_in(data):
    """Return the messages whose turns the journal shows as answered."""
    return {pending.received.message_id for _, pending in promises_of(data).recent if pending.started}


def remembered_in(data):
    """Return the messages whose answers the conversations hold."""
    messages = [
        json.loads(line)["message"]
        for path in data.glob("threads/*/*/context.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    return {
        message["source"] for message in messages if message["role"] == "assistant" and message.get("source")
    }


def posts_of(seat):
    return Counter(post.key for post in seat.posts)


async def restored_and_caught_up(file, data, seat, sent):
    """Restore a backup, start over it, and return the platform as people see it then."""
    await anyio.to_thread.run_sync(put_back, file, data)
    assert answered_in(data) <= remembered_in(data)
    again = Chat()
    again.capabilities = Capabilities(find=True, lands_late=False)
    again.posts, again.sent = seat.posts, seat.sent
    async with serving(data, SETTINGS, model="offline/demo", chat=again):
        with anyio.fail_after(WITHIN_S):
            await catch_up(again, sent, data)
            answer = await again.say("hello", thread=PLACES[0])
    assert "offline/demo" in answer.text
    return again


@pytest.mark.parametrize("slow_at", [Step.MARKS, Step.PROMISES, Step.CONVERSATIONS, Step.STATE, Step.MONEY])
async def test_whole_conversations_between_two_steps_of_a_backup_are_neither_lost_nor_answered_twice(
    tmp_path, slow_at
):
    data, sent = tmp_path / "data", []
    async with serving(data, SETTINGS, model="offline/demo") as seat:
        await talk(seat, sent, 12)
        for step in copy_steps(data, Report(tmp_path / "b.tar.gz", now())):
            if step is slow_at:
                await talk(seat, sent, len(sent) + 16)
        await talk(seat, sent, len(sent) + 8)
    after = await restored_and_caught_up(tmp_path / "b.tar.gz", tmp_path / "again", seat, sent)
    assert {key: count for key, count in posts_of(after).items() if count != 1} == {}
    assert posts_of(after).keys() >= {incoming.key for incoming in sent}


async def test_backups_at_random_moments_under_load_each_bring_back_a_whole_bot(tmp_path):
    data, sent, files = tmp_path / "data", [], []
    chance = random.Random(7)
    async with serving(data, SETTINGS, model="offline/demo") as seat, anyio.create_task_group() as tasks:
        await talk(seat, sent, 4)
        tasks.start_soon(talk, seat, sent, 80)
        for n in range(4):
            await seat.until(lambda more=len(sent) + chance.randrange(2, 12): len(sent) >= more)
            files.append(tmp_path / f"{n}.tar.gz")
            await anyio.to_thread.run_sync(back_up, data, files[-1], now)
    before = list(seat.posts)
    for file in files:
        verify(file)
        seat.posts = list(before)
        after = await restored_and_caught_up(file, tmp_path / file.stem, seat, sent)
        assert {key: count for key, count in posts_of(after).items() if count != 1} == {}


async def test_what_a_conversation_cost_is_in_every_copy_that_knows_the_conversation(tmp_path):
    data, sent = tmp_path / "data", []
    async with serving(data, SETTINGS, model="offline/demo") as seat:
        await talk(seat, sent, 8)
        for step in copy_steps(data, Report(tmp_path / "b.tar.gz", now())):
            if step is Step.PROMISES:
                await talk(seat, sent, 24)
    await anyio.to_thread.run_sync(put_back, tmp_path / "b.tar.gz", tmp_path / "again")
    ledger = Ledger(PosixDisk(), tmp_path / "again" / "usage", offload=anyio.to_thread.run_sync, now=now)
    ledger.open()
    counted = {name for scope, name in ledger.budgets.totals if scope == "turn"}
    known = remembered_in(tmp_path / "again")
    assert known
    assert known <= {name.rpartition(":")[2] for name in counted}


async def test_a_schedule_that_changes_while_the_journal_is_read_is_read_again(data, tmp_path, monkeypatch):
    changes = iter([b"new 1", b"new 2"])
    honest = snapshot.read_content

    def content(path):
        found = honest(path)
        if path.name == "journal.jsonl" and (change := next(changes, None)):
            (data / "schedules.json").write_bytes(change)
        return found

    monkeypatch.setattr(snapshot, "read_content", content)
    (data / "schedules.json").write_bytes(b"old")
    back_up(data, tmp_path / "b.tar.gz", now)
    put_back(tmp_path / "b.tar.gz", tmp_path / "again")
    assert (tmp_path / "again" / "schedules.json").read_bytes() == b"new 2"


async def test_a_folder_comes_back_as_it_was_empty_folders_times_and_all(data, tmp_path):
    script = data / "threads/fake/W~C~1.0/workspace/run.sh"
    script.write_text("#!/bin/sh")
    script.chmod(0o755)
    context = data / "threads/fake/W~C~1.0/context.jsonl"
    os.utime(context, (1_000_000_000, 1_000_000_000))
    report = back_up(data, tmp_path / "b.tar.gz", now)
    again = tmp_path / "deep" / "again"
    found, aside = put_back(tmp_path / "b.tar.gz", again)
    assert tree(again) == tree(data)
    assert (again / "threads/fake/W~C~1.0/workspace/empty").is_dir()
    assert (again / context.relative_to(data)).stat().st_mtime == 1_000_000_000
    assert os.access(again / script.relative_to(data), os.X_OK)
    assert (report.files, report.bytes, aside) == (len(found.contents.files), found.bytes, None)
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    assert report.stored_bytes == (tmp_path / "b.tar.gz").stat().st_size


async def test_half_a_line_and_what_is_of_the_process_alone_stay_out(data, tmp_path):
    (data / "journal.jsonl").write_bytes(b"whole\nhal")
    context = data / "threads/fake/W~C~1.0/context.jsonl"
    context.write_bytes(b"whole\n" + b"x" * 200_000)
    for name in ("lock", "status.sock", "models.json.tmp", "threadfast.log"):
        (data / name).write_text("no")
    (data / "web.json").write_text('{"v": 1, "key": "k"}')
    (data / "web" / "posted" / "ann").mkdir(parents=True)
    (data / "web" / "posted" / "ann" / "out.md").write_text("for ann")
    (data / "mcp-tokens").mkdir()
    (data / "mcp-tokens" / "a.json").write_text("no")
    (data / "mcp-tokens" / "a.json.broken").write_text("no")
    (data / "before-restore-1").mkdir()
    (data / "before-restore-1" / "journal.jsonl").write_text("no")
    (data / "threads/fake/W~C~1.0/workspace/mine.tmp").write_text("theirs")
    (data / "journal.jsonl.broken").write_text("damaged")
    back_up(data, tmp_path / "b.tar.gz", now)
    put_back(tmp_path / "b.tar.gz", tmp_path / "again")
    found = tree(tmp_path / "again")
    assert found["journal.jsonl"] == b"whole\n"
    assert found["threads/fake/W~C~1.0/context.jsonl"] == b"whole\n"
    assert found["threads/fake/W~C~1.0/workspace/mine.tmp"] == b"theirs"
    assert found["journal.jsonl.broken"] == b"damaged"
    assert found.keys().isdisjoint({"status.sock", "models.json.tmp", "threadfast.log"})
    assert not list((tmp_path / "again").glob("before-*"))
    assert not (tmp_path / "again" / "mcp-tokens").exists()
    assert not (tmp_path / "again" / "web.json").exists()
    assert (tmp_path / "again" / "web" / "posted" / "ann" / "out.md").read_text() == "for ann"


async def test_links_and_pipes_are_left_out_and_told(data, tmp_path):
    (tmp_path / "secret").write_text("not yours")
    workspace = data / "threads/fake/W~C~1.0/workspace"
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "way").symlink_to(tmp_path)
    os.mkfifo(workspace / "pipe")
    (workspace / os.fsdecode(b"odd-\xff")).write_text("kept")
    report = back_up(data, tmp_path / "b.tar.gz", now)
    expected = ["link", "pipe", "way"]
    assert sorted(line.rsplit("/")[-1].partition(":")[0] for line in report.skipped) == expected
    assert report.problems == []
    put_back(tmp_path / "b.tar.gz", tmp_path / "again")
    found = tree(tmp_path / "again")
    assert b"not yours" not in found.values()
    assert b"kept" in found.values()


async def test_a_file_that_shrinks_while_it_is_read_is_told_and_the_rest_is_kept(data, tmp_path):
    big = data / "threads/fake/W~C~1.0/workspace/big"
    big.write_bytes(b"x" * 3_000_000)

    def cut(read):
        if read > 10_000 and big.stat().st_size:
            big.write_bytes(b"")

    report = back_up(data, tmp_path / "b.tar.gz", now, cut)
    assert [problem.partition(": ")[2] for problem in report.problems] == ["became shorter while it was read"]
    assert verify(tmp_path / "b.tar.gz").contents.problems == report.problems


async def test_a_full_disk_leaves_no_half_of_a_backup(data, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="No space"):
        back_up(data, tmp_path / "b.tar.gz", now)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


async def test_a_backup_goes_over_nothing_and_not_into_what_it_copies(data, tmp_path):
    (tmp_path / "there.tar.gz").write_text("mine")
    for target, why in ((tmp_path / "there.tar.gz", "exists already"), (data / "b.tar.gz", "outside")):
        with pytest.raises(BackupFailed, match=why):
            back_up(data, target, now)
    (data / "restoring.json").write_text("{}")
    with pytest.raises(BackupFailed, match="is being restored"):
        back_up(data, tmp_path / "b.tar.gz", now)
    with pytest.raises(BackupFailed, match="no data"):
        back_up(tmp_path / "nowhere", tmp_path / "b.tar.gz", now)


async def test_nothing_is_restored_under_a_running_bot_or_over_data(data, tmp_path):
    file = tmp_path / "b.tar.gz"
    back_up(data, file, now)
    with lock_data_folder(data), pytest.raises(FolderTaken):
        put_back(file, data, force=True)
    with pytest.raises(restore.RestoreRefused, match="--force"):
        put_back(file, data)


async def test_with_force_what_was_there_is_put_aside_whole(data, tmp_path):
    file = tmp_path / "b.tar.gz"
    before = tree(data)
    back_up(data, file, now)
    (data / "journal.jsonl").write_text("newer\n")
    (data / "audit").mkdir()
    newer = tree(data)
    _, aside = put_back(file, data, force=True)
    assert tree(data) == before
    assert aside is not None
    assert {str(p.relative_to(aside)): p.read_bytes() for p in aside.rglob("*") if p.is_file()} == newer


def unpacked(content):
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return b""


async def test_every_flipped_byte_and_every_cut_is_noticed_before_anything_is_changed(data, tmp_path):
    file, bad = tmp_path / "b.tar.gz", tmp_path / "bad.tar.gz"
    back_up(data, file, now)
    whole = file.read_bytes()
    places = range(12, len(whole), 37)
    spoiled = [whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :] for at in places]
    spoiled += [whole[:at] for at in places] + [b"", b"no archive at all"]
    for content in spoiled:
        if unpacked(content) == unpacked(whole):
            continue  # among zeros many spellings say the same
        bad.write_bytes(content)
        with pytest.raises((BackupDamaged, NewerSchema)):
            put_back(bad, tmp_path / "again")
    assert [path.name for path in (tmp_path / "again").iterdir()] in ([], ["lock"])


async def test_more_than_there_is_room_for_is_not_begun(data, tmp_path):
    back_up(data, tmp_path / "b.tar.gz", now)
    with pytest.raises(BackupDamaged, match="room"):
        read(tmp_path / "b.tar.gz", lambda *_: None, most=10)


async def test_a_backup_of_a_newer_version_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "DATA_VERSION", 2)
    back_up(data, tmp_path / "b.tar.gz", now)
    with pytest.raises(NewerSchema, match="update"):
        put_back(tmp_path / "b.tar.gz", tmp_path / "again")


async def test_a_restore_that_is_killed_anywhere_is_not_begun_or_finished_by_the_next_start(
    data, tmp_path, monkeypatch
):
    file = tmp_path / "b.tar.gz"
    wanted = tree(data)
    back_up(data, file, now)

    class Killed(BaseException):
        pass

    honest = restore.Path.rename
    for deadly in range(40):
        target = tmp_path / f"target{deadly}"
        target.mkdir()
        (target / "journal.jsonl").write_text("old\n")
        (target / "models.json").write_text("old")
        renames = iter([None] * deadly)

        def rename(path, to, *, left=renames):
            if next(left, Killed):
                raise Killed
            return honest(path, to)

        monkeypatch.setattr(restore.Path, "rename", rename)
        killed = True
        with suppress(Killed):
            put_back(file, target, force=True)
            killed = False
        monkeypatch.undo()
        if not (target / unfinished_restore.MARK).exists() and killed:
            unfinished_restore.finish(target)
            (target / f"{unfinished_restore.MARK}.tmp").unlink()
            assert tree(target) == {"journal.jsonl": b"old\n", "models.json": b"old"}
            continue
        unfinished_restore.finish(target)
        assert tree(target) == wanted
        (aside,) = target.glob("before-*")
        assert sorted(path.name for path in aside.iterdir()) == ["journal.jsonl", "models.json"]
        if not killed:
            return
    raise AssertionError("never came to its end")
