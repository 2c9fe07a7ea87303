"""Folders are made of ids, whatever the ids hold; one process owns a data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threads.model import ThreadId
from threads.store.data_folder import FolderTaken, lock_data_folder, recent_threads, thread_folder

parts = st.text(st.characters(codec=None, exclude_characters=":"), max_size=200)


@given(parts, parts, parts, st.text(st.characters(codec=None), max_size=200))
def test_a_thread_stays_beneath_the_data_folder_under_a_plain_name(transport, workspace, channel, root):
    folder = thread_folder(Path("/data"), ThreadId(transport, workspace, channel, root))
    assert folder.parts[:3] == ("/", "data", "threads")
    assert ".." not in folder.parts
    assert folder.name.isascii()
    assert len(folder.name) <= 255


@given(st.tuples(parts, parts, parts), st.tuples(parts, parts, parts))
def test_different_threads_have_different_folders(one, two):
    a, b = (thread_folder(Path("/d"), ThreadId("t", *ids)) for ids in (one, two))
    scrubbed = [tuple(p.encode("utf-8", "replace") for p in ids) for ids in (one, two)]
    assert (a == b) == (scrubbed[0] == scrubbed[1])


def test_a_second_owner_is_refused_by_name_and_a_left_over_lock_means_nothing(tmp_path):
    (tmp_path / "lock").write_text("pid 1\n")
    with lock_data_folder(tmp_path), pytest.raises(FolderTaken, match=r"pid \d+"), lock_data_folder(tmp_path):
        pass
    with lock_data_folder(tmp_path):
        pass


def test_a_thread_that_cannot_be_looked_at_does_not_hide_the_others(tmp_path, caplog):
    good, odd = (ThreadId("slack", "T1", channel, "1.5") for channel in ("C1", "C2"))
    thread_folder(tmp_path, good).mkdir(parents=True)
    (thread_folder(tmp_path, good) / "context.jsonl").write_text("")
    thread_folder(tmp_path, odd).write_text("a plain file where a folder should be")
    assert recent_threads(tmp_path, "slack", 60, 10) == [good]
    assert "Not a directory" in caplog.text
    changed_at = (thread_folder(tmp_path, good) / "context.jsonl").stat().st_mtime
    assert recent_threads(tmp_path, "slack", 60, 10, now=lambda: changed_at + 61) == []


def test_root_leaves_somebody_elses_folder_alone(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    if os.geteuid() == 0:
        os.chown(data, 4711, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(FolderTaken, match=r"belongs to user \d+"), lock_data_folder(data):
        pass
    assert not list(data.iterdir())
