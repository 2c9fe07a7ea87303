"""A secret in every sink: wherever it comes from and however it is written, nobody reads it."""

import json

import pytest

from bot.tools.sandbox import CommandResult
from tests.world import ANN
from threads.model import Answer, ToolCall, ToolStarted

from .bench import CANARY, Row, judge, params, scene_of

pytestmark = pytest.mark.anyio

YES = Answer(approved=True, by=ANN.id)
SHAPED = {
    "of Slack": "xoxb-1234567890-abcdefghij",
    "of a model provider": "sk-ant-api03-" + "a1B2" * 10,
    "of GitHub": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "of Amazon": "AKIAABCDEFGHIJKLMNOP",
    "of Google": "AIza" + "b" * 35,
    "of Discord": "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA.GabcdE." + "c" * 38,
    "in a header": "Authorization: Bearer abcdefgh12345678abcdefgh",
    "in an address": "https://user:hunter2hunter2@db.example/x",
    "as a key file": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
}


def many(scene):
    """So much that the result is cut and a file has it whole."""
    for number in range(600):
        scene.put(f"{number:03}-{CANARY}-{'x' * 100}")


def noted(scene, _result):
    assert scene.notes == []


ROWS = [
    Row("in a file", "read_file", {"path": "a"}, "harmless", "masked", before=lambda s: s.put("a", f"key={CANARY}\n")),
    Row("in a file, between other letters", "read_file", {"path": "a"}, "harmless", "masked", before=lambda s: s.put("a", f"a{CANARY}b")),
    Row("in a name that is listed", "list_files", {}, "harmless", "masked", before=lambda s: s.put(f"{CANARY}.txt")),
    Row("in a line that is found", "search_files", {"text": "key"}, "harmless", "masked", before=lambda s: s.put("a", f"key {CANARY}")),
    Row("in a file that is looked for", "read_file", {"path": f"x/{CANARY}"}, "not_found", "masked"),
    Row("in a change that is shown", "edit_file", {"path": "a", "old": "x", "new": "y"}, "harmless", "masked", before=lambda s: s.put("a", f"{CANARY}\nx")),
    Row("in a line that looks like one that was not found", "edit_file", {"path": "a", "old": f"{CANARY} yy", "new": "y"}, "validation", "masked",
        before=lambda s: s.put("a", f"{CANARY} xx")),
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
    *(Row(f"a token {what}", "read_file", {"path": "a"}, "harmless", "masked",
          before=lambda s, token=token: s.put("a", f"x {token} y"),
          after=lambda s, _, token=token: pytest.fail(s.read) if token in json.loads(s.read)["result"]["text"] else None)
      for what, token in SHAPED.items()),
]  # fmt: skip


@pytest.mark.parametrize("row", params(ROWS))
async def test_nobody_reads_a_secret(row, tmp_path, monkeypatch):
    await judge(row, tmp_path, monkeypatch)


OUTPUTS = [
    ("in what a command writes", CommandResult("exited", 0, f"KEY={CANARY}\n", "")),
    ("in what a command complains of", CommandResult("exited", 1, "", f"bad key {CANARY}")),
    ("in what was written when time was over", CommandResult("timeout", None, f"x {CANARY}", "")),
    ("in a flood", CommandResult("flood", None, f"{CANARY}\n" * 3000, "", 10**9)),
    ("in a flood, as JSON", CommandResult("exited", 0, json.dumps({"k": CANARY}) * 3000, "")),
]


@pytest.mark.parametrize("row", OUTPUTS, ids=lambda row: row[0])
async def test_nobody_reads_a_secret_of_a_command(row, tmp_path, monkeypatch):
    async with scene_of(tmp_path, monkeypatch) as scene:
        scene.answer, scene.stage.gives = YES, row[1]
        await scene.run(ToolCall("c1", "shell", {"command": "env"}))
        assert scene.stage.ran == ["env"]
        assert "[masked]" in scene.read
        assert CANARY not in scene.told()


STATUS = [
    (f"cut after {cut} of its letters", "x" * (80 - cut) + CANARY) for cut in (4, 10, 16, len(CANARY) - 1)
]


@pytest.mark.parametrize("row", STATUS, ids=lambda row: row[0])
async def test_no_part_of_a_secret_is_in_a_status_line(row, tmp_path, monkeypatch):
    async with scene_of(tmp_path, monkeypatch) as scene:
        await scene.run(ToolCall("c1", "read_file", {"path": row[1]}))
        (started,) = (event for event in scene.events if isinstance(event, ToolStarted))
        assert CANARY[:4] not in started.summary


async def test_no_secret_is_kept_with_a_permission_or_in_the_audit(tmp_path, monkeypatch):
    """ "For "always here" on a command that holds one: what is written down of it is for people too."""
    async with scene_of(tmp_path, monkeypatch) as scene:
        scene.answer = Answer(approved=True, by=ANN.id, words="always")
        await scene.run(ToolCall("c1", "shell", {"command": f"curl -H 'X: {CANARY}' a.example"}))
        (audit,) = (scene.data / "audit").iterdir()
        assert CANARY not in audit.read_text()
