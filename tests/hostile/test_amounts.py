"""Too many bytes, files, folders, lines, notes and schedules."""

from __future__ import annotations

import os

import pytest

from tests.world import calls, says

from .bench import Row, params, run_row

SMALL = {"limits": {"workspace_mb": 1, "workspace_files": 50}}


def full(harness):
    harness.put("old", b"x" * 900_000)


def crowded(harness):
    for number in range(49):
        harness.put(f"{number}")


def many(count, content="word\n"):
    def make(harness):
        for number in range(count):
            harness.put(f"d{number % 7}/{number}", content)

    return make


def small(most):
    def look(harness, _result):
        assert len(harness.read) < most

    return look


def unchanged(path, size):
    def look(harness, _result):
        assert (harness.workspace / path).stat().st_size == size

    return look


def sparse(size):
    def make(harness):
        os.truncate(harness.put("way"), size)

    return make


ROWS = [
    Row("more bytes than a workspace holds", "write_file", {"path": "a", "content": "x" * 200_000}, "unknown", "more than", full, settings=SMALL),
    Row("more files than a workspace holds", "write_file", {"path": "a/b", "content": ""}, "unknown", "more than", crowded, settings=SMALL),
    Row("more folders than a workspace holds", "write_file", {"path": "a/" * 60 + "b", "content": ""}, "unknown", "more than", settings=SMALL),
    Row("an edit that fills the workspace", "edit_file", {"path": "old", "old": "x", "new": "y" * 9, "all": True}, "unknown", "more than", full,
        unchanged("old", 900_000), settings=SMALL),
    Row("an edit that makes gigabytes of little", "edit_file", {"path": "a", "old": "x", "new": "y" * 100_000, "all": True}, "validation", "larger",
        lambda s: s.put("a", "x" * 1_000_000), unchanged("a", 1_000_000)),
    Row("a line without end", "read_file", {"path": "a"}, "harmless", "next_skip", lambda s: s.put("a", "x" * 5_000_000), small(30_000)),
    Row("a file of a terabyte", "read_file", {"path": "way", "offset": 10**12}, "validation", "too far|only", sparse(400_000_000)),
    Row("a file of a terabyte that is edited", "edit_file", {"path": "way", "old": "x", "new": "y"}, "validation", "larger", sparse(400_000_000)),
    Row("a file of a terabyte that is searched", "search_files", {"text": "x"}, "harmless", "cannot be searched", sparse(400_000_000)),
    Row("a file of a terabyte that is posted", "attach", {"path": "way"}, "validation", "larger than", sparse(60_000_000)),
    Row("3,000 files that are listed", "list_files", {"recursive": True}, "harmless", "not_shown", many(3000), small(60_000)),
    Row("3,000 lines that are found", "search_files", {"text": "word"}, "harmless", '"more"|count', many(600, "word\n" * 5), small(20_000)),
    Row("a folder 500 levels deep", "list_files", {"recursive": True}, "harmless", "x", lambda s: deep(s, 500)),
    Row("a memory that is full", "remember", {"text": "one more"}, "validation", "No more", lambda s: (s.workspace.parent / "MEMORY.md").write_text("- x\n" * 6000)),
    Row("a memory that is no file", "remember", {"text": "one more"}, "unknown", "cannot be read", lambda s: (s.workspace.parent / "MEMORY.md").mkdir()),
]  # fmt: skip


def deep(harness, levels):
    folder = os.open(harness.workspace, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("x", dir_fd=folder)
        below = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)


@pytest.mark.parametrize("row", params(ROWS))
async def test_too_much_is_refused_or_cut(row, tmp_path, monkeypatch):
    await run_row(row, tmp_path, monkeypatch)


async def test_a_thread_schedules_no_more_than_the_settings_allow(bot, monkeypatch):
    settings = {"tools": {"enabled": ["schedule"]}, "schedule": {"max_per_thread": 3}}
    script = [calls("schedule", id=f"c{n}", text=f"say {n}", in_minutes=n + 1) for n in range(8)]
    async with bot.serve(monkeypatch, *script, says("done"), **settings) as platform:
        await platform.say("help")
    assert [result["success"] for result in bot.results()] == [True] * 3 + [False] * 5
