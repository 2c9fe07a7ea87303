"""Ways out of the workspace, through every tool that takes a path: none leads anywhere."""

import os
import socket

import pytest

from .bench import CANARY, Row, judge, params

pytestmark = pytest.mark.anyio

SHORT = {  # a tool that takes a path, and what it is given besides
    "read_file": {},
    "list_files": {},
    "search_files": {"text": "canary"},
    "write_file": {"content": "mine"},
    "edit_file": {"old": "canary", "new": "mine"},
    "attach": {},
}


def linked(to, path="way"):
    return lambda scene: scene.link(path, to(scene))


def hard(scene):
    scene.put("x")
    os.link(scene.outside / "secret.txt", scene.workspace / "way")


def pipe(scene):
    os.mkfifo(scene.workspace / "way")


def unix_socket(scene):
    where = os.open(scene.workspace, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{where}/way")  # the path itself is too long for one
    os.close(where)


def elsewhere(scene):
    """Another thread's workspace, with a file in it."""
    other = scene.workspace.parent.with_name("W~C2~2.0") / "workspace"
    other.mkdir(parents=True)
    (other / "secret.txt").write_text(CANARY)


WAYS = {  # what is tried: the path, what is prepared, how it ends
    "two dots": ("../../../../outside/secret.txt", lambda _: None, "permission"),
    "an absolute path": ("/etc/passwd", lambda _: None, "permission"),
    "another thread": ("../../W~C2~2.0/workspace/secret.txt", elsewhere, "permission"),
    "a link to a file": ("way", linked(lambda s: s.outside / "secret.txt"), "permission"),
    "a link to a folder": ("way/secret.txt", linked(lambda s: s.outside), "permission"),
    "a hard link": ("way", hard, "permission"),
    "a pipe": ("way", pipe, "permission"),
}

ROWS = [
    Row(f"{tool} by {what}", tool, {"path": path, **given}, kind, before=before)
    for what, (path, before, kind) in WAYS.items()
    for tool, given in SHORT.items()
    if tool != "list_files" or what not in ("a hard link", "a pipe")
]


def dangling(scene):
    scene.link("way", scene.outside / "new.txt")


def looped(scene):
    scene.link("way", "way")


def link_in_the_middle(scene):
    scene.put("a/b/c.txt")
    scene.link("a/up", "../../../../../../outside")


def many_links(scene):
    """Words among ways out: whoever walks must not follow."""
    scene.put("plain.txt", "canary in plain sight")
    scene.link("folder", scene.outside)
    scene.link("root", "/")
    scene.link("memory", "/proc/self/root")
    scene.link("secret.txt", scene.outside / "secret.txt")


def spill_through_a_link(scene):
    """The folder for long results is a way out, as a command can leave it; the result to come is long."""
    scene.link("tool-output", scene.outside)
    for number in range(500):
        scene.put(f"{number:03}-{'x' * 120}")


def edited_through_a_swap(scene):
    scene.put("a/x.txt", "canary")
    scene.link("b", "a")


def read(path, name, kind="permission", before=lambda _: None, says="", **more):
    return Row(name, "read_file", {"path": path, **more}, kind, says, before=before)


ROWS += [
    read("/proc/self/environ", "read the environment of the bot"),
    read("/proc/self/mem", "read the memory of the bot"),
    read("/proc/self/fd/3", "read an open file of the bot"),
    read("/proc/1/root/etc/shadow", "read through the root of another process"),
    read("/dev/fd/5", "read a descriptor as a device"),
    read("/dev/zero", "read a device without end"),
    read("/sys/class/dmi/id/product_uuid", "read what the kernel says of the machine"),
    read("way/environ", "a link to our own /proc", before=linked(lambda _: "/proc/self")),
    read("way", "a magic link as the target of a link", before=linked(lambda _: "/proc/self/fd/0")),
    read("way/etc/passwd", "a magic link to the root", before=linked(lambda _: "/proc/self/root")),
    read("way", "a link to itself", before=looped),
    read("a/up/secret.txt", "a link in the middle of a path", before=link_in_the_middle),
    read("way/../plain.txt", "two dots behind a link are taken by their letters", "not_found", looped),
    read("/workspace/../../../../../outside/secret.txt", "two dots behind the name of the workspace"),
    read("/workspace-of-others/x", "a name that only begins like the workspace"),
    read("//etc/passwd", "two slashes in front"),
    read("a/../../context.jsonl", "two dots later on the way"),
    read("../context.jsonl", "the conversation itself, beside the workspace"),
    read("../../../../approvals.json", "the permissions that were given"),
    read("a\0b", "a NUL in a path"),
    read("../outside\0.txt", "a NUL behind two dots"),
    read("~/.ssh/id_rsa", "a home folder is a name like others", "not_found"),
    read("$HOME/.ssh/id_rsa", "a variable is a name like others", "not_found"),
    read("file:///etc/passwd", "an address of a file is a name like others", "not_found"),
    read("..\\..\\outside\\secret.txt", "backslashes are no separators", "not_found"),
    read("%2e%2e/%2e%2e/secret.txt", "percent signs are not decoded", "not_found"),
    read("．．/．．/secret.txt", "full-width dots are no dots", "not_found"),
    read("‥/secret.txt", "a two dot leader is no two dots", "not_found"),
    read("..;/secret.txt", "two dots and a semicolon", "not_found"),
    read("x" * 300, "a name longer than any file's", "validation"),
    read("x/" * 2500, "a path longer than any", "validation"),
    read("a/" * 2000 + "x", "a path of very many folders", "not_found"),
    read("way", "a unix socket", before=unix_socket),
    read("attachments/way", "a link among what came in", before=linked(lambda s: s.outside / "secret.txt", "attachments/way")),
    Row("attach a unix socket", "attach", {"path": "way"}, "permission", before=unix_socket),
    Row("attach from /proc", "attach", {"path": "/proc/self/environ", "name": "notes.txt"}, "permission"),
    Row("write where a link points that leads nowhere yet", "write_file", {"path": "way", "content": "x"}, "permission", before=dangling),
    Row("write to a unix socket", "write_file", {"path": "way", "content": "x"}, "permission", before=unix_socket),
    Row("write over a device", "write_file", {"path": "/dev/sda", "content": "x"}, "permission"),
    Row("write beside the workspace", "write_file", {"path": "../write.tmp", "content": "x"}, "permission"),
    Row("write away the mark of what came in", "write_file", {"path": "../outside", "content": ""}, "permission"),
    Row("write who the bot is", "write_file", {"path": "../../../../IDENTITY.md", "content": "x"}, "permission"),
    Row("write a skill", "write_file", {"path": "../../../../skills/x/SKILL.md", "content": "x"}, "permission"),
    Row("write the memory by hand", "write_file", {"path": "../MEMORY.md", "content": "x"}, "permission"),
    Row("write the workspace itself", "write_file", {"path": ".", "content": "x"}, "validation"),
    Row("edit through a link to a folder of the workspace", "edit_file", {"path": "b/x.txt", "old": "canary", "new": "y"}, "permission", before=edited_through_a_swap),
    Row("list everything below with ways out in it", "list_files", {"recursive": True}, "harmless", "plain.txt", before=many_links),
    Row("search everything with ways out in it", "search_files", {"text": "canary"}, "harmless", "in plain sight", before=many_links),
    Row("list by a pattern that climbs", "list_files", {"pattern": "../*"}, "harmless", '"entries": \\[\\]', before=many_links),
    Row("load a skill from outside of the skills", "load_skill", {"name": "../threads"}, "not_found"),
    Row("spill a long result through a link", "list_files", {"recursive": True}, "harmless", "could not be kept", before=spill_through_a_link),
]  # fmt: skip


@pytest.mark.parametrize("row", params(ROWS))
async def test_no_path_leads_out(row, tmp_path, monkeypatch):
    await judge(row, tmp_path, monkeypatch)
