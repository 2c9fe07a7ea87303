import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.patience import WITHIN_S
from tests.transports.console.consoles import between_pipes, shown
from threads.background import background_tasks
from threads.errors import TransportRejected
from threads.model import Outgoing, TextDelta, TurnSettled
from transports.console import Console, parse
from transports.console.parse import thread_id


@pytest.fixture
async def piped():
    async with between_pipes() as piped:
        yield piped


async def test_each_line_is_answered_in_order_and_the_answers_alone_are_on_standard_output(piped):
    answers, notes = await piped.run(b"one\ntwo\nthree\n")
    assert answers == "You said: one\nYou said: two\nYou said: three\n"
    assert notes == ""
    assert piped.console.exit_code == 0
    assert [message.id for message in piped.bot.got] == ["s1.1", "s1.2", "s1.3"]
    assert {message.author.id for message in piped.bot.got} == {"you"}


async def test_empty_lines_are_skipped_and_a_last_line_needs_no_newline(piped):
    await piped.run(b"\n\none\n  \n\r\ntwo\r\nthree")
    assert piped.got == ["one", "two", "three"]


async def test_only_the_newline_byte_ends_a_line_and_broken_bytes_are_replaced(piped):
    await piped.run("a\u2028b\x0bc\x85d\n".encode() + b"\xff\xfe\x00\n")
    assert piped.got == ["a\u2028b\x0bc\x85d", "\ufffd\ufffd\x00"]
    assert piped.console.exit_code == 0


async def test_a_line_of_a_megabyte_is_whole_and_a_longer_one_is_refused_aloud(piped):
    answers, notes = await piped.run(b"x" * 1_000_000 + b"\n" + b"y" * (parse.MAX_LINE + 1) + b"\nlast\n")
    assert piped.got == ["x" * 1_000_000, "last"]
    assert answers == f"You said: {'x' * 1_000_000}\nYou said: last\n"
    assert notes == f"line 2 was not sent: it is longer than {parse.MAX_LINE:,} bytes\n"
    assert piped.console.exit_code == 1


async def test_a_line_waits_until_the_one_before_is_settled(piped):
    async with anyio.create_task_group() as group:
        group.start_soon(piped.serve)
        await piped.type(b"hold\nnext\n")
        await shown(piped, "One moment.")
        await anyio.wait_all_tasks_blocked()
        assert piped.got == ["hold"]
        piped.bot.go.set()
    assert piped.got == ["hold", "next"]
    assert await piped.read(piped.answers) == "held to the end\nYou said: next\n"


@pytest.mark.parametrize("control", ["/stop", "!stop", "Stop", "/status", "/deny q1"])
async def test_what_acts_on_a_running_answer_passes_the_lines_that_wait(piped, control):
    async with anyio.create_task_group() as group:
        group.start_soon(piped.serve)
        await piped.type(f"hold\nnext\n/thread work\nthere\n{control}\nlast".encode())
        await shown(piped, "[work] ")
        assert piped.got == ["hold", control]
        assert piped.bot.got[-1].thread == thread_id("work")
        piped.bot.go.set()
    assert piped.got == ["hold", control, "next", "there", "last"]
    assert piped.console.exit_code == 0


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("fail", "line 1: failed"),
        ("refuse", "line 1: refused"),
        ("full", "line 1 was not sent: it could not be saved to disk"),
        ("/thead work", "line 1: I do not know /thead. Did you mean /thread? /help lists what I know."),
    ],
)
async def test_one_line_that_is_not_settled_well_makes_the_exit_code_1_and_the_next_is_still_tried(
    piped, line, note
):
    answers, notes = await piped.run(f"{line}\nnext\n".encode())
    assert piped.console.exit_code == 1
    assert notes.splitlines()[0] == note
    assert answers.endswith("You said: next\n")


async def test_waits_and_retries_are_told_on_standard_error_as_they_come(piped):
    async with anyio.create_task_group() as group:
        group.start_soon(piped.serve)
        await piped.type(b"limited\n")
        await anyio.wait_readable(piped.notes)
        assert (
            os.read(piped.notes, 1024) == b"line 1 is waiting: rate limited, trying again in 20 s, 2 of 6\n"
        )
        piped.bot.go.set()
    assert await piped.read(piped.answers) == ""
    assert piped.console.exit_code == 0


async def test_a_command_is_a_line_like_any_other(piped):
    answers, _ = await piped.run(b"/status\n/stop\n/etc/hosts is what?\n")
    assert answers == "All is well.\nNothing runs.\nYou said: /etc/hosts is what?\n"
    assert piped.console.exit_code == 0


