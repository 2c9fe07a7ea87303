"""Data of an older version is brought up to date at the start, whenever that is cut off; newer data is left alone."""

import shutil
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import anyio
import pytest

from bot.observe.audit import Audit, AuditFiles
from bot.store.layout import DATA_VERSION, KINDS, kind_of
from bot.store.migrations import MIGRATIONS, prepare, version_of
from threads.errors import NewerSchema
from threads.log import Entry, entry_adapter
from threads.store.checksummed_lines import encode
from threads.store.disk import PosixDisk


def at(day=1):
    return lambda: datetime(2027, 1, day, tzinfo=UTC)


TO_2 = {
    "journal.jsonl": lambda old: old.replace(b"one", b"two"),
    "threads/*/*/context.jsonl": lambda old: old + b"more\n",
}
TO_3 = {"journal.jsonl": lambda old: old.replace(b"two", b"three")}
STEPS = {1: TO_2, 2: TO_3}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for thread in "ab":
        (folder / "threads" / "fake" / thread).mkdir(parents=True)
        (folder / "threads" / "fake" / thread / "context.jsonl").write_bytes(b"old\n")
    (folder / "journal.jsonl").write_bytes(b"one\n")
    return folder


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def current(folder):
    return {name: content for name, content in tree(folder).items() if not name.startswith("before-")}


UPGRADED = {
    "journal.jsonl": b"three\n",
    "schema.json": b'{"v":3}',
    "threads/fake/a/context.jsonl": b"old\nmore\n",
    "threads/fake/b/context.jsonl": b"old\nmore\n",
}


def test_there_is_a_migration_from_every_older_version():
    assert sorted(MIGRATIONS) == list(range(1, DATA_VERSION))
    patterns = {kind.pattern for kind in KINDS}
    assert all(migration.keys() <= patterns for migration in MIGRATIONS.values())


def test_a_new_folder_and_one_of_before_the_versions_are_of_this_one(data, tmp_path):
    for folder in (data, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        prepare(folder, at())
        assert version_of(folder) == DATA_VERSION
        assert (folder / "schema.json").read_bytes() == b'{"v":%d}' % DATA_VERSION


def test_an_upgrade_goes_through_every_version_and_keeps_what_was_there(data):
    before = tree(data)
    prepare(data, at(), version=3, migrations=STEPS)
    assert current(data) == UPGRADED
    kept = data / "before-v2-20270101T000000Z"
    assert {name: content for name, content in tree(kept).items() if name != "schema.json"} == before
    assert version_of(kept) == 1
    once = tree(data)
    prepare(data, at(2), version=3, migrations=STEPS)
    assert tree(data) == once


class Killed(BaseException):
    pass


class DyingDisk(PosixDisk):
    """A disk on which the process dies at the n-th change, before or after it."""

    def __init__(self, left, *, after):
        self.left, self.after = left, after

    def rename(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        super().rename(source, target)
        if self.left < 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True])
def test_an_upgrade_that_is_killed_anywhere_is_finished_by_the_next_start(data, tmp_path, after):
    for left in range(60):
        folder = tmp_path / f"{left}"
        shutil.copytree(data, folder)
        day = 1
        while True:  # it dies again and again, each time a little later
            disk = DyingDisk(left if day == 1 else 2, after=after)
            try:
                prepare(folder, at(day), disk=disk, version=3, migrations=STEPS)
            except Killed:
                day += 1
                if day == 3:
                    prepare(folder, at(day), version=3, migrations=STEPS)
                    break
            else:
                break
        assert {n: c for n, c in current(folder).items() if not n.endswith(".tmp")} == UPGRADED
        kept = next(folder.glob("before-v2-*"))
        assert (kept / "journal.jsonl").read_bytes() == b"one\n"
        if day == 1:
            return
    raise AssertionError("never came to its end")


def test_an_upgrade_after_going_back_begins_with_what_is_there_now(data):
    prepare(data, at(1), version=2, migrations=STEPS)
    for name in ("schema.json", "journal.jsonl"):
        (data / "before-v2-20270101T000000Z" / name).replace(data / name)
    (data / "journal.jsonl").write_bytes(b"one again\n")
    prepare(data, at(2), version=2, migrations=STEPS)
    assert (data / "journal.jsonl").read_bytes() == b"two again\n"


def test_a_version_that_cannot_be_read_is_no_version_to_guess(data):
    (data / "schema.json").write_bytes(b"{")
    with pytest.raises(NewerSchema, match=r"schema\.json"):
        prepare(data, at())


NEWER_LINE = encode(entry_adapter(), Entry(at="", kind="message", message_id="m", v=2))


async def test_what_is_only_appended_to_keeps_newer_lines_as_they_are(tmp_path):
    path = tmp_path / "2027-01-01.jsonl"
    path.write_bytes(NEWER_LINE)
    audit = Audit(AuditFiles(PosixDisk(), tmp_path, anyio.to_thread.run_sync).append, at())
    async with audit.writing({}):
        audit.tell("cancel", {})
    assert path.read_bytes().startswith(NEWER_LINE)


def test_every_kind_is_found_by_its_own_pattern():
    for kind in KINDS:
        example = PurePosixPath(kind.pattern.replace("**", "x/y").replace("*", "z"))
        assert kind_of(example) is kind
