"""Searching the workspace: what is found, and that nothing a model asks for holds the bot up."""

from dataclasses import replace

import anyio
import pytest

from bot.extensions.files import search as module
from bot.extensions.files.search import MAX_MATCHES, SearchArguments, SearchFiles
from bot.ports.errors import ToolDenied, ToolNotFound, ToolTimeout
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


async def test_a_search_can_be_told_where_and_how(context):
    assert await matches(context, "needle.") == ["notes.md:4: needle."]
    assert await matches(context, "(") == []
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


@pytest.mark.parametrize(("limit_s", "call_s"), [(0.0, 60.0), (60.0, 0.0)], ids=["a search", "the call"])
async def test_a_search_ends_in_time_with_what_was_found(context, monkeypatch, limit_s, call_s):
    monkeypatch.setattr(module, "TIMEOUT_S", limit_s)
    with pytest.raises(ToolTimeout) as late:
        call = SearchFiles(anyio.to_thread.run_sync)(
            SearchArguments(text="needle"), replace(context, deadline=anyio.current_time() + call_s)
        )
        await call
    assert late.value.partial["count"] == 0


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
    expected = [("large", "unknown"), ("twin", "permission")]
    assert [(error.item, error.type) for error in found.errors] == expected


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
