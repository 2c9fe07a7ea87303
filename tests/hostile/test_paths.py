"""Ways out of the workspace, through every tool that takes a path: none leads anywhere."""

import os

import pytest

from .bench import CANARY, Row, params, run_row

OTHER_ARGUMENTS = {  # of each tool that takes a path
    "read_file": {},
    "list_files": {},
    "search_files": {"text": "canary"},
    "write_file": {"content": "mine"},
    "edit_file": {"old": "canary", "new": "mine"},
    "attach": {},
}


def linked(to, path="way"):
    return lambda harness: harness.link(path, to(harness))


def hard(harness):
    harness.put("x")
    os.link(harness.outside / "secret.txt", harness.workspace / "way")


def pipe(harness):
    os.mkfifo(harness.workspace / "way")


def elsewhere(harness):
    """Add another thread's workspace with a file."""
    other = harness.workspace.parent.with_name("W~C2~2.0") / "workspace"
    other.mkdir(parents=True)
    (other / "secret.txt").write_text(CANARY)


WAYS = {  # the path, the preparation, the outcome
    "two dots": ("../../../../outside/secret.txt", lambda _: None, "permission"),
    "an absolute path": ("/etc/passwd", lambda _: None, "permission"),
    "another thread": ("../../W~C2~2.0/workspace/secret.txt", elsewhere, "permission"),
    "a link to a file": ("way", linked(lambda s: s.outside / "secret.txt"), "permission"),
    "a link to a folder": ("way/secret.txt", linked(lambda s: s.outside), "permission"),
    "a hard link": ("way", hard, "permission"),
    "a pipe": ("way", pipe, "permission"),
}

ROWS = [
    Row(f"{tool} by {what}", tool, {"path": path, **arguments}, outcome, before=before)
    for what, (path, before, outcome) in WAYS.items()
    for tool, arguments in OTHER_ARGUMENTS.items()
    if tool != "list_files" or what not in ("a hard link", "a pipe")
]


def dangling(harness):
    harness.link("way", harness.outside / "new.txt")


def many_links(harness):
    """Add a file among links that lead out."""
    harness.put("plain.txt", "canary in plain sight")
    harness.link("folder", harness.outside)
    harness.link("root", "/")
    harness.link("memory", "/proc/self/root")
    harness.link("secret.txt", harness.outside / "secret.txt")


def spill_through_a_link(harness):
    """Make the folder for long results a link, as a command can, before a long result."""
    harness.link("tool-output", harness.outside)
    for number in range(500):
        harness.put(f"{number:03}-{'x' * 120}")


def edited_through_a_swap(harness):
    harness.put("a/x.txt", "canary")
    harness.link("b", "a")


def read(path, name, before=lambda _: None):
    return Row(name, "read_file", {"path": path}, "permission", before=before)


ROWS += [
    read("/proc/self/environ", "read the environment of the bot"),
    read("way/environ", "a link to our own /proc", before=linked(lambda _: "/proc/self")),
    read("way", "a magic link as the target of a link", before=linked(lambda _: "/proc/self/fd/0")),
    read("../context.jsonl", "the conversation itself, beside the workspace"),
    read("../../../../approvals.json", "the permissions that were given"),
    read("attachments/way", "a link among what came in", before=linked(lambda s: s.outside / "secret.txt", "attachments/way")),
    Row("attach from /proc", "attach", {"path": "/proc/self/environ", "name": "notes.txt"}, "permission"),
    Row("write where a link points that leads nowhere yet", "write_file", {"path": "way", "content": "x"}, "permission", before=dangling),
    Row("write away the mark of what came in", "write_file", {"path": "../outside", "content": ""}, "permission"),
    Row("write the workspace itself", "write_file", {"path": ".", "content": "x"}, "validation"),
    Row("edit through a link to a folder of the workspace", "edit_file", {"path": "b/x.txt", "old": "canary", "new": "y"}, "permission", before=edited_through_a_swap),
    Row("list everything below with ways out in it", "list_files", {"recursive": True}, "harmless", "plain.txt", before=many_links),
    Row("search everything with ways out in it", "search_files", {"text": "canary"}, "harmless", "in plain sight", before=many_links),
    Row("load a skill from outside of the skills", "load_skill", {"name": "../threads"}, "not_found"),
    Row("spill a long result through a link", "list_files", {"recursive": True}, "harmless", "could not be saved", before=spill_through_a_link),
]  # fmt: skip


@pytest.mark.parametrize("row", params(ROWS))
async def test_no_path_leads_out(row, tmp_path, monkeypatch):
    await run_row(row, tmp_path, monkeypatch)
