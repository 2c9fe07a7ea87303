"""The files of a thread follow it from worker to worker, and only its owner changes them."""

from __future__ import annotations

import os
import time

import pytest

from bot.extensions.postgres import local_files
from bot.extensions.postgres import workspaces as module
from bot.extensions.postgres.local_files import NewFile, StoredFile
from tests.bot.extensions.postgres.workers import THREAD, message, rows, workers
from threads.errors import Fenced, StoreUnavailable

MB = 1 << 20


@pytest.fixture
def seats(tmp_path):
    """Return how workers with data folders of their own are run."""

    def run(dsn, count):
        return workers(dsn, count, lambda number: tmp_path / f"worker-{number}")

    return run


async def own(seat, number=1):
    """Have a worker receive a message, which makes the thread its own, and return the thread's workspace."""
    await seat.journal.receive(message(number))
    await seat.until(lambda: any(p.received.message_id == f"m{number}" for p in (*seat.routed, *seat.taken)))
    root = await seat.store.workspace(THREAD)
    root.mkdir(parents=True, exist_ok=True)
    return root


async def take_over(seat):
    """Wait until a worker has taken up what another left, and return the thread's workspace."""
    await seat.until(lambda: seat.taken)
    return await seat.store.workspace(THREAD)


def tree(root):
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in root.rglob("*")
        if p.is_file() and not p.is_symlink()
    }


async def test_files_that_a_worker_stored_are_there_for_the_one_that_takes_over(dsn, seats):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        (root / "notes").mkdir()
        (root / "notes" / "plan é\udcff.txt").write_bytes(b"plan")
        (root / "empty").touch()
        (root / "run.sh").write_bytes(b"#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        (root / "large").write_bytes(os.urandom(3 * MB + 17))
        (root / "link").symlink_to("/etc/passwd")
        os.mkfifo(root / "pipe")
        await one.store.keep_workspace(THREAD)
        expected = tree(root)
        await one.kill()
        there = await take_over(other)
        assert tree(there) == expected
        assert os.access(there / "run.sh", os.X_OK)
        assert not (there / "link").exists()
        assert not (there / "pipe").exists()


async def test_what_was_deleted_or_not_stored_is_gone_when_the_thread_comes_back(pool, dsn, seats):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        (root / "a").write_bytes(b"a")
        (root / "b").write_bytes(b"b")
        await one.store.keep_workspace(THREAD)
        (root / "later").write_bytes(b"never stored")
        await one.kill()
        there = await take_over(other)
        (there / "a").unlink()
        (there / "b").write_bytes(b"changed")
        await other.store.keep_workspace(THREAD)
        again = module.Workspaces(pool, lambda: 0, lambda _: 99)
        await again.fetch(str(THREAD), root)
        assert tree(root) == {"b": b"changed"}


async def test_a_worker_that_lost_the_thread_changes_no_files(dsn, seats):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"old")
        await one.store.keep_workspace(THREAD)
        rows(dsn, "UPDATE thread SET epoch = epoch + 1 RETURNING id")
        (root / "a").write_bytes(b"new")
        with pytest.raises(Fenced):
            await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT data FROM file JOIN blob USING (sha)") == [(b"old",)]


async def test_what_has_not_changed_is_neither_read_nor_sent_again(dsn, seats, monkeypatch):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        for number in range(20):
            (root / f"f{number}").write_bytes(b"%d" % number)
        await one.store.keep_workspace(THREAD)
        read = []
        digests = local_files.part_digests
        monkeypatch.setattr(
            local_files, "part_digests", lambda name, folder: read.append(name) or digests(name, folder)
        )
        await one.store.keep_workspace(THREAD)
        assert read == []
        (root / "f7").write_bytes(b"other")
        (root / "copy").write_bytes(b"3")
        await one.store.keep_workspace(THREAD)
        assert sorted(read) == ["copy", "f7"]
        assert rows(dsn, "SELECT count(*) FROM blob") == [(21,)]


async def test_content_that_was_collected_meanwhile_is_sent_again(dsn, seats, monkeypatch):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        (root / "a").unlink()
        await one.store.keep_workspace(THREAD)
        rows(dsn, "UPDATE blob SET used_at = used_at - interval '2 hours' RETURNING 1")
        run = module.DatabaseSession.rows

        async def collecting(self, statement, parameters=()):
            found = await run(self, statement, parameters)
            if statement == module.KNOWN and found:
                await run(self, "SELECT collect()")
            return found

        monkeypatch.setattr(module.DatabaseSession, "rows", collecting)
        (root / "again").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT count(*) FROM file f JOIN blob b USING (sha)") == [(1,)]


async def test_files_from_before_the_database_are_kept_and_stored_after_the_first_turn(pool, dsn, seats):
    async with seats(dsn, 1) as [one]:
        await own(one)
        root = await one.store.workspace(THREAD)
        (root / "old").write_bytes(b"old")
        again = module.Workspaces(pool, lambda: one.worker.number, one.journal.epoch_of)
        await again.fetch(str(THREAD), root)
        assert tree(root) == {"old": b"old"}
        await again.save(str(THREAD), root)
        assert rows(dsn, "SELECT count(*) FROM file") == [(1,)]


