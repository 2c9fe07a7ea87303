"""Reading and listing in the workspace, and nowhere else."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.files import read as module
from bot.extensions.files.read import MAX_ENTRIES, MAX_READ, ListArguments, ListFiles, ReadArguments, ReadFile
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from tests.tool_context import tool_context
from tests.world import inline
from threads.model import Image

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0"


@pytest.fixture
def context(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret").write_text("key")
    return tool_context(workspace)


async def read_output(context, path, **more):
    return await ReadFile(inline)(ReadArguments(path=path, **more), context)


async def read(context, path, **more):
    return (await read_output(context, path, **more)).result


async def listed(context, path=".", **more):
    return await ListFiles(inline)(ListArguments(path=path, **more), context)


async def names(context, path=".", **more):
    return [entry["name"] for entry in (await listed(context, path, **more)).result["entries"]]


async def whole(context, path):
    """Read all of it as the results say."""
    parts, where = [], {}
    while True:
        page = await read(context, path, **where)
        parts.append(page["text"])
        where = {"offset": page.get("next_offset"), "skip": page.get("next_skip", 0)}
        if where["offset"] is None:
            return parts


async def test_a_short_file_is_read_in_one_go(context):
    (context.workspace / "a").write_text("one\ntwo\n")
    assert await read(context, "./a") == {"text": "one\ntwo\n", "size": 8}


async def test_a_file_is_read_in_whole_lines_that_say_where_to_go_on(context):
    text = "".join(f"line {n}\n" for n in range(1, 5001))
    (context.workspace / "a").write_text(text)
    parts = await whole(context, "a")
    assert "".join(parts) == text
    assert all(part.endswith("\n") and len(part) <= MAX_READ for part in parts)
    first = await read(context, "a", limit=10)
    assert (first["text"].count("\n"), first["next_offset"]) == (10, 11)
    assert (await read(context, "a", offset=11, limit=1))["text"] == "line 11\n"


async def test_a_line_longer_than_a_page_is_read_in_whole_characters(context):
    text = "ä€😀" * 10_000 + "\nnext\nlast"
    (context.workspace / "a").write_text(text)
    parts = await whole(context, "a")
    assert "".join(parts) == text
    assert len(parts) > 2


@given(st.text(alphabet="aä€😀\n\r", max_size=60), st.integers(1, 8), st.integers(4, 12))
def test_the_pages_of_any_text_make_up_the_text(text, limit, size):
    data, parts, at = text.encode(), [], 0
    while at < len(data):
        window = data[at : at + size]
        page = module.cut_page(window, limit, last=at + len(window) >= len(data))
        parts.append(page.decode())
        at += len(page)
    assert "".join(parts) == text


async def test_a_line_that_is_not_there_is_said_with_how_many_there_are(context):
    (context.workspace / "a").write_text("one\ntwo\n")
    assert (await read(context, "a", offset=3))["text"] == ""
    for text, lines in (("one\ntwo\n", 2), ("one\ntwo", 2), ("", 0)):
        (context.workspace / "a").write_text(text)
        with pytest.raises(ToolInvalidInput, match=f"only {lines} lines"):
            await read(context, "a", offset=4)


async def test_a_sparse_file_of_a_petabyte_holds_nothing_up(context, monkeypatch):
    monkeypatch.setattr(module, "MAX_SEEK", 3_000_000)
    with (context.workspace / "a").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(ToolInvalidInput, match="too far"):
        await read(context, "a", offset=2)
    assert (await read(context, "a", skip=1 << 42))["binary"] == "unknown"


async def test_a_file_of_50_mb_is_read_at_any_line(context):
    line = b"x" * 99 + b"\n"
    with (context.workspace / "a").open("wb") as file:
        for _ in range(50):
            file.write(line * 10_000)
    page = await read(context, "a", offset=499_999)
    assert page == {"text": (line * 2).decode(), "size": 50_000_000}


async def test_text_that_is_no_utf_8_and_bytes_that_are_no_text_are_told_apart(context):
    (context.workspace / "latin").write_bytes(b"caf\xe9")
    (context.workspace / "colours").write_text("\x1b[31mred\x1b[0m and a good deal of other text")
    for name, data in {"binary": b"\0\1", "zip": b"PK\x03\x04\0", "bells": b"\x07" * 9000}.items():
        (context.workspace / name).write_bytes(data)
    assert (await read(context, "latin"))["text"] == "caf\ufffd"
    assert "red" in (await read(context, "colours"))["text"]
    assert await read(context, "binary") == {"binary": "unknown", "size": 2}
    assert (await read(context, "zip"))["binary"] == "zip archive or office document"
    assert "binary" in await read(context, "bells")


async def test_a_picture_is_told_as_one_and_handed_over(context):
    (context.workspace / "p.png").write_bytes(PNG)
    output = await read_output(context, "/workspace/p.png")
    assert output.result == {"binary": "PNG picture, 2 x 3", "size": len(PNG)}
    assert output.images == (Image("p.png", "image/png"),)
    (context.workspace / "huge.png").write_bytes(PNG.replace(b"\0\0\0\x02", b"\0\xff\0\x02"))
    assert (await read_output(context, "huge.png")).images == ()


async def test_what_came_from_outside_is_marked_so(context):
    (context.workspace / "a").write_text("x")
    assert (await read_output(context, "a")).origin == (await listed(context)).origin == ""
    (context.workspace / "attachments").mkdir()
    assert (await read_output(context, "a")).origin == (await listed(context)).origin == "file"


async def test_what_is_missing_is_said_by_the_name_that_was_given(context):
    with pytest.raises(ToolNotFound, match="nope"):
        await read(context, "nope")
    assert await names(tool_context(context.workspace / "not yet")) == []
    with pytest.raises(ToolNotFound):
        await names(tool_context(context.workspace / "not yet"), "sub")


@pytest.mark.parametrize("path", ["../secret", "/etc", "link", "link/etc"])
async def test_no_folder_outside_is_listed(context, path):
    (context.workspace / "link").symlink_to("/")
    with pytest.raises(ToolDenied):
        await listed(context, path)


def test_a_path_that_leads_out_is_no_subject_of_a_rule():
    assert ReadArguments(path="/workspace/x/../a").subject() == ListArguments(path="a/").subject() == "a"
    with pytest.raises(ToolDenied):
        ReadArguments(path="../a").subject()


async def test_a_listing_is_sorted_bounded_and_names_kinds(context):
    for n in range(MAX_ENTRIES + 2):
        (context.workspace / f"f{n:04}").write_text("x")
    (context.workspace / "a").mkdir()
    (context.workspace / "b").symlink_to("/etc")
    os.mkfifo(context.workspace / "c")
    found = (await listed(context)).result
    assert found["not_shown"] == 5
    assert [entry["kind"] for entry in found["entries"][:4]] == ["folder", "link", "other", "file"]


async def test_a_listing_goes_down_into_folders_and_through_no_link(context):
    for name in ("b/deep/x.py", "a.py", "b/y.txt", "b/z.py"):
        (context.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (context.workspace / name).write_text("x")
    (context.workspace / "b" / "up").symlink_to("../..")
    assert await names(context) == ["a.py", "b"]
    expected = ["a.py", "b", "b/deep", "b/up", "b/y.txt", "b/z.py", "b/deep/x.py"]
    assert await names(context, recursive=True) == expected
    assert await names(context, recursive=True, pattern="*.py") == ["a.py", "b/z.py", "b/deep/x.py"]
    assert await names(context, recursive=True, pattern="b/*.py") == ["b/z.py", "b/deep/x.py"]
    assert await names(context, "b", recursive=True, pattern="x.py") == ["deep/x.py"]


async def test_a_pattern_made_to_take_for_ever_takes_no_time(context):
    (context.workspace / ("a" * 200)).write_text("x")
    assert await names(context, pattern="*a" * 200 + "b") == []


async def test_a_folder_that_cannot_be_read_is_an_error_of_its_own(context, monkeypatch):
    (context.workspace / "closed").mkdir()
    (context.workspace / "open").mkdir()
    real = os.scandir

    def scandir(fd):
        if os.fstat(fd).st_ino == (context.workspace / "closed").stat().st_ino:
            raise PermissionError(13, "closed")
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    found = await listed(context, recursive=True)
    assert [entry["name"] for entry in found.result["entries"]] == ["closed", "open"]
    assert [(error.item, error.type) for error in found.errors] == [("closed", "permission")]


async def test_a_tree_too_large_to_look_through_is_said_to_be(context, monkeypatch):
    monkeypatch.setattr(module, "MAX_VISITED", 3)
    for n in range(5):
        (context.workspace / f"f{n}").write_text("x")
    found = (await listed(context)).result
    assert len(found["entries"]) == 3
    assert "first 3" in found["not_visited"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
async def test_a_file_without_permission_says_so(context):
    (context.workspace / "a").write_text("x")
    (context.workspace / "a").chmod(0)
    with pytest.raises(ToolError, match="permissions"):
        await read(context, "a")
