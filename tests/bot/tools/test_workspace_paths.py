"""Nothing outside the workspace can be opened, whichever way the system opens it."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from bot.extensions.files.paths import normalize, origin
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from bot.tools.files.workspace import holds_outside_text, mark_output, open_path, require_regular
from threads.store import open_beneath
from threads.store.open_beneath import FILE, FOLDER, closing, open_at


@pytest.fixture(params=["by the kernel", "step by step"])
def way(request, monkeypatch):
    if request.param == "step by step":
        monkeypatch.setattr(open_beneath, "find_openat2", lambda: None)
    elif open_beneath.find_openat2() is None:
        pytest.skip("this system has no openat2")
    return request.param


@pytest.fixture
def workspace(tmp_path):
    """A workspace with one of everything that must not be opened, and a secret beside it."""
    inside = tmp_path / "workspace"
    (inside / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("key")
    (inside / "sub" / "a").write_text("mine")
    (inside / "workspace").mkdir()
    (inside / "workspace" / "a").write_text("in a folder of that name")
    for name, target in {
        "link": "../secret",
        "absolute": str(tmp_path / "secret"),
        "upward": "..",
        "root": "/",
        "proc": "/proc/self/root",
        "fd": "/proc/self/fd",
        "near": "sub/a",
        "nearby": "sub",
        "loop": "loop",
        "dangling": "nowhere",
        "tty": "/dev/tty",
    }.items():
        (inside / name).symlink_to(target)
    (inside / "sub" / "up").symlink_to("../..")
    os.link(tmp_path / "secret", inside / "twin")
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as listening, pytest.MonkeyPatch.context() as patch:
        patch.chdir(inside)  # the path of a socket is short
        listening.bind("socket")
        listening.listen()
        yield inside


def content(workspace, path):
    with open_path(workspace, path, FILE) as fd:
        require_regular(fd, "read")
        return os.read(fd, 100).decode()


REFUSALS = {
    ToolDenied: [
        "../secret", "..", "/", "/etc/passwd", "//etc/passwd", "///etc/passwd", "/workspace/../secret",
        "/workspace/../../etc/passwd", "/workspaces/a", "/workspace2", "//workspace/sub/a", "/./workspace/sub/a",
        "/proc/self/root/etc/passwd", "/proc/self/environ", "/dev/fd/0", "sub/../../secret", "sub/../..",
        "sub/deep/../../../secret", "./././../secret", "sub//..//..//secret", "a\0b", "sub/a\0/../../secret",
        "link", "./link", "link/", "link/x", "absolute", "upward/secret", "upward", "upward/workspace/sub/a",
        "sub/up/secret", "sub/up/workspace/sub/a", "root/etc/passwd", "proc/etc/passwd", "fd/0", "near", "nearby/a",
        "loop", "loop/a", "dangling", "tty", "twin", "pipe", "socket", ".", "", "sub", "/workspace",
        "sub/../link/../../secret",
    ],
    ToolInvalidInput: ["sub/a/x", "pipe/x", "x" * 300, "\ud800"],
    ToolError: ["sub/" * 2000 + "a"],
    ToolNotFound: [
        "~", "~root/.ssh/id_rsa", "$HOME/secret", "`id`", "SUB/A", "Sub/a", "file:///etc/passwd", "..\\secret",
        "%2e%2e/secret", "\u2025/secret", "\uff0e\uff0e/secret", "\u2024\u2024/secret", "..\u2215secret",
        "..\u200b/secret", ".\u2060./secret", ".. /secret", "...", "sub/\u0430", "a\nb", "\x1b[2J", "\udc80",
        "workspace/../workspace/b",
    ],
}  # fmt: skip
HOSTILE = [(path, refusal) for refusal, paths in REFUSALS.items() for path in paths]


@pytest.mark.parametrize(("path", "refusal"), HOSTILE)
def test_no_hostile_path_opens_anything_and_no_refusal_names_the_machine(way, workspace, path, refusal):
    with pytest.raises(refusal) as refused:
        content(workspace, path)
    assert str(workspace.parent) not in str(refused.value)
    assert "key" not in str(refused.value)


@pytest.mark.parametrize(
    "path",
    ["sub/a", "./sub//a", "/workspace/sub/a", "/workspace//sub/./a", "sub/deep/../a", "workspace/../sub/a"],
)
def test_each_way_to_write_a_path_of_the_workspace_opens_it_and_is_one_subject(way, workspace, path):
    assert content(workspace, path) == "mine"
    assert normalize(path) == "sub/a"


def test_a_folder_that_is_called_like_the_workspace_is_a_folder_like_any_other(way, workspace):
    assert content(workspace, "workspace/a") == content(workspace, "/workspace/workspace/a")


@pytest.mark.parametrize("path", ["", ".", "/workspace", "/workspace/", "sub/.."])
def test_the_workspace_itself_has_names_too(way, workspace, path):
    with open_path(workspace, path, FOLDER) as fd:
        assert os.fstat(fd).st_ino == workspace.stat().st_ino
    assert normalize(path) == "."


def test_a_workspace_that_is_itself_a_link_is_refused(way, tmp_path):
    (tmp_path / "workspace").symlink_to("/etc")
    with pytest.raises(ToolError):
        content(tmp_path / "workspace", "passwd")


def test_a_device_is_no_regular_file(way, tmp_path):
    with (
        closing(os.open("/dev", FOLDER)) as root,
        closing(open_at(root, ("null",), FILE)) as fd,
        pytest.raises(ToolDenied),
    ):
        require_regular(fd, "read")


def test_a_folder_that_is_swapped_for_a_link_meanwhile_never_leads_out(way, workspace):
    """The names change places as fast as they can while they are opened; the secret is never read."""
    (workspace.parent / "there").mkdir()
    (workspace.parent / "there" / "a").write_text("key")
    (workspace / "trap").symlink_to(workspace.parent / "there")
    swapped, read = threading.Event(), []

    def swap():
        while not swapped.is_set():
            (workspace / "sub").rename(workspace / "kept")
            (workspace / "trap").rename(workspace / "sub")
            (workspace / "sub").rename(workspace / "trap")
            (workspace / "kept").rename(workspace / "sub")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(2000):
            with suppress(ToolError):
                read.append(content(workspace, "sub/a"))
    finally:
        swapped.set()
        swapping.join()
    assert set(read) <= {"mine"}


def test_no_descriptor_is_left_open_by_a_refusal(way, workspace):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path, _ in HOSTILE:
        with suppress(ToolError):
            content(workspace, path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_kernel_that_refuses_the_call_is_no_hindrance(workspace, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "seccomp")

    monkeypatch.setattr(open_beneath, "find_openat2", lambda: refused)
    assert content(workspace, "sub/a") == "mine"
    with pytest.raises(ToolDenied):
        content(workspace, "upward/secret")


def test_a_workspace_holds_text_from_outside_once_something_came_in_and_for_good(tmp_path):
    workspace = tmp_path / "workspace"
    assert not holds_outside_text(workspace)
    workspace.mkdir()
    assert origin(workspace) == ""
    (workspace / "tool-output").mkdir()
    assert origin(workspace) == "file"
    (workspace / "tool-output").rename(workspace / "mine")
    assert holds_outside_text(workspace)


def test_output_that_was_made_here_is_no_text_from_outside_until_some_is_put_beside_it(tmp_path):
    workspace = tmp_path / "workspace"
    mark_output(workspace, outside=False)
    (workspace / "tool-output").mkdir(parents=True)
    assert not holds_outside_text(workspace)
    mark_output(workspace, outside=True)
    assert holds_outside_text(workspace)
    (workspace / "tool-output").rmdir()
    mark_output(workspace, outside=False)
    assert holds_outside_text(workspace), "for good"


def test_output_of_an_older_version_stays_text_from_outside(tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "tool-output").mkdir(parents=True)
    mark_output(workspace, outside=False)
    assert holds_outside_text(workspace)


@pytest.mark.parametrize("folder", ["attachments", "tool-output"])
def test_a_dangling_link_of_such_a_name_counts_too(tmp_path, folder):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / folder).symlink_to("nowhere")
    assert holds_outside_text(tmp_path / "workspace")