async def test_a_post_alone_settles_nothing(piped):
    async def sink(event: object) -> None:
        await piped.console.post(Outgoing(event.thread, "k", "one moment", "notice", event.id))

    served = anyio.Event()

    async def serve() -> None:
        await piped.console.serve(sink)
        served.set()

    async with anyio.create_task_group() as group:
        group.start_soon(piped.type, b"/compact\n")
        group.start_soon(serve)
        await shown(piped, "one moment")
        piped.console.show(thread_id("main"), "s1.1", TextDelta("x"))
        piped.console.show(thread_id("main"), "s1.0", TurnSettled("failed"))
        await anyio.wait_all_tasks_blocked()
        assert not served.is_set()
        piped.console.show(thread_id("main"), "s1.1", TurnSettled("answered"))
    assert piped.console.exit_code == 0


async def test_lines_can_go_to_other_threads_and_ask_for_help(piped):
    answers, notes = await piped.run(b"one\n/thread work\ntwo\n/thread\n/help\n/quit\nnever\n")
    expected = [(thread_id("main"), "one"), (thread_id("work"), "two")]
    assert [(message.thread, message.text) for message in piped.bot.got] == expected
    assert "You said: two\nThis is thread work.\n" in answers
    assert "/attach PATH" in answers
    assert notes == ""
    assert piped.console.exit_code == 0


async def test_a_post_of_another_thread_says_so_and_no_escape_sequence_passes(piped):
    async with anyio.create_task_group() as group:
        group.start_soon(piped.serve)
        shown = [
            await piped.console.post(Outgoing(thread_id("old"), "k", "an earlier answer\n")),
            await piped.console.post(Outgoing(thread_id("main"), "k", "a\x1b[2J\x9b1mb\tc\r\nd\ud800")),
        ]
        await piped.type(b"")
    assert len(set(shown)) == 2
    assert await piped.read(piped.answers) == "[old] an earlier answer\na[2J1mb\tc\nd?\n"


async def test_a_broken_pipe_ends_the_serving_with_a_word_and_no_further_line_is_sent(piped):
    piped.close("answers")
    await piped.type(b"one\ntwo\nthree\n")
    await piped.serve()
    assert piped.got == ["one"]
    assert (
        await piped.read(piped.notes)
        == "standard output takes no more answers: Broken pipe\nline 1: undelivered\n"
    )
    assert piped.console.exit_code == 1


async def test_a_broken_standard_error_is_no_failure(piped):
    piped.close("notes")
    await piped.type(b"full\none\n")
    await piped.serve()
    assert await piped.read(piped.answers) == "You said: one\n"


async def test_serving_can_be_cancelled_while_the_input_is_silent_and_while_nobody_reads(piped):
    os.set_blocking(piped.streams[1].fileno(), False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(piped.streams[1].fileno(), b"x" * 4096)
    os.set_blocking(piped.streams[1].fileno(), True)
    ended = []

    async def forever(work, *args) -> None:
        await work(*args)
        ended.append(work)

    with anyio.fail_after(WITHIN_S):
        async with background_tasks() as group:
            group.start_soon(forever, piped.console.serve, piped.bot.sink)
            group.start_soon(forever, piped.console.post, Outgoing(thread_id("main"), "k", "x"))
            await anyio.wait_all_tasks_blocked()
    assert ended == []


async def test_streams_that_were_closed_before_the_start_are_an_empty_input_and_a_refusing_output(
    monkeypatch,
):
    monkeypatch.setenv("TERM", "xterm")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    console = Console(session="s1")
    await console.serve(pytest.fail)
    assert console.exit_code == 0
    with pytest.raises(TransportRejected):
        await console.post(Outgoing(thread_id("main"), "k", "x"))


def script(*, stdin: int | bytes = b"", stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run(
        [sys.executable, "-m", "tests.transports.console.script"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        **given,
    )


def test_a_process_leaves_no_trace_of_a_full_disk_but_a_word():
    with Path("/dev/full").open("wb") as full:
        done = script(stdin=b"one\n", stdout=full.fileno())
    assert done.returncode == 1
    expected = ["standard output takes no more answers: No space left on device", "line 1: undelivered"]
    assert done.stderr.decode().splitlines() == expected


def test_a_regular_file_is_read_like_a_pipe(tmp_path):
    (tmp_path / "lines").write_bytes(b"one\nfail\n")
    with (tmp_path / "lines").open("rb") as lines, (tmp_path / "answers").open("wb") as answers:
        done = script(stdin=lines.fileno(), stdout=answers.fileno())
    assert done.returncode == 1
    assert (tmp_path / "answers").read_text() == "You said: one\nSomething went wrong. (ref abc)\n"


def test_a_pipe_never_waits_for_the_libraries_of_the_terminal():
    program = (
        "import sys, anyio; from transports.console import Console\n"
        "anyio.run(Console(session='s').serve, print)\n"
        "sys.exit(bool({'prompt_toolkit', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"", timeout=60, check=False)
    assert done.returncode == 0
