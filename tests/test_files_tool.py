"""Reading in the workspace, and nowhere else."""

from __future__ import annotations

import os

import pytest

from bot.errors import ToolDenied, ToolError, ToolNotFound
from bot.tools.base import Place
from bot.tools.files import MAX_ENTRIES, MAX_READ, ListArguments, ListFiles, ReadArguments, ReadFile
from tests.world import inline

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret").write_text("key")
    return Place(workspace)


async def read(place, path, offset=0):
    return await ReadFile(inline)(ReadArguments(path=path, offset=offset), place)


async def listing(place, path="."):
    return await ListFiles(inline)(ListArguments(path=path), place)


async def test_a_file_is_read_in_parts_that_say_where_to_go_on(place):
    (place.workspace / "a").write_text("x" * MAX_READ + "end")
    first = await read(place, "a")
    assert first["next_offset"] == MAX_READ
    assert await read(place, "./a", first["next_offset"]) == {"text": "end", "size": MAX_READ + 3}


async def test_text_that_is_no_utf_8_and_bytes_that_are_no_text_are_told_apart(place):
    (place.workspace / "latin").write_bytes(b"caf\xe9")
    (place.workspace / "binary").write_bytes(b"\0\1")
    assert (await read(place, "latin"))["text"] == "caf\ufffd"
    assert await read(place, "binary") == {"binary": True, "size": 2}


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "sub/../../secret", "a\0b", "..", "//etc/passwd", "sub/../.."]
)
async def test_no_path_leads_out_of_the_workspace(place, path):
    (place.workspace / "sub").mkdir()
    with pytest.raises(ToolDenied):
        await read(place, path)
    with pytest.raises(ToolDenied):
        await listing(place, path)


async def test_links_devices_pipes_and_second_names_are_refused(place):
    inside = place.workspace
    (inside / "link").symlink_to(inside.parent / "secret")
    (inside / "folder").symlink_to(inside.parent)
    os.mkfifo(inside / "pipe")
    os.link(inside.parent / "secret", inside / "hard")
    for path in ("link", "folder/secret", "pipe", "hard"):
        with pytest.raises(ToolError) as refused:
            await read(place, path)
        assert str(inside) not in str(refused.value)


async def test_a_workspace_that_is_itself_a_link_is_refused(tmp_path):
    (tmp_path / "workspace").symlink_to("/etc")
    with pytest.raises(ToolError):
        await read(Place(tmp_path / "workspace"), "passwd")


async def test_what_is_missing_is_said_by_the_name_that_was_given(place):
    with pytest.raises(ToolNotFound, match="nope"):
        await read(place, "nope")
    assert await listing(Place(place.workspace / "not yet")) == {"entries": []}


async def test_a_listing_is_sorted_bounded_and_names_kinds(place):
    for n in range(MAX_ENTRIES + 2):
        (place.workspace / f"f{n:04}").write_text("x")
    (place.workspace / "a").mkdir()
    (place.workspace / "b").symlink_to("/etc")
    found = await listing(place)
    assert found["not_shown"] == 4
    assert [e["kind"] for e in found["entries"][:3]] == ["folder", "other", "file"]
