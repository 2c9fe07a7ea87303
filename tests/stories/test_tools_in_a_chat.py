"""A whole conversation with tools in the real console: a process without privileges at a real pseudo-terminal.

Everything is as `threadfast chat` makes it: the sandbox, the approvals, the files on disk; only the model is
`offline/demo`. Nothing waits for a time: the terminal is watched for what it should say next.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.transports.console.window import Window
from tests.unprivileged import NOBODY, Unreachable, popen_unprivileged, run_unprivileged
from threads.actor.turn import correlation_id
from threads.model import ThreadId, message_key

ROWS, COLUMNS = 50, 120
RAN = re.compile(
    r"^· (reading|writing|editing|looking through|attaching|running|using|remembering) .*\n", re.MULTILINE
)
IDLE = re.compile(r"^main \| (waiting: a decision on what I may do \| )?offline/demo$", re.MULTILINE)
MAIN = ThreadId("console", "local", "tty", "main")
TOOLS = ["files", "shell", "memory"]


class ChatWindow(Window):
    """A terminal window in which nobody's chat runs."""

    def __init__(self, home: Path) -> None:
        start = partial(popen_unprivileged, *chat(home), home=str(home), env={"TERM": "xterm"})
        super().__init__(ROWS, COLUMNS, start)

    async def says(self, line: str, answer: str) -> None:
        """Type a line and wait for what should follow it, but for lines about tools, and for the next prompt."""
        self.type(f"{line}\r")
        said = re.compile(rf"main> {re.escape(line)}\n{answer}(?s:.*)\nmain>", re.MULTILINE)

        def is_said() -> bool:  # and not still written, above the prompt
            text = RAN.sub("", self.screen.text)
            return said.search(text) is not None and IDLE.search(text) is not None

        await self.screen.until(is_said, said.pattern)


def chat(home: Path) -> list[str]:
    return ["-m", "bot", "chat", "--settings", str(home / "settings.json"), "--data", str(home / "data")]


@pytest.fixture(scope="module")
def shell() -> None:
    """Skip where no command can be run, as the doctor says, or nobody can be let in."""
    try:
        done = run_unprivileged("-m", "bot", "doctor", "--json")
    except Unreachable as error:
        pytest.skip(str(error))
    sandbox = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "sandbox")
    if sandbox["state"] != "ok":
        pytest.skip(sandbox["found"])


@pytest.fixture
def home(shell) -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="unprivileged-"))
    tools = {"enabled": TOOLS, "per_tool": {"shell": 1500}}
    (folder / "settings.json").write_text(json.dumps({"model": "offline/demo", "tools": tools}))
    (folder / "settings.json").chmod(0o644)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def files(home: Path) -> dict[str, str]:
    """Return what lies in the workspace of the chat's one thread."""
    return {file.name: file.read_text() for file in (home / "data" / "threads").glob("*/*/workspace/*")}


def journal(home: Path) -> list[dict[str, str]]:
    lines = (home / "data" / "journal.jsonl").read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def context(home: Path) -> str:
    (path,) = (home / "data" / "threads" / "console").glob("*/context.jsonl")
    return path.read_text()


def outcomes(home: Path) -> list[str]:
    return [line["outcome"] for line in journal(home) if line["kind"] == "settled"]


