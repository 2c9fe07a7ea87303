"""The command line of bubblewrap, and the advice when it fails."""

from pathlib import Path

import pytest

from bot.extensions.shell.sandbox import bubblewrap
from bot.extensions.shell.sandbox.bubblewrap import VARIANTS, Variant, advice_for, arguments, resolve_links
from bot.extensions.shell.sandbox.layers import handled_rights
from bot.extensions.shell.sandbox.profile import Limits, environment

KINDS = ("user", "pid", "ipc", "uts", "net")
OPTIONS = {
    "system": [("/usr", ""), ("/bin", "usr/bin")],
    "workspace": Path("/data/threads/t1/workspace"),
    "limits": Limits(),
    "shell": "/bin/bash",
    "filter_fd": 5,
    "status_fd": 6,
}


def command_line(command="true", variant=VARIANTS[0], **changed):
    return arguments("/usr/bin/bwrap", variant, command=command, **(OPTIONS | changed))


@pytest.mark.parametrize(
    "wall",
    [
        *(f"--unshare-{kind}" for kind in KINDS),
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
    ],
)
def test_every_wall_is_up(wall):
    assert command_line().index(wall) < command_line().index("--")


def test_a_command_sees_the_system_its_workspace_and_nothing_else():
    argv = command_line()
    visible = [argv[at + 1] for at, word in enumerate(argv) if word in {"--ro-bind", "--bind", "--dev-bind"}]
    assert visible == ["/usr", "/data/threads/t1/workspace"]
    assert [argv[at + 1 : at + 3] for at, word in enumerate(argv) if word == "--symlink"] == [
        ["usr/bin", "/bin"]
    ]
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--remount-ro"] == ["/dev", "/"]
    sized = [at for at, word in enumerate(argv) if word == "--tmpfs"]
    assert [argv[at + 1] for at in sized] == ["/dev/shm", "/tmp"]
    assert all(argv[at - 2] == "--size" for at in sized), "memory behind a file system is bounded"
    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert argv[argv.index("--seccomp") + 1] == "5"


@pytest.mark.parametrize("command", ["--bind / /", "'; id; '", "$(id)", "--", "-c", "a\nb"])
def test_a_command_is_one_argument_and_the_last(command):
    argv = command_line(command)
    assert argv[-1] == command
    assert argv[:-1] == command_line("true")[:-1]


def test_the_environment_has_nothing_of_ours():
    argv = command_line()
    at = [number for number, word in enumerate(argv) if word == "--setenv"]
    assert {argv[n + 1]: argv[n + 2] for n in at} == environment("/workspace", "/tmp")


def test_a_host_with_a_masked_proc_gets_a_folder_in_its_place():
    argv = command_line(variant=Variant(own_proc=False, no_userns=False))
    assert "--proc" not in argv and "--disable-userns" not in argv
    assert argv[argv.index("--dir") + 1] == "/proc"


def test_a_file_size_is_in_the_unit_of_the_shell():
    limits = Limits(file_size=1024 * 1024)
    assert "1024" in command_line(limits=limits)
    assert "2048" in command_line(limits=limits, shell="/bin/sh")


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("bwrap: No permissions to create new namespace, likely because the kernel does not …", "containers"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "RestrictNamespaces"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "unmask"),
        ("bwrap: Can't read /proc/sys/kernel/overflowuid: No such file", "ProcSubset"),
        ("bwrap: something new", "something new"),
        ("", "wrote nothing"),
    ],
)
def test_an_error_of_bubblewrap_becomes_advice(stderr, advice):
    assert advice in advice_for(stderr)


def test_the_systems_own_bubblewrap_comes_before_the_packaged_one(tmp_path, monkeypatch):
    own = tmp_path / "bwrap"
    own.write_text("")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = bubblewrap.find_binaries()
    assert found[0] == str(own)
    assert all(path.endswith("_bin/bwrap") for path in found[1:])


def test_links_are_shown_as_links(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    paths = [str(tmp_path / "folder"), str(tmp_path / "link")]
    assert resolve_links(paths) == [(paths[0], ""), (paths[1], "folder")]


@pytest.mark.parametrize(
    ("abi", "files", "net", "scoped"),
    [(1, 0x1FFF, 0, 0), (2, 0x3FFF, 0, 0), (3, 0x7FFF, 0, 0), (4, 0x7FFF, 3, 0), (5, 0xFFFF, 3, 0), (6, 0xFFFF, 3, 3), (9, 0xFFFF, 3, 3)],
)  # fmt: skip
def test_landlock_is_asked_for_what_its_version_knows(abi, files, net, scoped):
    assert handled_rights(abi) == (files, net, scoped)
