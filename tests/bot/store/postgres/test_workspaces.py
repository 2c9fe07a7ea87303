"""The files of a thread follow it from worker to worker, and only its owner changes them."""

from __future__ import annotations

import os
import time

import pytest

from bot.store.postgres import workspaces as module
from bot.store.postgres.workspaces import _safe
from tests.bot.store.postgres.workers import THREAD, message, rows, workers
from threads.errors import Fenced

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


async def test_what_was_deleted_or_not_stored_is_gone_when_the_thread_comes_back(dsn, seats):
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
        again = module.Workspaces(dsn, lambda: 0, lambda _: 99)
        await again.fetch(str(THREAD), root)
        assert tree(root) == {"b": b"changed"}
        await again.close()


async def test_a_worker_that_lost_the_thread_changes_no_files(dsn, seats):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        (root / "a").write_bytes(b"old")
        await one.store.keep_workspace(THREAD)
        rows(dsn, "UPDATE thread SET epoch = epoch + 1 RETURNING id")
        (root / "a").write_bytes(b"new")
        with pytest.raises(Fenced):
            await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT size FROM file") == [(3,)]
        assert rows(dsn, "SELECT count(*) FROM file f JOIN blob b USING (sha) WHERE b.data = 'old'") == [(1,)]


async def test_what_has_not_changed_is_neither_read_nor_sent_again(dsn, seats, monkeypatch):
    async with seats(dsn, 1) as [one]:
        root = await own(one)
        for number in range(20):
            (root / f"f{number}").write_bytes(b"%d" % number)
        await one.store.keep_workspace(THREAD)
        read = []
        digest = module._digest
        monkeypatch.setattr(module, "_digest", lambda path: read.append(path.name) or digest(path))
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
        rows(dsn, "UPDATE blob SET used_at = used_at - interval '2 hours' RETURNING part")
        run = module.Session.rows

        async def collecting(self, statement, parameters=()):
            found = await run(self, statement, parameters)
            if statement == module.KNOWN and found:
                await run(self, module.COLLECT)
            return found

        monkeypatch.setattr(module.Session, "rows", collecting)
        (root / "again").write_bytes(b"a")
        await one.store.keep_workspace(THREAD)
        assert rows(dsn, "SELECT count(*) FROM file f JOIN blob b USING (sha)") == [(1,)]


async def test_files_from_before_the_database_are_kept_and_stored_after_the_first_turn(dsn, seats):
    async with seats(dsn, 1) as [one]:
        await own(one)
        root = await one.store.workspace(THREAD)
        (root / "old").write_bytes(b"old")
        again = module.Workspaces(dsn, lambda: one.worker.number, one.journal.epoch_of)
        await again.fetch(str(THREAD), root)
        assert tree(root) == {"old": b"old"}
        await again.save(str(THREAD), root)
        assert rows(dsn, "SELECT count(*) FROM file") == [(1,)]
        await again.close()


async def test_a_file_that_cannot_be_read_is_left_out_and_ends_no_turn(dsn, seats, monkeypatch, caplog):
    digest = module._digest

    def refuse(path):
        if path.name == "mine":
            raise PermissionError(13, "Permission denied", str(path))
        return digest(path)

    monkeypatch.setattr(module, "_digest", refuse)
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
        _safe(tmp_path / "root", path)


def test_a_link_in_the_way_of_a_folder_is_replaced_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(tmp_path / "outside")
    assert _safe(tmp_path / "root", b"a/b") == tmp_path / "root" / "a" / "b"
    assert not (tmp_path / "root" / "a").is_symlink()


async def test_two_thousand_small_files_and_a_large_one_move_in_seconds(dsn, seats, record_property):
    async with seats(dsn, 2) as (one, other):
        root = await own(one)
        for number in range(2_000):
            (root / f"f{number}").write_bytes(b"%d" % number * 100)
        (root / "large").write_bytes(os.urandom(20 * MB))
        began = time.perf_counter()
        await one.store.keep_workspace(THREAD)
        record_property("saved_s", time.perf_counter() - began)
        await one.kill()
        began = time.perf_counter()
        there = await take_over(other)
        record_property("fetched_s", time.perf_counter() - began)
        assert len(tree(there)) == 2_001