def running(word: str) -> list[str]:
    """Return the command lines on this machine that hold a word; a process may end while we look."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if word in line else []
    return found


def question(command: str) -> str:
    """Return what the screen shows when it asks: the exact command, and what can be typed."""
    asked = rf"\? May I use shell\?\n\n│ {re.escape(command)}\n\n(?s:.*)"
    return rf"{asked}  /approve +Allow once\n  /approve always +Always here\n  /deny +Deny\n"


async def test_a_conversation_that_uses_tools_survives_a_time_out_and_is_remembered(home):
    nap = f"sleep 60.{os.getpid():09}"
    async with ChatWindow(home).open() as window:
        await window.says("write notes.txt one two three", r"Wrote notes\.txt \(13 bytes\)\.")
        await window.says("read notes.txt", " one two three")
        attached = rf"· File notes\.txt \(13 bytes\): {home}/data/attached/notes\.txt"
        await window.says("attach notes.txt", rf"{attached}\n\nHere is notes\.txt\.")
        assert (home / "data" / "attached" / "notes.txt").read_text() == "one two three"

        await window.says("run cat notes.txt; exit 3", question("cat notes.txt; exit 3"))
        await window.screen.shows("main | waiting: a decision on what I may do")
        await window.says(
            "/approve",
            r"· Thank you, I go on\.\n\nshell did not work: The command ended with exit code 3\.\n\n one two three",
        )
        await window.says("run echo again", question("echo again"))
        await window.says("/approve always", r"· Thank you, I go on\.\n\n again\n")
        await window.says("run echo again", r" again\n")
        await window.says("run rm notes.txt", question("rm notes.txt"))
        await window.says("/deny", r"· All right, I leave it\.\n\nshell was not used: A person denied this\.")
        assert files(home) == {"notes.txt": "one two three"}

        await window.says(f"run {nap}", question(nap))
        await window.says(
            "/approve", r"· Thank you, I go on\.\n\nshell did not work: The command was stopped after 2 s"
        )
        assert running(nap) == []
        await window.says("list", r" notes\.txt\n")

        await window.says(
            "remember the sky is green", "📌 Remembered (?s:.*)\n\nI will remember that for this thread."
        )
        await window.says("recall sky", r" the sky is green\n")
        window.type("\x04")
        assert await window.ended() == 0
    assert window.screen.text.count("May I use shell?") == 4
    ran = [found[0] for found in RAN.finditer(window.screen.text)]
    assert len(ran) == 11  # one for each call
    assert ran[:2] == ["· writing notes.txt, one two three\n", "· reading notes.txt\n"]
    assert "· running cat notes.txt; exit 3: did not work\n" in ran
    assert "· running rm notes.txt: did not work\n" in ran
    assert set(outcomes(home)) == {"answered"}
    assert len(outcomes(home)) == len([line for line in journal(home) if line["kind"] == "received"])

    async with ChatWindow(home).open() as window:
        await window.says("run echo again", r" again\n")
        await window.says("recall sky", r" the sky is green\n")
        window.type("\x04")
        assert await window.ended() == 0
    assert "May I use shell?" not in window.screen.text


async def test_a_question_that_a_kill_left_open_is_asked_again_and_its_answer_counts_then(home):
    command = "echo survived > proof.txt; cat proof.txt"
    async with ChatWindow(home).open() as window:
        await window.says(f"run {command}", question(command))
        window.process.kill()
        assert await window.ended() == -9
    asked = json.loads((home / "data" / "approvals.json").read_bytes())["asked"]
    (call,) = [value["same"] for value in asked.values() if value["state"] == "open"]
    (message,) = [line["message_id"] for line in journal(home) if line["kind"] == "received"]
    (made,) = re.findall(r'"id":"([^"]*)","name":"shell"', context(home))
    question_id = f"q{correlation_id(f'{message_key(MAIN, message)} {call} {made} 0', 0)}"

    async with ChatWindow(home).open() as window:
        asks = re.compile(question(command))
        await window.screen.until(lambda: asks.search(window.screen.text) is not None, asks.pattern)
        assert files(home) == {}
        answer = r"· Thank you, I go on\.\n\n· You asked: (?s:.*)\n\(I was interrupted by a restart(?s:.*)\n survived\n"
        await window.says(f"/approve {question_id} once", answer)
        assert files(home) == {"proof.txt": "survived\n"}
        window.type("\x04")
        assert await window.ended() == 0
    assert outcomes(home) == ["answered", "answered"]


def test_at_a_pipe_what_would_wait_for_a_person_is_declined_with_a_word_and_the_rest_is_served(home):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = popen_unprivileged(*chat(home), home=str(home), **pipes)
    said, _ = process.communicate("run touch proof.txt\nwrite notes.txt one\nread notes.txt\n", 30)
    assert said.startswith(
        "(I did not use shell: it needs somebody's permission, and nobody can be asked here.)\n\n"
        "`shell` was not used: Nobody can be asked for permission here.\n"
    )
    assert said.endswith("Wrote `notes.txt` (3 bytes).\n```\none\n```\n")
    assert files(home) == {"notes.txt": "one"}
    assert outcomes(home) == ["answered"] * 3
    assert process.returncode == 0
