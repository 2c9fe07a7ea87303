"""Searching the workspace: what is found, and that nothing a model asks for holds the bot up."""

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound, ToolTimeout
from bot.tools.files import search as module
from bot.tools.files.search import MAX_MATCHES, SearchArguments, SearchFiles
from tests.patience import WITHIN_S
from tests.tool_context import tool_context
from tests.world import inline


@pytest.fixture
def context(tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "src").mkdir(parents=True)
    (tmp_path / "secret").write_text("needle")
    (workspace / "notes.md").write_text("one\na Needle, and a needle\r\n\nneedle.\n")
    (workspace / "src" / "a.py").write_text("needle = 1\n")
    (workspace / "binary").write_bytes(b"needle\0")
    (workspace / "link").symlink_to("../secret")
    (workspace / "up").symlink_to("..")
    return tool_context(workspace)


async def search(context, text, **more):
    with anyio.fail_after(WITHIN_S):
        return await SearchFiles(inline)(SearchArguments(text=text, **more), context)


async def matches(context, text, **more):
    found = (await search(context, text, **more)).result["matches"]
    return found.split("\n") if found else []


def matchers():
    """Return the processes of ours that match."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if module.MATCHER.name.encode() in (entry / "cmdline").read_bytes():
                    stat = (entry / "stat").read_text().rpartition(")")[2].split()
                    found += [entry.name] if int(stat[1]) == os.getpid() else []
            except OSError:
                continue
    return found


async def test_a_text_is_found_with_its_files_and_lines_and_no_link_is_followed(context):
    found = await search(context, "needle")
    assert found.result == {
        "matches": "notes.md:2: a Needle, and a needle\nnotes.md:4: needle.\nsrc/a.py:1: needle = 1",
        "count": 3,
        "searched": 2,
        "binary_skipped": 1,
    }
    assert found.errors == ()
    assert found.origin == ""
    assert matchers() == []


async def test_a_search_can_be_told_where_and_how(context):
    assert await matches(context, "needle.") == ["notes.md:4: needle."]
    assert await matches(context, "^needle.", regex=True) == ["notes.md:4: needle.", "src/a.py:1: needle = 1"]
    assert len(await matches(context, "^A NEEDLE", regex=True, ignore_case=True)) == 1
    assert await matches(context, "needle$", regex=True) == ["notes.md:2: a Needle, and a needle"]
    assert await matches(context, "needle", pattern="*.py") == ["src/a.py:1: needle = 1"]
    assert await matches(context, "needle", path="/workspace/src") == ["src/a.py:1: needle = 1"]
    assert await matches(context, "NEEDLE", path="src/a.py", ignore_case=True) == ["src/a.py:1: needle = 1"]
    assert await matches(context, "nowhere") == []
    assert await matches(tool_context(context.workspace / "none"), "x") == []


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("..", ToolDenied),
        ("/etc", ToolDenied),
        ("up", ToolDenied),
        ("link", ToolDenied),
        ("no", ToolNotFound),
    ],
)
async def test_nothing_outside_is_searched(context, path, refusal):
    with pytest.raises(refusal):
        await search(context, "needle", path=path)


@pytest.mark.parametrize(("limit_s", "call_s"), [(1.0, 60.0), (60.0, 1.0)], ids=["a search", "the call"])
async def test_an_expression_that_never_ends_is_ended_with_what_was_found(
    context, monkeypatch, limit_s, call_s
):
    monkeypatch.setattr(module, "TIMEOUT_S", limit_s)
    (context.workspace / "src" / "b.py").write_text("a" * 40 + "!")
    with pytest.raises(ToolTimeout) as late:
        await search(replace(context, deadline=anyio.current_time() + call_s), "needle|^(a+)+$", regex=True)
    assert late.value.partial["count"] == 3
    assert matchers() == []


async def test_a_search_that_is_stopped_leaves_no_process_behind(context):
    (context.workspace / "b").write_text("a" * 40 + "!")
    with anyio.move_on_after(0.5) as scope:
        await search(context, "^(a+)+$", regex=True)
    assert scope.cancelled_caught
    assert matchers() == []


@pytest.mark.parametrize(
    "expression",
    ["(", "a{99999999999999999999}", "(?P<x", "[", "(" * 900, "*", "(?P<" + "\U0001f600" * 990 + ">x)"],
)
async def test_what_is_no_expression_is_refused_in_words(context, expression):
    with pytest.raises(ToolInvalidInput, match="not a valid regular expression"):
        await search(context, expression, regex=True)
    assert await matches(context, expression) == []


async def test_too_many_matches_and_too_long_lines_are_cut_and_said_to_be(context):
    (context.workspace / "many").write_text("x needle\n" * 100_000)
    found = (await search(context, "x needle")).result
    assert found["count"] == MAX_MATCHES
    assert "more" in found
    (context.workspace / "long").write_text("ä" * 100_000 + "needle" + "😀" * 100_000)
    (line,) = await matches(context, "needle", path="long")
    assert "needle" in line
    assert len(line) < 300


async def test_a_file_that_cannot_be_searched_is_an_error_of_its_own(context, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE", 100)
    (context.workspace / "large").write_text("needle" * 100)
    (context.workspace / "twin").hardlink_to(context.workspace.parent / "secret")
    found = await search(context, "needle")
    assert found.result["count"] == 3
    assert [(error.item, error.type) for error in found.errors] == [
        ("large", "unknown"),
        ("twin", "permission"),
    ]


async def test_a_matcher_that_cannot_start_or_dies_is_told_in_words(context, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MATCHER", tmp_path / "none.py")
    with pytest.raises(ToolError, match="took too much"):
        await search(context, "needle")
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with pytest.raises(ToolError, match="could not be started"):
        await search(context, "needle")


async def test_many_files_are_searched(context):
    for n in range(300):
        (context.workspace / f"f{n:03}").write_text("x" * 20_000 + f"\nneedle {n}\n")
    found = (await search(context, "needle 299")).result
    assert found["matches"] == "f299:2: needle 299"
    assert found["searched"] == 302


async def test_a_name_of_control_characters_does_no_harm(context):
    (context.workspace / "a\nb\x1b[2J").write_text("needle")
    assert "a?b?[2J:1: needle" in await matches(context, "needle")


async def test_what_came_from_outside_is_marked_so(context):
    (context.workspace / "tool-output").mkdir()
    assert (await search(context, "needle")).origin == "file"
