"""Too much of everything: bytes, files, folders, lines, calls, steps; and skills that are more than texts."""

from __future__ import annotations

import os

import anyio
import pytest

from bot.tools.gate import MAX_PARALLEL
from bot.tools.sandbox import CommandResult
from tests.world import ANN, calls, says
from threads.model import Answer, ToolCall

from .bench import CANARY, Net, Row, judge, params, scene_of
from .bot import Bot, Hall

pytestmark = pytest.mark.anyio

SMALL = {"limits": {"workspace_mb": 1, "workspace_files": 50}}


def full(scene):
    scene.put("old", b"x" * 900_000)


def crowded(scene):
    for number in range(49):
        scene.put(f"{number}")


def many(count, content="word\n"):
    def make(scene):
        for number in range(count):
            scene.put(f"d{number % 7}/{number}", content)

    return make


def small(most):
    def look(scene, _result):
        assert len(scene.read) < most

    return look


def unchanged(path, size):
    def look(scene, _result):
        assert (scene.workspace / path).stat().st_size == size

    return look


def sparse(size):
    def make(scene):
        os.truncate(scene.put("way"), size)

    return make


def skill(name="good", **files):
    """A skill of the admin's, with these files in its folder; one that is a Path is a link."""

    def make(root):
        folder = root / "data" / "skills" / name
        folder.mkdir(mode=0o755, parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does it.\n---\n\nDo it.\n")
        (folder / "SKILL.md").chmod(0o644)
        (folder / "way").symlink_to(root / "outside" / "secret.txt")
        (folder / "up").symlink_to(root / "outside")
        os.mkfifo(folder / "pipe")
        (root / "data" / "IDENTITY.md").write_text(CANARY)
        (root / "data" / "skills" / "evil").mkdir()
        (root / "data" / "skills" / "evil" / "SKILL.md").symlink_to(root / "outside" / "secret.txt")

    return make


def load(name, given, says=""):
    return Row(f"a skill: {name}", "load_skill", given, "not_found", says)


FILES = [
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
    Row("a file of a terabyte that is searched", "search_files", {"text": "x"}, "harmless", "not searched", sparse(400_000_000)),
    Row("a file of a terabyte that is posted", "attach", {"path": "way"}, "validation", "larger than", sparse(60_000_000)),
    Row("3,000 files that are listed", "list_files", {"recursive": True}, "harmless", "not_shown", many(3000), small(60_000)),
    Row("3,000 lines that are found", "search_files", {"text": "word"}, "harmless", '"more"|count', many(600, "word\n" * 5), small(20_000)),
    Row("a folder 500 levels deep", "list_files", {"recursive": True}, "harmless", "x", lambda s: deep(s, 500)),
    Row("a memory that is full", "remember", {"text": "one more"}, "validation", "No more", lambda s: (s.workspace.parent / "MEMORY.md").write_text("- x\n" * 6000)),
    Row("a memory that is no file", "remember", {"text": "one more"}, "unknown", "cannot be read", lambda s: (s.workspace.parent / "MEMORY.md").mkdir()),
]  # fmt: skip

SKILLS = [
    load("that is a path", {"name": "../skills/good"}),
    load("that is a folder above", {"name": ".."}),
    load("that is a link", {"name": "evil"}),
    load("a file that is a link", {"name": "good", "file": "way"}),
    load("a file behind a link", {"name": "good", "file": "up/secret.txt"}),
    load("a file above", {"name": "good", "file": "../../IDENTITY.md"}),
    load("a file from the root", {"name": "good", "file": "/etc/passwd"}),
    load("a file that is a pipe", {"name": "good", "file": "pipe"}),
    load("a file with NUL in its name", {"name": "good", "file": "SKILL.md\0.txt"}),
    load("of the workspace", {"name": "help"}, "no such skill"),
]

ROWS = [*FILES, *SKILLS]


def deep(scene, levels):
    folder = os.open(scene.workspace, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("x", dir_fd=folder)
        below = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)


@pytest.mark.parametrize("row", params(FILES))
async def test_too_much_is_told_and_costs_little(row, tmp_path, monkeypatch):
    await judge(row, tmp_path, monkeypatch)


@pytest.mark.parametrize("row", params(SKILLS))
async def test_no_skill_leads_out_of_its_folder(row, tmp_path, monkeypatch):
    skill()(tmp_path)
    await judge(row, tmp_path, monkeypatch)


async def test_the_good_skill_among_them_can_be_loaded(tmp_path, monkeypatch):
    skill()(tmp_path)
    async with scene_of(tmp_path, monkeypatch) as scene:
        (result,) = await scene.run(ToolCall("c1", "load_skill", {"name": "good"}))
    assert result["success"], result


async def test_two_hundred_calls_of_one_step_run_a_few_at_a_time(tmp_path, monkeypatch):
    running = most = 0

    async def run(command, workspace, deadline):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1
        return CommandResult("exited", 0, "x" * 100_000, "")

    async with scene_of(tmp_path, monkeypatch) as scene:
        scene.answer = Answer(approved=True, by=ANN.id)
        scene.stage.run = run
        results = await scene.run(*(ToolCall(f"c{n}", "shell", {"command": f"x {n}"}) for n in range(200)))
    assert len(results) == 200
    assert most <= MAX_PARALLEL
    assert all("file" in result["result"] for result in results), "kept in files"


SAME = calls("read_file", path="a")
LOOPS = {
    "the same call for ever": ([SAME] * 9, {}),
    "other calls for ever": ([calls("read_file", path=str(n)) for n in range(99)], {"limits": {"max_steps": 5}}),
    "more scheduled than a thread may have": ([calls("schedule", id=f"c{n}", text=f"say {n}", in_minutes=n + 1) for n in range(8)],
        {"tools": {"enabled": ["schedule"]}, "schedule": {"max_per_thread": 3}}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
async def test_a_model_that_never_ends_is_ended(name, tmp_path, monkeypatch):
    script, settings = LOOPS[name]
    bot = Bot(tmp_path, Hall(), Net())
    async with bot.life(monkeypatch, *script, says("done"), **settings) as hall:
        incoming = await hall.ask()
        with anyio.fail_after(20):
            await hall.settled(incoming.id)
    results = bot.results()
    if "schedule" in name:
        assert [result["success"] for result in results] == [True] * 3 + [False] * 5
    else:
        assert len(bot.model.requests) <= 7
    assert CANARY not in "".join(hall.texts)
