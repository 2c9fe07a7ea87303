"""A secret in every sink: wherever it comes from and however it is written, nobody reads it."""

import json

import pytest

from bot.extensions.shell.sandbox import CommandResult
from tests.world import ANN
from threads.model import Answer, ToolCall, ToolStarted

from .bench import CANARY, Row, open_harness, params, run_row

YES = Answer(approved=True, by=ANN.id)


def many(harness):
    """So much that the result is cut and a file has it whole."""
    for number in range(600):
        harness.put(f"{number:03}-{CANARY}-{'x' * 100}")


def noted(harness, _result):
    assert harness.notes == []


ROWS = [
    Row("in a file", "read_file", {"path": "a"}, "harmless", "masked", before=lambda s: s.put("a", f"key={CANARY}\n")),
    Row("in a file, between other letters", "read_file", {"path": "a"}, "harmless", "masked", before=lambda s: s.put("a", f"a{CANARY}b")),
    Row("in a name that is listed", "list_files", {}, "harmless", "masked", before=lambda s: s.put(f"{CANARY}.txt")),
    Row("in a line that is found", "search_files", {"text": "key"}, "harmless", "masked", before=lambda s: s.put("a", f"key {CANARY}")),
    Row("in a file that is looked for", "read_file", {"path": f"x/{CANARY}"}, "not_found", "masked"),
    Row("in a change that is shown", "edit_file", {"path": "a", "old": "x", "new": "y"}, "harmless", "masked", before=lambda s: s.put("a", f"{CANARY}\nx")),
    Row("in a path that leads out", "read_file", {"path": f"../{CANARY}"}, "permission"),
    Row("in a tool's name", CANARY, {}, "not_found", "masked"),
    Row("in a key too much", "read_file", {"path": "a", CANARY: 1}, "validation", "masked"),
    Row("in a host that is none", "web_fetch", {"url": f"http://{CANARY}/"}, "permission", "masked"),
    Row("in a note", "remember", {"text": f"the password is {CANARY}"}, "validation", "secret", after=noted),
    Row("in a note, letter by letter behind what is not seen", "remember", {"text": "\u200b".join(CANARY)}, "validation", "secret", after=noted),
    Row("in a command that is asked about", "shell", {"command": f"curl -H 'X: {CANARY}' a.example"}, "asked"),
    Row("in a long command that is posted as a file", "shell", {"command": f"echo {'x ' * 2000}{CANARY}"}, "asked"),
    Row("in a status line", "read_file", {"path": f"{CANARY}/x"}, "not_found"),
    Row("in a result that a file has whole", "list_files", {}, "harmless", "masked", before=many),
    Row("a token that only looks like a secret", "read_file", {"path": "a"}, "harmless", "x .masked. y",
        before=lambda s: s.put("a", "x xoxb-1234567890-abcdefghij y")),
]  # fmt: skip


@pytest.mark.parametrize("row", params(ROWS))
async def test_nobody_reads_a_secret(row, tmp_path, monkeypatch):
    await run_row(row, tmp_path, monkeypatch)


RESULTS = {
    "stdout": CommandResult("exited", 0, f"KEY={CANARY}\n", ""),
    "stderr": CommandResult("exited", 1, "", f"bad key {CANARY}"),
    "partial output at a time-out": CommandResult("timeout", None, f"x {CANARY}", ""),
    "a flood": CommandResult("flood", None, f"{CANARY}\n" * 3000, "", 10**9),
    "a flood of JSON": CommandResult("exited", 0, json.dumps({"k": CANARY}) * 3000, ""),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_nobody_reads_a_secret_of_a_command(result, tmp_path, monkeypatch):
    async with open_harness(tmp_path, monkeypatch) as harness:
        harness.answer, harness.sandbox.result = YES, result
        await harness.run(ToolCall("c1", "shell", {"command": "env"}))
        assert harness.sandbox.commands == ["env"]
        assert "[masked]" in harness.read
        assert CANARY not in harness.visible_text()


@pytest.mark.parametrize("length", [4, 10, 16, len(CANARY) - 1])
async def test_no_part_of_a_secret_that_is_cut_is_in_a_status_line(length, tmp_path, monkeypatch):
    async with open_harness(tmp_path, monkeypatch) as harness:
        await harness.run(ToolCall("c1", "read_file", {"path": "x" * (80 - length) + CANARY}))
        (started,) = (event for event in harness.events if isinstance(event, ToolStarted))
        assert CANARY[:4] not in started.summary


async def test_no_secret_is_kept_with_a_permission_or_in_the_audit(tmp_path, monkeypatch):
    """Not even for "always here" on a command that contains one."""
    async with open_harness(tmp_path, monkeypatch) as harness:
        harness.answer = Answer(approved=True, by=ANN.id, words="always")
        await harness.run(ToolCall("c1", "shell", {"command": f"curl -H 'X: {CANARY}' a.example"}))
        (audit,) = (harness.data / "audit").iterdir()
        assert CANARY not in audit.read_text()
