"""The harness of `python -m benchmarks versus`, with stand-ins for the peers: nothing is installed here."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.figures import Conditions
from benchmarks.versus import environments
from benchmarks.versus.contenders import Contender
from benchmarks.versus.environments import LeftOut
from benchmarks.versus.measure import Crash, Size, measure
from benchmarks.versus.run import versus

STAND_IN = """
import time
from pathlib import Path
from benchmarks.versus.peers.harness import Task, message_id, say

task = Task.read()
file = Path(task.data, "messages")
if task.step == "converse":
    file.write_text("x" * 1000)
    print("Welcome to the stand-in!")
    say("measured", version="7.1", wall=0.5, cpu=0.06, rss=64_000_000, fsyncs=3)
elif task.step == "accept":
    for thread in range(task.threads):
        if thread % 2:
            file.open("a").write(message_id(thread, 0) + "\\n")
        say("accepted", id=message_id(thread, 0))
    for thread in range(3):
        say("answered", id=message_id(thread, 0))
    time.sleep(600)
else:
    say("started")
    for message in file.read_text().split():
        {resume}
    time.sleep(600)
"""
ANSWERS_WHAT_IS_PENDING = "message in task.posted or say('answered', id=message)"
ANSWERS_WHATEVER_IT_KEPT = "say('answered', id=message)"

SMALL = Size(threads=4, messages=5, crash_threads=10, silence_s=0.3)


def stand_in(resume: str = ANSWERS_WHAT_IS_PENDING) -> Contender:
    code = STAND_IN.replace("{resume}", resume)
    return Contender("stand-in", "every other message", lambda _: [sys.executable, "-c", code])


def failing(name: str, command: Callable[[Path], Sequence[str]]) -> Contender:
    return Contender(name, "", command)


def not_there(_: Path) -> Sequence[str]:
    raise LeftOut("it could not be installed: no such version")


def test_only_what_a_peer_wrote_before_kill_9_is_answered_after_the_restart(tmp_path: Path) -> None:
    result = measure(stand_in(), Conditions(tmp_path, quick=True), tmp_path / "peers", "", SMALL)
    assert result.crash == Crash(pending=7, on_disk=4, answered=4, twice=0)
    assert (result.speed.version, result.speed.messages) == ("7.1", 20)
    assert (result.speed.files, result.speed.bytes_on_disk) == (1, 1000)


def test_an_answer_that_comes_again_after_the_restart_is_counted(tmp_path: Path) -> None:
    contender = stand_in(ANSWERS_WHATEVER_IT_KEPT)
    result = measure(contender, Conditions(tmp_path, quick=True), tmp_path / "peers", "", SMALL)
    assert result.crash == Crash(pending=7, on_disk=4, answered=4, twice=1)


def test_who_cannot_take_part_is_named_in_a_line_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.versus.run.QUICK", SMALL)
    broken = failing("broken", lambda _: [sys.executable, "-c", "raise SystemExit('TypeError: no such API')"])
    versus(Conditions(tmp_path, quick=True), tmp_path, [failing("missing", not_there), broken, stand_in()])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "missing: it could not be installed: no such version: left out",
        "broken: it failed: TypeError: no such API: left out",
    ]
    row = next(line for line in lines if line.startswith("stand-in"))
    assert row.split()[:5] == ["stand-in", "7.1", "40", "3", "64"]
    assert "every other message" in row
    assert "4 of 7 pending answered, 4 on disk" in row
    assert any(line.startswith("  over HTTP") for line in lines)
    assert any("0.0 MB in 1 file, 0.15 fsyncs a message" in line for line in lines)


def test_chat_sdk_is_left_out_without_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeftOut, match=r"^node is not installed$"):
        environments.chat_sdk(tmp_path / "peers")


def test_an_install_that_fails_says_why_in_one_line_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("node", "npm"):
        (tmp_path / tool).write_text(
            "#!/bin/sh\necho npm error code E404\necho npm error A complete log is in /x\nexit 1\n"
        )
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        with pytest.raises(LeftOut, match=r"^it could not be installed: npm error code E404$"):
            environments.chat_sdk(tmp_path / "peers")


def test_a_measured_process_sees_no_key_of_this_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-live")
    assert "sk-live" not in environments.environment(tmp_path).values()
