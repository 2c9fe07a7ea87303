"""`install.sh` below a folder of its own: no user, no owners, no network; Python and systemctl are scripts of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PYTHON = """#!/bin/bash
[ "$1" = -I ] && shift || exit 9 # or modules of the folder it is called from would be loaded
case "$1 $2" in
  "-c import"*) exit 0 ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "${0%python}threadfast" "$3/bin/threadfast" ;;
  "-m pip") echo "$*" >> "$CALLS" ;;
esac
"""
SYSTEMCTL = """#!/bin/bash
# Whatever is started runs.
echo "systemctl $*" >> "$CALLS"
running=$ROOT/running
case "$1" in
  start) touch "$running" ;;
  enable) mkdir -p "$ROOT/etc/systemd/system/multi-user.target.wants" && ln -sf x "$ROOT/etc/systemd/system/multi-user.target.wants/threadfast.service" ;;
  stop) rm -f "$running" ;;
  is-active) [ -e "$running" ] ;;
  show) echo 0 ;;
esac
"""
PROGRAM = """#!/bin/bash
echo "threadfast $*" >> "$CALLS"
exit "${CHECK:-0}"
"""

if shutil.which("bash") is None:
    pytest.skip("no bash here", allow_module_level=True)


class Machine:
    """A root, and checkouts to install from."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.calls = folder / "root", folder / "bin", folder / "calls"
        self.source = folder / "checkout"
        for each in (self.root, self.bin):
            each.mkdir()
        for name, text in (("python", PYTHON), ("systemctl", SYSTEMCTL), ("threadfast", PROGRAM)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        for each in ("bot", "threads", "transports"):
            (self.source / each).mkdir(parents=True)
        for each in ("deploy", "docs"):
            ignore = shutil.ignore_patterns("generate", "__pycache__")
            shutil.copytree(REPOSITORY / each, self.source / each, ignore=ignore)
        for each in (*REPOSITORY.glob("requirements*.lock"), REPOSITORY / "pyproject.toml"):
            shutil.copy(each, self.source)
        shutil.copy(REPOSITORY / "README.md", self.source)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        given = {"CALLS": str(self.calls), "ROOT": str(self.root), "PATH": os.environ["PATH"], **env}
        given |= {"THREADFAST_SYSTEMCTL": str(self.bin / "systemctl")}
        given |= {"THREADFAST_STEADY_S": "0", "THREADFAST_READY_S": "5"}
        command = ["bash", str(self.source / "deploy/install.sh"), *words]
        command += ["--root", str(self.root), "--python", str(self.bin / "python")]
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=60)

    def edit(self, text: str = "another") -> None:
        (self.source / "bot/edited.py").write_text(f"# {text}\n")

    def start(self) -> None:
        (self.root / "running").touch()

    @property
    def said(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    @property
    def current(self) -> str:
        return str((self.root / "opt/threadfast/current").readlink())

    @property
    def data(self) -> Path:
        return self.root / "var/lib/threadfast"

    def tree(self) -> dict[str, tuple[int, int]]:
        found = {str(path): path.lstat() for path in sorted(self.root.rglob("*"))}
        return {path: (about.st_mode, about.st_mtime_ns) for path, about in found.items()}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def installed(machine):
    done = machine.run()
    assert done.returncode == 0, done.stderr
    return machine


def test_it_makes_all_and_a_second_run_changes_nothing(installed):
    etc, unit = installed.root / "etc/threadfast", installed.root / "etc/systemd/system/threadfast.service"
    assert unit.read_bytes() == (REPOSITORY / "deploy/threadfast.service").read_bytes()
    assert {(etc / "credentials").stat().st_mode & 0o777, installed.data.stat().st_mode & 0o777} == {0o700}
    assert (etc / "settings.json").stat().st_mode & 0o777 == 0o640
    assert "--require-hashes" in "".join(installed.said)
    before, calls = installed.tree(), installed.said
    again = installed.run()
    assert again.stdout.startswith("nothing to change")
    assert (installed.tree(), installed.said) == (before, calls)


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(machine):
    before = machine.tree()
    done = machine.run("--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would: " in done.stdout and "threadfast.service" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("nothing was done; it would be installed: ")
    assert (machine.tree(), machine.said) == (before, [])


@pytest.mark.parametrize(
    ("command", "word"), [("upgrade", "upgraded"), ("rollback", "rolled back"), ("uninstall", "uninstalled")]
)
def test_a_dry_run_of_the_others_changes_nothing_either(installed, command, word):
    if command == "rollback":
        installed.edit("first")
        installed.run("upgrade")
    installed.edit()
    installed.start()
    before = installed.tree()
    asked = len(installed.said)
    done = installed.run(command, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith(f"nothing was done; it would be {word}")
    assert installed.tree() == before
    assert {call.split()[1] for call in installed.said[asked:]} <= {"is-active"}


def test_wheels_from_a_folder_need_no_network(machine, tmp_path):
    (tmp_path / "wheels").mkdir()
    machine.run("--wheels", str(tmp_path / "wheels"))
    pip = [call for call in machine.said if call.startswith("-m pip")]
    assert len(pip) == 2 and all("--no-index --find-links" in call for call in pip)


def test_an_extra_is_installed_once_and_again_with_each_new_version(installed):
    def wanted():
        return [call.split("requirements")[1] for call in installed.said if "requirements-" in call]

    first = installed.run("install", "--extra", "otel")
    assert "restart" in first.stdout and wanted() == ["-otel.lock"]
    assert "nothing to change" in installed.run("install", "--extra", "otel").stdout
    installed.edit()
    assert installed.run("upgrade", "--extra", "browser").returncode == 0
    assert wanted() == ["-otel.lock", "-otel.lock", "-browser.lock"]
    assert "nothing to change" in installed.run("upgrade").stdout


@pytest.mark.parametrize("name", ["dev", "more", "../x", ""])
def test_an_extra_that_there_is_not_is_named(machine, name):
    done = machine.run("--extra", name)
    assert (done.returncode, machine.said) == (2, []) and "otel, browser or postgres" in done.stderr


def test_a_run_that_was_broken_off_is_done_anew(installed):
    version = installed.root / "opt/threadfast" / installed.current
    (version / "complete").unlink()
    installed.run()
    assert (version / "complete").exists()


def test_each_credential_gets_a_line_and_only_files_with_plain_names(installed):
    folder = installed.root / "etc/threadfast/credentials"
    for name in ("slack-bot", "anthropic", "old~", "a b"):
        (folder / name).touch()
    done = installed.run("credentials")
    drop_in = installed.root / "etc/systemd/system/threadfast.service.d/credentials.conf"
    assert [line for line in drop_in.read_text().splitlines() if line.startswith("Load")] == [
        "LoadCredential=anthropic:/etc/threadfast/credentials/anthropic",
        "LoadCredential=slack-bot:/etc/threadfast/credentials/slack-bot",
    ]
    assert "a b" in done.stderr
    assert "nothing to change" in installed.run("credentials").stdout
    for file in folder.iterdir():
        file.unlink()
    installed.run("credentials")
    assert not drop_in.exists()


def test_another_checkout_is_no_second_install(installed):
    installed.edit()
    done = installed.run()
    assert done.returncode == 1 and "upgrade" in done.stderr


def test_an_upgrade_keeps_the_data_aside_and_the_version_before(installed):
    (installed.data / "journal.jsonl").write_text("promises")
    first = installed.current
    installed.edit()
    installed.start()
    done = installed.run("upgrade")
    assert done.returncode == 0, done.stderr
    assert installed.current != first == str((installed.root / "opt/threadfast/previous").readlink())
    [kept] = (installed.root / "var/backups/threadfast").iterdir()
    assert (kept / "journal.jsonl").read_text() == "promises"
    order = [call.split()[1] for call in installed.said if call.startswith("systemctl")]
    assert order.index("stop") < order.index("start")
    assert "nothing to change" in installed.run("upgrade").stdout


def test_settings_that_the_new_version_does_not_take_stop_an_upgrade_before_it_begins(installed):
    first = installed.current
    installed.edit()
    installed.start()
    done = installed.run("upgrade", CHECK="78")
    assert done.returncode == 1 and installed.current == first
    assert "systemctl stop threadfast" not in installed.said


@pytest.mark.parametrize("migrated", [False, True])
def test_a_version_that_does_not_come_up_is_taken_back_with_the_data_only_if_it_changed_their_schema(
    installed, migrated
):
    (installed.data / "schema.json").write_text('{"v": 1}')
    (installed.data / "journal.jsonl").write_text("before")
    first = installed.current
    installed.edit()
    installed.start()
    script = installed.bin / "systemctl"  # the new version writes, and then does not come up
    schema = "2" if migrated else "1"
    script.write_text(
        SYSTEMCTL.replace(
            "  start) touch",
            f'  start) if [ "$(readlink "$ROOT/opt/threadfast/current")" != {first} ]; then\n'
            f'    echo after > "{installed.data}/journal.jsonl"; echo \'{{"v": {schema}}}\' > "{installed.data}/schema.json"; exit 1\n'
            "  fi; touch",
        )
    )
    (installed.data / "schema.json").write_text('{"v": 1}\n')
    done = installed.run("upgrade")
    assert done.returncode == 1 and "was started again" in done.stderr
    assert (installed.current, (installed.root / "running").exists()) == (first, True)
    assert (installed.data / "journal.jsonl").read_text().strip() == ("before" if migrated else "after")
    aside = list((installed.root / "var/backups/threadfast").glob("aside-*"))
    assert bool(aside) == migrated, "what the new version wrote is kept"


def test_a_rollback_by_hand_goes_back_and_forth(installed):
    first = installed.current
    installed.edit()
    installed.run("upgrade")
    second = installed.current
    assert installed.run("rollback").returncode == 0
    assert installed.current == first
    installed.run("rollback")
    assert installed.current == second


def test_of_many_upgrades_two_versions_and_three_snapshots_stay(installed):
    for number in range(5):
        installed.edit(str(number))
        assert installed.run("upgrade").returncode == 0
    assert len(list((installed.root / "opt/threadfast").glob("*/complete"))) == 4, "two, and a link to each"
    assert len(list((installed.root / "var/backups/threadfast").iterdir())) <= 3


def test_uninstall_keeps_what_is_yours_and_purge_asks_first(installed):
    (installed.data / "journal.jsonl").write_text("promises")
    assert installed.run("uninstall").returncode == 0
    assert not (installed.root / "opt/threadfast").exists()
    assert not (installed.root / "etc/systemd/system/threadfast.service").exists()
    assert (installed.data / "journal.jsonl").exists()
    assert installed.run("uninstall", "--purge").returncode == 1, "nobody typed purge"
    assert installed.data.exists()
    assert installed.run("uninstall", "--purge", "--yes").returncode == 0
    assert not installed.data.exists() and not (installed.root / "etc/threadfast").exists()
