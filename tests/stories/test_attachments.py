"""Files that come with a message: whole on disk under safe names, told to the person and the model, or not there."""

from __future__ import annotations

import errno
import re
import struct
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.adapters.wire_form import fit
from bot.ports.errors import BadRequest, CapabilityMissing, ThinkingRejected
from tests.patience import until
from tests.sim.loop import virtual_time
from tests.world import (
    T1,
    FaultyDisk,
    FaultyFile,
    Gate,
    Platform,
    Scripted,
    calls,
    converse,
    message,
    running,
    says,
)
from threads.errors import FileUnavailable
from threads.model import Attachment, Image, Incoming, Text, TurnLimits
from threads.store.attachments import MAX_NAME, paths, safe_name
from threads.store.data_folder import thread_folder
from threads.store.image_header import MAX_BYTES, read_header
from threads.store.thread_files import MAX_FILES, WITHIN_S

ANY_ID = re.compile(".*")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 2, 3) + b"rest"


anyio_backend = virtual_time


class Giving(Platform):
    """A platform whose messages have files: what each file's id gives, in chunks, an exception as the last one."""

    def __init__(self, **contents):
        super().__init__()
        self.contents, self.opened = contents, []

    @asynccontextmanager
    async def download(self, attachment):
        self.opened.append(attachment.id)
        content = self.contents[attachment.id]

        async def chunks():
            for chunk in content if isinstance(content, list) else [content]:
                if isinstance(chunk, Exception):
                    raise chunk
                if chunk is None:
                    await anyio.sleep_forever()
                yield chunk

        yield chunks()


def with_files(*files, n=1, text="what is this?"):
    m = message(n, text)
    return Incoming(m.id, m.thread, m.author, m.text, m.sent_at, files=files)


def workspace(data):
    return thread_folder(data, T1) / "workspace"


def kept(data):
    """Return all that is in the thread's attachments, and nothing may be left beside them."""
    assert not (thread_folder(data, T1) / "attachment.tmp").exists()
    folder = workspace(data) / "attachments"
    return (
        {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        if folder.exists()
        else {}
    )


async def answer(data, platform, incoming, model=None, **given):
    model = model or Scripted()
    await converse(data, platform, model, incoming, **given)
    return model.requests[0].messages[-1] if model.requests else None


async def test_a_file_is_in_the_workspace_before_the_model_is_asked_and_the_model_is_told_its_path(tmp_path):
    platform = Giving(F1=[b"one ", b"two"])
    sent = await answer(tmp_path, platform, with_files(Attachment("F1", "notes.txt", "text/plain", 7)))
    assert kept(tmp_path) == {"m1-notes.txt": b"one two"}
    assert "> attachments/m1-notes.txt (text/plain, 7 bytes; its text is below)" in sent.text
    assert sent.blocks[-1] == Text("what is this?"), "a person's own words come last"
    path = workspace(tmp_path) / "attachments" / "m1-notes.txt"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "size", "why"),
    [
        ([b"x" * 600_000, b"x" * 600_000], 0, "it is larger than 1 MB."),
        (b"never asked for", 1_000_001, "it is larger than 1 MB."),
        ([b"half", ConnectionResetError("http://secret")], 0, "I could not get it from where it is kept."),
        ([b"half", None], 0, "it took too long to arrive."),
    ],
)
async def test_a_file_that_cannot_be_had_is_told_to_the_person_and_the_model_and_nothing_of_it_is_left(
    tmp_path, content, size, why
):
    platform, started = Giving(F1=content), anyio.current_time()
    incoming = with_files(Attachment("F1", "big.zip", "", size))
    sent = await answer(tmp_path, platform, incoming, limits=TurnLimits(attachment_bytes=1_000_000))
    assert platform.texts == [f"I could not read big.zip: {why}\n\nok"]
    assert f"> big.zip could not be read: {why}" in sent.text
    assert kept(tmp_path) == {}
    assert bool(platform.opened) == (size == 0)
    assert anyio.current_time() - started <= WITHIN_S + 1


