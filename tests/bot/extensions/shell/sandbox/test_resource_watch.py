"""The sum of a tree's memory, and the room on a disk."""

import os
from types import SimpleNamespace

import pytest

from bot.extensions.shell.sandbox.launcher import descendants
from bot.extensions.shell.sandbox.resource_watch import PAGE, exceeds_memory, free_share


@pytest.fixture
def proc(tmp_path):
    """A /proc of three generations (1, 2, 3), a stranger (9), and each one's memory: resident, shared, share in kB."""
    processes = (1, 0, 9, 9, 0), (2, 1, 50, 10, 80), (3, 2, 50, 10, 80), (9, 0, 999, 0, 0)
    for pid, parent, resident, shared, share in processes:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a) ) name) S {parent} 1 1")
        (folder / "statm").write_text(f"100 {resident} {shared} 1 0 1 0")
        (folder / "smaps_rollup").write_text(f"Rss: 400 kB\nPss: 300 kB\nPss_Anon:   {share} kB\n")
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "7").mkdir()  # gone by now
    return tmp_path


def test_a_tree_is_who_descends_from_its_root(proc):
    assert descendants(1, str(proc)) == [2, 3]
    assert descendants(3, str(proc)) == descendants(8, str(proc)) == []


def test_what_forks_share_is_counted_once(proc):
    assert not exceeds_memory(1, 80 * PAGE, proc), "80 pages at most"
    assert exceeds_memory(1, 160 * 1024 - 1, proc)
    assert not exceeds_memory(1, 160 * 1024, proc), "the kernel knows that half of it is the same"


def test_who_may_not_be_looked_into_is_counted_in_full(proc):
    for pid in "23":
        (proc / pid / "smaps_rollup").unlink()
    assert exceeds_memory(1, 79 * PAGE, proc)
    assert not exceeds_memory(1, 80 * PAGE, proc)


def test_a_real_process_uses_memory():
    assert exceeds_memory(os.getpid(), 1_000_000)
    assert not exceeds_memory(os.getpid(), 10**13)


@pytest.mark.parametrize(
    ("blocks", "files", "left"),
    [
        ((50, 100), (90, 100), 0.5),
        ((50, 100), (1, 100), 0.01),
        ((50, 100), (0, 0), 0.5),
        ((0, 0), (0, 0), 1.0),
    ],
)
def test_a_disk_is_as_full_as_its_bytes_or_its_files(monkeypatch, tmp_path, blocks, files, left):
    about = SimpleNamespace(f_bavail=blocks[0], f_blocks=blocks[1], f_favail=files[0], f_files=files[1])
    monkeypatch.setattr(os, "statvfs", lambda _: about)
    assert free_share(tmp_path) == left
