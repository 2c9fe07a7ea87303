"""A part of a file is replaced only where it is just what the model wrote, and the model sees what that changed."""

import time
from functools import partial

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.files import edit as module
from bot.extensions.files.edit import EditArguments, EditFile, replace_text
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from tests.tool_context import tool_context
from tests.world import inline
from threads.store.disk import PosixDisk

TEXT = "one\ntwo\nthree\nfour\nfive\nsix\n"


@pytest.fixture
def context(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a").write_text(TEXT)
    return tool_context(workspace)


async def edit(context, path, old, new, *, everywhere=False, offload=inline, by=None):
    tool = EditFile(by or Writer(PosixDisk(), offload, Quota(10**9, 100)))
    return await tool(EditArguments(path=path, old=old, new=new, all=everywhere), context)


async def test_a_text_that_occurs_once_is_replaced_and_the_change_is_shown(context):
    output = await edit(context, "/workspace/a", "three\nfour", "drei\nfour")
    assert (context.workspace / "a").read_text() == TEXT.replace("three", "drei")
    diff = "@@ line 1 @@\n one\n two\n-three\n+drei\n four\n five"
    assert output.result == {"edited": "a", "replaced": 1, "line": 3, "diff": diff}
    assert output.origin == ""


async def test_a_text_that_occurs_more_than_once_is_left_alone_and_its_lines_are_named(context):
    (context.workspace / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolInvalidInput, match="occurs 2 times") as refused:
        await edit(context, "a", "x", "z")
    assert refused.value.partial == {"lines": [1, 3]}
    assert (context.workspace / "a").read_text() == "x\ny\nx\n"
    output = await edit(context, "a", "x", "z", everywhere=True)
    assert (context.workspace / "a").read_text() == "z\ny\nz\n"
    assert output.result["replaced"] == 2


async def test_a_text_that_overlaps_itself_is_not_there_once(context):
    (context.workspace / "a").write_text("aaa")
    with pytest.raises(ToolInvalidInput, match="2 times"):
        await edit(context, "a", "aa", "b")


async def test_line_ends_of_the_file_are_kept(context):
    (context.workspace / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await edit(context, "a", "one\ntwo\n", "1\n2\n")
    assert (context.workspace / "a").read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_bytes_that_are_no_utf_8_stay_as_they_are(context):
    (context.workspace / "a").write_bytes(b"caf\xe9 one\n")
    await edit(context, "a", "one", "two")
    assert (context.workspace / "a").read_bytes() == b"caf\xe9 two\n"


async def test_text_that_may_be_from_outside_is_marked_so_in_results_and_errors(context):
    (context.workspace / "attachments").mkdir()
    assert (await edit(context, "a", "one", "1")).origin == "file"
    with pytest.raises(ToolError) as refused:
        await edit(context, "a", "fife", "5")
    assert refused.value.origin == "file"


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("../a", ToolDenied),
        ("link", ToolDenied),
        ("twin", ToolDenied),
        (".", ToolDenied),
        ("missing", ToolNotFound),
        ("binary", ToolInvalidInput),
    ],
)
async def test_only_text_files_of_the_workspace_are_edited(context, path, refusal):
    (context.workspace.parent / "a").write_text(TEXT)
    (context.workspace / "link").symlink_to("a")
    (context.workspace / "twin").hardlink_to(context.workspace.parent / "a")
    (context.workspace / "binary").write_bytes(b"one\0")
    with pytest.raises(refusal):
        await edit(context, path, "one", "1")
    assert (context.workspace.parent / "a").read_text() == TEXT


async def test_what_would_grow_too_large_is_refused_before_it_is_made(context, monkeypatch):
    (context.workspace / "a").write_text("x" * 100_000)
    with pytest.raises(ToolInvalidInput, match="would be larger"):
        await edit(context, "a", "x", "y" * 1_000_000, everywhere=True)
    monkeypatch.setattr(module, "MAX_WRITTEN", 1000)
    with pytest.raises(ToolInvalidInput, match="is larger"):
        await edit(context, "a", "x", "y", everywhere=True)


async def test_edits_of_one_file_side_by_side_all_come_through(context):
    (context.workspace / "a").write_text("".join(f"<{n}>\n" for n in range(12)))
    by = Writer(PosixDisk(), anyio.to_thread.run_sync, Quota(10**9, 100))
    async with anyio.create_task_group() as tasks:
        for n in range(12):
            tasks.start_soon(partial(edit, context, "a", f"<{n}>", f"[{n}]", by=by))
    assert (context.workspace / "a").read_text() == "".join(f"[{n}]\n" for n in range(12))


letters = st.text(alphabet="ab\n ", max_size=30)


@given(letters, letters.filter(bool), letters)
def test_an_edit_is_what_replacing_is_or_a_refusal(text, old, new):
    data, positions = text.encode(), [at for at in range(len(text)) if text.startswith(old, at)]
    try:
        edit = replace_text(data, old.encode(), new.encode(), everywhere=False)
    except ToolInvalidInput as error:
        assert len(positions) != 1
        assert (error.partial is not None) == (len(positions) > 1)
    else:
        assert len(positions) == edit.count == 1
        assert edit.data.decode() == text[: positions[0]] + new + text[positions[0] + len(old) :]
        assert edit.line == text.count("\n", 0, positions[0]) + 1


@given(
    st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=12), st.sampled_from(["a", "b", "a\nb"]), letters
)
def test_the_shown_change_names_only_lines_that_are_there_before_and_after(lines, old, new):
    text = "\n".join(lines)
    if old not in text:
        return
    edit = replace_text(text.encode(), old.encode(), new.encode(), everywhere=True)
    assert edit.data.decode() == text.replace(old, new)
    for line in edit.diff.split("\n"):
        if line.startswith("-"):
            assert line[1:] in lines
        if line.startswith("+"):
            assert line[1:] in edit.data.decode().split("\n")


@pytest.mark.parametrize(
    ("data", "old", "new"),
    [
        pytest.param(b"ab" * 4_500_000, b"b", b"c", id="one long line"),
        pytest.param(b"a\n" * 4_500_000, b"a", b"b", id="many lines"),
        pytest.param(b"x = 1\n" * 1_500_000, b"x = 2\n", b"", id="not there, and all alike"),
        pytest.param(b"\n".join(b"%0199d" % n for n in range(40_000)), b"z" * 199, b"", id="long lines"),
        pytest.param(b"a\n" * 4_000_000 + b"b", b"a\n" * 2_000_000 + b"b", b"b", id="a long text"),
    ],
)
def test_large_files_are_edited_in_good_time_and_their_changes_shown_short(data, old, new):
    began = time.process_time()
    try:
        edit = replace_text(data, old, new, everywhere=True)
        assert len(edit.diff) <= module.MAX_DIFF + 1
    except ToolInvalidInput as error:
        assert len(str(error.partial)) < 2000
    assert time.process_time() - began < 10