async def test_what_the_platform_says_about_a_file_is_what_the_person_reads(tmp_path):
    refused = FileUnavailable("HTTP 403 missing_scope")
    refused.friendly = "I lack the right to read files here."
    platform = Giving(F1=[refused])
    await answer(tmp_path, platform, with_files(Attachment("F1", "a.txt")))
    assert platform.texts == ["I could not read a.txt: I lack the right to read files here.\n\nok"]


class FullDisk(FaultyDisk):
    """Takes a little of each attachment, and then no more."""

    def create(self, path):
        file = super().create(path)
        if path.name != "attachment.tmp":
            return file
        left = iter(range(1))

        def check():
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "full")

        return FaultyFile(file, check)


async def test_a_full_disk_costs_the_file_but_not_the_answer(tmp_path):
    platform = Giving(F1=[b"one", b"two"], F2=b"small")
    incoming = with_files(Attachment("F1", "a.txt"), Attachment("F2", "b.txt"))
    await answer(tmp_path, platform, incoming, disk=FullDisk())
    assert platform.texts == ["I could not read a.txt: my disk is full.\n\nok"]
    assert kept(tmp_path) == {"m1-b.txt": b"small"}


async def test_only_so_many_files_of_a_message_are_read(tmp_path):
    platform = Giving(F=b"x")
    await answer(tmp_path, platform, with_files(*[Attachment("F", "same.txt")] * (MAX_FILES + 2)))
    assert len(kept(tmp_path)) == len(platform.opened) == MAX_FILES
    assert platform.texts[0].startswith("I could not read 2 more files: I read at most 10")


async def test_after_a_crash_a_file_that_is_there_is_not_fetched_again(tmp_path):
    platform = Giving(F1=[b"whole"], F2=[b"half", None])
    both = with_files(Attachment("F1", "a.png", "image/png"), Attachment("F2", "b"))
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(both)
        await until(lambda: platform.opened == ["F1", "F2"])
        assert [path.name for path in (workspace(tmp_path) / "attachments").iterdir()] == ["m1-a.png"]
    platform.contents["F2"] = [b"half", b" and half"]
    model = Scripted()
    async with running(tmp_path, platform, model):
        await platform.settled("m1")
    assert platform.opened == ["F1", "F2", "F2"]
    assert kept(tmp_path) == {"m1-a.png": b"whole", "m1-b": b"half and half"}
    assert "m1-a.png (of unknown type, 5 bytes; its text is below)" in model.requests[0].messages[-1].text


async def test_a_stop_while_a_file_arrives_leaves_nothing_behind(tmp_path):
    platform = Giving(F1=[b"half", None])
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(with_files(Attachment("F1", "a.txt")))
        await until(lambda: platform.opened)
        await bot.orchestrator.receive(message(2, "stop"))
        await platform.settled("m1", "m2")
    assert platform.outcomes["m1"] == "stopped"
    assert kept(tmp_path) == {}


async def merged(data, platform):
    """Bring a message with the file F2, "late.txt", while a turn runs; return what the model is told of it."""
    gate = Gate(calls("list_files", path="."))
    model = Scripted(gate, says("both"))
    async with running(data, platform, model) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(with_files(Attachment("F2", "late.txt"), n=2))
        gate.open.set()
        await platform.settled("m1", "m2")
    assert platform.outcomes["m2"] == "merged"
    return model.requests[1].messages[-1]


async def test_a_message_that_joins_a_running_turn_has_its_files_read(tmp_path):
    assert ">\nlate words\n</" in (await merged(tmp_path, Giving(F2=b"late words"))).text


async def test_a_link_that_a_tool_left_in_the_way_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    workspace(tmp_path).mkdir(parents=True)
    (workspace(tmp_path) / "attachments").symlink_to(outside)
    platform = Giving(F1=b"x")
    await answer(tmp_path, platform, with_files(Attachment("F1", "a.txt")))
    assert platform.texts == ["I could not read a.txt: my disk refuses to save it.\n\nok"]
    assert not list(outside.iterdir())