async def test_a_file_that_cannot_be_read_is_left_out_and_ends_no_turn(dsn, seats, monkeypatch, caplog):
    digests = local_files.part_digests

    def refuse(name, folder):
        if name == "mine":
            raise PermissionError(13, "Permission denied", name)
        return digests(name, folder)

    monkeypatch.setattr(local_files, "part_digests", refuse)
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "mine").write_bytes(b"a")
        (root / "yours").write_bytes(b"b")
        await one.store.keep_workspace(THREAD)
    assert rows(dsn, "SELECT path FROM file") == [(b"yours",)]
    assert "mine" in caplog.text


@pytest.mark.parametrize("path", [b"../out", b"/etc/out", b"a/../../out", b"", b".."])
def test_no_stored_path_leads_out_of_a_workspace(tmp_path, path):
    with pytest.raises(OSError, match="below a workspace"):
        NewFile(tmp_path, StoredFile(path, (), 0o600))


async def test_nothing_that_lies_in_the_way_of_a_stored_file_keeps_it_out_or_is_followed(
    pool, dsn, seats, tmp_path
):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        for path in ("file", "below/link/file", "below/file/file", "closed/file", "empty"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(path.encode())
        await one.store.keep_workspace(THREAD)
        expected = tree(root)
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_bytes(b"mine")
        for path in ("file", "below", "empty"):
            (root / path).rename(tmp_path / path)
        (root / "file" / "deep").mkdir(parents=True)
        (root / "file" / "deep" / "inner").write_bytes(b"x")
        (root / "file" / "deep").chmod(0)
        (root / "below").mkdir()
        (root / "below" / "link").symlink_to(outside)
        (root / "below" / "file").write_bytes(b"x")
        (root / "empty").symlink_to(outside / "file")
        (root / "closed").chmod(0)
        again = module.Workspaces(pool, lambda: one.worker.number, lambda _: 99)
        await again.fetch(str(THREAD), root)
        assert tree(root) == expected
        assert tree(outside) == {"file": b"mine"}


async def test_a_link_at_the_name_of_an_unfinished_download_is_not_followed(
    pool, dsn, seats, tmp_path, monkeypatch
):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "file").write_bytes(b"theirs")
        await one.store.keep_workspace(THREAD)
        (tmp_path / "outside").write_bytes(b"mine")
        (root / "file").unlink()
        monkeypatch.setattr(local_files, "token_hex", lambda _: "guessed")
        again = module.Workspaces(pool, lambda: one.worker.number, lambda _: 99)
        scan = module.scan

        def plant(folder, hashes):
            found = scan(folder, hashes)
            (root / ".guessed.part").symlink_to(tmp_path / "outside")
            return found

        monkeypatch.setattr(module, "scan", plant)
        with pytest.raises(StoreUnavailable):
            await again.fetch(str(THREAD), root)
        assert (tmp_path / "outside").read_bytes() == b"mine"


async def test_a_file_that_changes_all_the_time_is_stored_as_it_was_read(dsn, seats, monkeypatch):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        first = os.urandom(2 * MB)
        (root / "log").write_bytes(first)
        scan = module.scan

        def change(folder, hashes):
            found = scan(folder, hashes)
            (root / "log").write_bytes(os.urandom(2 * MB))
            return found

        monkeypatch.setattr(module, "scan", change)
        await one.store.keep_workspace(THREAD)
        monkeypatch.undo()
        (root / "other").write_bytes(first)
        await one.store.keep_workspace(THREAD)
        expected = tree(root)
        await one.kill()
        assert tree(await take_over(other)) == expected


async def test_a_file_that_is_gone_before_it_is_stored_is_left_out(dsn, seats, monkeypatch):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"a")
        (root / "b").write_bytes(b"b")
        scan = module.scan

        def remove(folder, hashes):
            found = scan(folder, hashes)
            (root / "a").unlink()
            return found

        monkeypatch.setattr(module, "scan", remove)
        await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT path FROM file") == [(b"b",)]


async def test_files_that_were_all_deleted_do_not_come_back(pool, dsn, seats):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        (root / "a").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        await one.kill()
        there = await take_over(other)
        (there / "a").unlink()
        await other.store.keep_workspace(THREAD)
        again = module.Workspaces(pool, lambda: 0, lambda _: 99)
        await again.fetch(str(THREAD), root)
        assert tree(root) == {}


async def test_a_workspace_that_was_removed_whole_is_stored_as_empty(dsn, seats):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        (root / "a").unlink()
        root.rmdir()
        root.write_bytes(b"a file")
        await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT * FROM file") == []


async def test_content_of_a_list_that_was_never_stored_is_deleted_after_an_hour(dsn, seats):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        rows(dsn, "INSERT INTO blob (sha, data) VALUES (sha256('b'), 'b') RETURNING 1")
        rows(dsn, "SELECT collect()")
        assert rows(dsn, "SELECT count(*) FROM blob") == [(2,)]
        rows(dsn, "UPDATE blob SET used_at = used_at - interval '2 hours' RETURNING 1")
        rows(dsn, "SELECT collect()")
        assert rows(dsn, "SELECT data FROM blob") == [(b"a",)]


async def test_five_hundred_small_files_and_a_large_one_move_in_seconds(dsn, seats, record_property):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        for number in range(500):
            (root / f"f{number}").write_bytes(b"%d" % number * 100)
        (root / "large").write_bytes(os.urandom(20 * MB))
        began = time.perf_counter()
        await one.store.keep_workspace(THREAD)
        record_property("saved_s", time.perf_counter() - began)
        await one.kill()
        began = time.perf_counter()
        there = await take_over(other)
        record_property("fetched_s", time.perf_counter() - began)
        assert len(tree(there)) == 501
