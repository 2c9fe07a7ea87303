"""Files at the console: given by the bot into a folder, given by a person with `/attach`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.transports.console.consoles import at_terminal, between_pipes
from threads.errors import FileUnavailable, TransportRejected, TransportUnavailable
from threads.model import Attachment
from transports.console import Console, files
from transports.console.parse import thread_id

MAIN = thread_id("main")


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("milk")
    (folder / "my list.csv").write_text("a,b\n")
    return folder


def a_file(tmp_path, data=b"%PDF"):
    (tmp_path / "source").write_bytes(data)
    return tmp_path / "source"


async def test_a_file_from_the_bot_is_kept_and_the_pipe_says_where(tmp_path):
    async with between_pipes(attached=tmp_path / "attached") as piped:
        await piped.console.attach(MAIN, "k1", a_file(tmp_path), "report.pdf")
        await piped.console.attach(MAIN, "k2", a_file(tmp_path, b"x" * 1500), "report.pdf")
        answers, notes = await piped.run(b"")
    kept = tmp_path / "attached" / "report.pdf"
    second = kept.with_name("report-2.pdf")
    assert answers == f"File report.pdf (4 bytes): {kept}\nFile report.pdf (1.5 kB): {second}\n"
    assert (kept.read_bytes(), len(second.read_bytes())) == (b"%PDF", 1500)
    assert notes == ""
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_descriptor_is_a_file_too(tmp_path):
    fd = os.open(a_file(tmp_path), os.O_RDONLY)
    try:
        path, size = files.copy_into(tmp_path / "attached", Path(f"/dev/fd/{fd}"), "a.pdf")
    finally:
        os.close(fd)
    assert (path.read_bytes(), size) == (b"%PDF", 4)


@pytest.mark.parametrize("number", [1, 3, 11])
async def test_no_file_and_no_link_is_ever_written_over(tmp_path, number):
    folder = tmp_path / "attached"
    folder.mkdir()
    (folder / "a.txt").symlink_to(tmp_path / "elsewhere")
    for n in range(2, number + 1):
        (folder / f"a-{n}.txt").write_text("there")
    path, _ = files.copy_into(folder, a_file(tmp_path), "a.txt")
    assert path.name == f"a-{number + 1}.txt"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["../up", "/etc/up", "up", "a/../up"])
async def test_a_name_leads_nowhere_else(tmp_path, name):
    path, _ = files.copy_into(tmp_path / "attached", a_file(tmp_path), name)
    assert path == tmp_path / "attached" / "up"


async def test_a_full_disk_leaves_no_half_file_and_the_tool_hears_that_nothing_was_posted(
    tmp_path, monkeypatch
):
    async with between_pipes(attached=tmp_path / "attached") as piped:

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(files.shutil, "copyfileobj", full)
        with pytest.raises(TransportUnavailable) as failed:
            await piped.console.attach(MAIN, "k", a_file(tmp_path), "a.txt")
    assert not failed.value.maybe_posted
    assert list((tmp_path / "attached").iterdir()) == []


async def test_without_a_folder_a_console_takes_no_files(tmp_path):
    console = Console(session="s1", interactive=False)
    assert not console.capabilities.files
    assert Console(session="s1", interactive=False, attached=tmp_path).capabilities.files
    with pytest.raises(TransportRejected):
        await console.attach(MAIN, "k", a_file(tmp_path), "a.txt")


async def test_a_line_of_a_pipe_attaches_nothing(mine):
    async with between_pipes() as piped:
        answers, notes = await piped.run(f"/attach {mine / 'notes.txt'}\nhello\n".encode())
    assert notes == "line 1: files can only be attached at a terminal\n"
    assert answers == "You said: hello\n"
    assert piped.bot.got[0].files == ()
    assert piped.console.exit_code == 1


@pytest.mark.parametrize(
    "typed", ["{}/my list.csv", "'{}/my list.csv'", '"{}/my list.csv"', "{}/my\\ list.csv"]
)
def test_a_path_may_be_as_a_terminal_writes_what_is_dropped_on_it(mine, typed):
    given = files.read_attachment(typed.format(mine), "f1")
    assert given == Attachment("f1", "my list.csv", "text/csv", 4, str(mine / "my list.csv"))


def test_a_path_may_begin_at_home(mine, monkeypatch):
    monkeypatch.setenv("HOME", str(mine))
    assert files.read_attachment("~/notes.txt", "f1").size == 4


async def given(attachment):
    console = Console(session="s1", interactive=False)
    async with console.download(attachment) as chunks:
        return [chunk async for chunk in chunks]


async def test_a_file_of_a_person_is_read_piece_by_piece(mine):
    (mine / "big").write_bytes(b"x" * 100_000)
    chunks = await given(files.read_attachment(str(mine / "big"), "f1"))
    assert [len(chunk) for chunk in chunks] == [65_536, 34_464]


@pytest.mark.parametrize("now", ["gone", "pipe", "folder"])
async def test_a_file_that_is_none_any_more_is_said_to_be(mine, now):
    attachment = files.read_attachment(str(mine / "notes.txt"), "f1")
    (mine / "notes.txt").unlink()
    if now == "pipe":
        os.mkfifo(mine / "notes.txt")
    if now == "folder":
        (mine / "notes.txt").mkdir()
    with pytest.raises(FileUnavailable) as missing:
        await given(attachment)
    assert missing.value.friendly == files.GONE


async def test_at_a_terminal_a_file_goes_with_the_next_message_and_with_no_command(mine, tmp_path):
    async with at_terminal(attached=tmp_path / "attached") as session:
        session.screen.columns = 100
        for line, shown in (
            (f"/attach {mine}/none", "(No such file or directory)"),
            (f"/attach {mine}", "Is a directory"),
            (f"/attach {mine}/my list.csv", "my list.csv (4 bytes) goes with your next message."),
            ("/attach", "Nothing goes with your next message."),
            (f"/attach {mine}/notes.txt", "notes.txt (4 bytes) goes with your next message."),
            ("/status", "All is well."),
            ("one", "You said: one"),
            ("two", "You said: two"),
        ):
            await session.enter(line, shown)
        await session.console.attach(MAIN, "k", a_file(tmp_path), "report.pdf")
        await session.screen.shows("· File report.pdf (4 bytes):")
        messages = session.bot.got
    assert [[file.name for file in message.files] for message in messages] == [[], ["notes.txt"], []]
    assert (tmp_path / "attached" / "report.pdf").read_bytes() == b"%PDF"