async def test_a_picture_is_shown_to_the_model_and_only_its_path_is_stored(tmp_path):
    platform, model = Giving(F1=PNG), Scripted(calls("list_files", path="."), says("a cat"))
    await answer(tmp_path, platform, with_files(Attachment("F1", "cat.dat", "text/plain")), model)
    first, second = (request.messages[0] for request in model.requests)
    assert Image("attachments/.shown/m1-cat.dat.png", "image/png", PNG) in first.blocks
    assert first == second
    stored = (thread_folder(tmp_path, T1) / "context.jsonl").read_text()
    assert '"attachments/.shown/m1-cat.dat.png","media_type":"image/png"' in stored
    assert "IHDR" not in stored
    again = Scripted()
    (workspace(tmp_path) / "attachments/.shown/m1-cat.dat.png").write_bytes(b"changed")
    await answer(tmp_path, platform, message(2), again)
    gone = Text("(a picture that cannot be shown here: attachments/.shown/m1-cat.dat.png)")
    assert gone in again.requests[0].messages[0].blocks


@pytest.mark.parametrize(
    "content", [b"<svg/>", PNG + b"x" * MAX_BYTES, PNG[:16] + struct.pack(">II", 9_000, 9_000), PNG[:20]]
)
async def test_what_is_no_picture_that_providers_take_stays_a_file(tmp_path, content):
    platform = Giving(F1=content)
    sent = await answer(tmp_path, platform, with_files(Attachment("F1", "a.png", "image/png")))
    assert all(isinstance(block, Text) for block in sent.blocks)
    assert "attachments/m1-a.png" in sent.text
    assert "shown" not in sent.text


async def test_a_model_that_cannot_see_answers_from_the_words_and_says_so(tmp_path):
    blind = CapabilityMissing("missing_vision", "fake/one cannot see pictures")
    platform, model = Giving(F1=PNG), Scripted(blind, says("no idea"))
    await answer(tmp_path, platform, with_files(Attachment("F1", "cat.png")), model)
    assert platform.texts[0].startswith("(fake/one cannot see pictures, so I went by the words alone.)")
    assert platform.texts[0].endswith("no idea")
    said = fit(model.requests[0].messages, "fake/one", ANY_ID, vision=False)
    assert said == fit(model.requests[1].messages, "fake/one", ANY_ID), "cached prefix"
    later = Scripted()
    await answer(tmp_path, platform, message(2), later)
    assert any(isinstance(block, Image) for block in later.requests[0].messages[0].blocks), (
        "another may see it"
    )


async def test_a_picture_that_the_provider_refuses_does_not_spoil_the_thread(tmp_path):
    platform, model = Giving(F1=PNG), Scripted(BadRequest("could not process image"), says("fine"))
    await answer(tmp_path, platform, with_files(Attachment("F1", "cat.png")), model)
    assert platform.texts[0].startswith("(fake/one did not take the pictures")
    later = Scripted()
    await answer(tmp_path, platform, message(2), later)
    assert len(later.requests) == 1
    assert all(isinstance(block, Text) for m in later.requests[0].messages for block in m.blocks)


async def test_a_bad_request_that_no_picture_is_to_blame_for_fails_and_keeps_the_picture(tmp_path):
    platform, model = Giving(F1=PNG), Scripted(BadRequest("a"), BadRequest("b"))
    await converse(tmp_path, platform, model, with_files(Attachment("F1", "cat.png")), message(2))
    assert platform.outcomes == {"m1": "failed", "m2": "answered"}
    assert any(isinstance(block, Image) for m in model.requests[2].messages for block in m.blocks)


async def test_reasoning_that_is_refused_is_not_blamed_on_the_picture(tmp_path):
    platform, model = Giving(F1=PNG), Scripted(ThinkingRejected("signature"), says("a cat"))
    await answer(tmp_path, platform, with_files(Attachment("F1", "cat.png")), model)
    assert platform.texts[0].endswith("a cat")
    assert "pictures" not in platform.texts[0]
    assert any(isinstance(block, Image) for block in model.requests[1].messages[-1].blocks)


