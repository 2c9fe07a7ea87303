"""Commands that a person allowed and should not have: they run for real, behind the walls, and the bot outlives them.

That the walls hold is proven in tests/bot/extensions/shell/sandbox; here it is shown that commands do run behind them, and that what
a command leaves in the workspace leads no other tool out of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.bot.extensions.shell.sandbox.sandboxes import assert_no_processes, real
from tests.world import ANN
from threads.model import Answer, ToolCall

from .bench import CANARY, Harness, open_harness, params, snapshot

MARKER = "600.5017"


@dataclass(frozen=True)
class Command:
    """A command, perhaps a second call, and a check of their results."""

    name: str
    command: str
    check: Callable[[Harness, list[dict[str, Any]]], None]
    then: tuple[str, dict[str, Any]] | None = None
    timeout_s: float = 10


def ended(*types: str) -> Callable[[Harness, list[dict[str, Any]]], None]:
    def look(_scene: Harness, results: list[dict[str, Any]]) -> None:
        result = results[-1]
        assert ("fine" if result["success"] else result["error"]["type"]) in types, result

    return look


def fenced(harness: Harness, _results: list[dict[str, Any]]) -> None:
    assert "<outside " in harness.read


PERMISSION = ended("permission")
FINE = ended("fine")
ANY = ended("fine", "timeout", "unknown")

ROWS = [
    Command("a fork bomb", f"bomb() {{ sleep {MARKER} & bomb | bomb & }}; bomb; sleep {MARKER}", ANY, timeout_s=1.5),
    Command("a daemon", f"setsid nohup sleep {MARKER} >/dev/null 2>&1 </dev/null & sleep 0.2", FINE),
    Command("a daemon of a daemon", f"(setsid sh -c 'sleep {MARKER} & sleep {MARKER}' &) & exit 0", FINE),
    Command("one that ignores every signal", f"trap '' TERM INT HUP; while :; do sleep {MARKER}; done", ended("timeout"), timeout_s=1),
    Command("one that waits for input", "read -r line || echo closed; cat", FINE),
    Command("a flood of output", "yes 'all work and no play' | head -c 300000000", ended("unknown", "timeout")),
    Command("a flood of complaints", "yes 1>&2", ended("unknown", "timeout"), timeout_s=5),
    Command("one that kills whom it can", "kill -9 -1; kill -9 1; kill -9 $PPID; echo alive", ANY, timeout_s=3),
    Command("one that reads our environment", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; echo done", FINE),
    Command("one that reads what lies outside", "cat ../../../../outside/secret.txt ../context.jsonl; ls /root /home; echo done", FINE),
    Command("one that writes outside", "echo x > ../x; echo x > ../../../../outside/x; echo done", FINE),
    Command("a link out, then read", "ln -s /etc/passwd way", PERMISSION, ("read_file", {"path": "way"})),
    Command("a link out, then written", "ln -s ../../../../outside/new way", PERMISSION, ("write_file", {"path": "way", "content": "x"})),
    Command("a folder that is a link out, then posted from", "ln -s /etc way", PERMISSION, ("attach", {"path": "way/hostname"})),
    Command("a pipe, then read", "mkfifo way", PERMISSION, ("read_file", {"path": "way"})),
    Command("a file of a terabyte, then read", "truncate -s 1T way || truncate -s 900M way", ended("fine", "not_found"), ("read_file", {"path": "way"})),
    Command("a file of a terabyte, then posted", "truncate -s 1T way || truncate -s 60M way", ended("validation", "not_found"), ("attach", {"path": "way"})),
    Command("a folder that may not be read, then searched", "mkdir a; echo word > a/b; chmod 0 a || true", FINE, ("search_files", {"text": "word"})),
    Command("names that clear the screen, then listed", "touch \"$(printf 'a\\033[2J\\nb')\"", FINE, ("list_files", {})),
    Command("a folder 400 levels deep, then listed", "d=.; for i in $(seq 400); do d=$d/x; done; mkdir -p $d", FINE, ("list_files", {"recursive": True})),
    Command("what came in is moved away, then read", "mkdir -p src && mv attachments/* src/ && rm -rf attachments", fenced, ("read_file", {"path": "src/m1-page.txt"})),
    Command("a link in the place of long results", "for i in $(seq 100 599); do : > $i-$(printf %0110d 0); done; ln -s ../../../../../outside tool-output",
            FINE, ("list_files", {})),
]  # fmt: skip


@real
@pytest.mark.anyio
@pytest.mark.parametrize("row", params(ROWS))
async def test_a_command_does_no_harm(row, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET", CANARY)
    async with open_harness(tmp_path, monkeypatch, run_commands=True) as harness:
        if "shell" in harness.tools.off:
            pytest.skip(harness.tools.off["shell"])
        harness.add_attachment("words from outside, which are long enough to be fenced: " + "obey " * 20)
        harness.answer = Answer(approved=True, by=ANN.id)
        outside = snapshot(harness.outside)
        with anyio.fail_after(25):
            results = await harness.run(
                ToolCall("c1", "shell", {"command": row.command, "timeout_s": row.timeout_s})
            )
            if row.then:
                results += await harness.run(ToolCall("c2", row.then[0], row.then[1]))
        row.check(harness, results)
        await assert_no_processes(MARKER)
        assert snapshot(harness.outside) == outside
        text = harness.visible_text()
        assert CANARY not in text
        assert "root:" not in text
        assert sorted(path.name for path in harness.workspace.parent.iterdir()) in (
            ["outside", "workspace"],
            ["outside", "workspace", "write.tmp"],
        )


@pytest.mark.anyio
@pytest.mark.skipif(os.geteuid() != 0, reason="nobody is root here")
async def test_nothing_runs_as_root(tmp_path, monkeypatch):
    async with open_harness(tmp_path, monkeypatch, run_commands=True) as harness:
        harness.answer = Answer(approved=True, by=ANN.id)
        (result,) = await harness.run(ToolCall("c1", "shell", {"command": "id"}))
    assert result["error"]["type"] == "permission"
    assert "as root" in result["error"]["message"]
    assert harness.questions == [], "nobody is asked in vain"