async def test_no_more_pictures_are_sent_than_providers_take_and_the_newest_are(tmp_path):
    large = PNG + b"x" * 3_000_000
    platform = Giving(F=large)
    for n in (1, 2):
        model = Scripted()
        await answer(tmp_path, platform, with_files(*[Attachment("F", "a.png")] * 4, n=n), model)
    shown = [[b for b in m.blocks if isinstance(b, Image)] for m in model.requests[0].messages]
    assert [len(blocks) for blocks in shown] == [0, 0, 4]


NASTY = [
    "../../etc/passwd", "..", ".", "", "/", "\\", "a/b\\c.txt", "\0\n\r\t", "\u202egpj.exe", "x" * 500 + ".pdf",
    "<!channel>.txt", "`rm`.sh", "Zoë.txt", "Zoe\u0308.txt", "\ud800.txt", "漢字" * 200, ".bashrc", "-rf", "a." + "b" * 300,
    "हिन्दी.txt", "CON", "a\u2028b", "😀.png", " ",
]  # fmt: skip


@given(st.one_of(st.sampled_from(NASTY), st.text()))
def test_a_name_is_one_plain_part_of_a_path(name):
    safe = safe_name(name)
    assert safe == safe_name(safe), "stable"
    assert 0 < len(safe.encode()) <= MAX_NAME
    assert not set(safe) & set("/\\\0\n\r\t<>`*|\"'&$;:\u202e\u2028")
    assert safe.strip(".")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("Zoe\u0308.txt", "Zoë.txt"),
        ("", "file"),
        ("..", "file"),
        ("<!channel>.txt", "__channel_.txt"),
        ("हिन्दी.txt", "हिन्दी.txt"),
        ("x" * 500 + ".pdf", "x" * 116 + ".pdf"),
    ],
)
def test_a_name_stays_readable(name, safe):
    assert safe_name(name) == safe


ids = st.text("1-~.a/", min_size=1, max_size=4)
some_names = st.lists(st.one_of(st.sampled_from(NASTY), st.text("aA2-.", max_size=4)), max_size=5)


@given(ids, some_names, ids, some_names)
def test_no_two_files_have_the_same_path(one, names, other, others):
    mine, theirs = list(paths(one, names)), list(paths(other, others))
    assert len({path.casefold() for path in mine}) == len(mine) == len(names)
    assert one == other or not set(mine) & set(theirs)
    assert all(path.count("/") == 1 and len(path.encode()) < 255 for path in mine)


def jpeg(*segments):
    return b"\xff\xd8" + b"".join(
        b"\xff" + bytes([m]) + struct.pack(">H", len(body) + 2) + body for m, body in segments
    )


@pytest.mark.parametrize(
    ("head", "kind", "width", "height"),
    [
        (PNG, "image/png", 2, 3),
        (b"GIF89a" + struct.pack("<HH", 4, 5), "image/gif", 4, 5),
        (
            jpeg((0xE0, b"JFIF"), (0xE1, b"x" * 900), (0xC2, b"\x08" + struct.pack(">HH", 7, 6))),
            "image/jpeg",
            6,
            7,
        ),
        (b"RIFF....WEBPVP8 " + b"." * 10 + struct.pack("<HH", 8, 9), "image/webp", 8, 9),
        (b"RIFF....WEBPVP8L" + b"." * 5 + struct.pack("<I", 9 | 10 << 14), "image/webp", 10, 11),
        (b"RIFF....WEBPVP8X" + b"." * 8 + b"\x0b\0\0\x0c\0\0", "image/webp", 12, 13),
        (b"\xff\xd8\xff\xff\xff\xd9", "image/jpeg", 0, 0),
    ],
)
def test_a_picture_tells_its_kind_and_its_sides(head, kind, width, height):
    seen = read_header(head)
    assert (seen.media_type, seen.width, seen.height) == (kind, width, height)


@given(
    st.sampled_from([b"", PNG[:8], b"GIF89a", b"\xff\xd8\xff", b"RIFF....WEBPVP8X", b"RIFF....WEBPVP8L"]),
    st.binary(),
)
def test_no_bytes_break_the_look_at_them(start, rest):
    read_header(start + rest)
