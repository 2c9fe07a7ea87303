"""The unit and the container's files, without systemd or Docker: what they promise each other and the program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import click
import pytest
import yaml

from bot.cli import main
from bot.config.load import load
from bot.config.settings import Settings
from bot.extensions.shell.sandbox.profile import Limits
from bot.extensions.shell.sandbox.selection import AT_ONCE
from bot.observe.supervision import LEAVE_S

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT, STRICT = DEPLOY / "threadfast.service", DEPLOY / "strict.conf"


class Repeated(dict):
    """Sections of a unit: a key given twice is a list of lines."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


def section(path: Path, name: str) -> dict[str, list[str]]:
    parser = ConfigParser(strict=False, dict_type=Repeated, interpolation=None)
    parser.optionxform = str
    parser.read_string(path.read_text())
    return {key: value.splitlines() for key, value in parser[name].items()}


def bare(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_it_is_started_again_always_but_not_when_a_person_has_to_act():
    service = section(UNIT, "Service")
    assert section(UNIT, "Unit")["StartLimitIntervalSec"] == ["0"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == (["always"], ["78"])
    assert (service["Type"], service["NotifyAccess"]) == (["notify"], ["main"])


def test_a_reload_is_the_signal_that_the_program_listens_to():
    assert section(UNIT, "Service")["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def test_a_stop_waits_longer_than_turns_may_take_to_end():
    needed = Settings().recovery.drain_s + LEAVE_S
    assert int(section(UNIT, "Service")["TimeoutStopSec"][0]) > needed
    assert int(compose()["stop_grace_period"].removesuffix("s")) > needed


def test_there_is_room_for_all_commands_that_may_run_at_once():
    room = AT_ONCE * Limits().processes
    assert room < int(section(UNIT, "Service")["TasksMax"][0]) < room * 1.5
    assert room < compose()["pids_limit"] < room * 1.5


def test_nothing_that_bubblewrap_needs_is_taken_away():
    text = "\n".join(bare(UNIT))
    for wall in ("ProtectHostname", "ProcSubset", "MemoryDenyWriteExecute"):
        assert wall not in text
    assert "AF_NETLINK" in text
    namespaces = re.search("RestrictNamespaces=(.*)", text)[1].split()
    assert set(namespaces) == {"user", "mnt", "pid", "net", "ipc", "uts"}
    allowed = text.split("@keyring")[1].replace("=", " ").split()
    assert {"mount", "umount2", "pivot_root", "capset", "sethostname"} <= set(allowed)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize(("extra", "most"), [((), 2.0), ((STRICT,), 1.1)])
def test_the_exposure_is_what_the_unit_says(tmp_path, extra, most):
    unit = tmp_path / "threadfast.service"
    unit.write_text("\n".join(path.read_text() for path in (UNIT, *extra)))
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "--offline" in done.stderr:
        pytest.skip("this systemd judges no files")
    assert done.stderr == "", "an unknown word is only warned of"
    assert float(re.search(r"exposure level for \S+: (\d+\.\d)", done.stdout)[1]) <= most
    assert f"{most}" in UNIT.read_text()


def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["threadfast"]


def test_the_container_can_write_only_its_data_and_gain_nothing():
    about = compose()
    assert about["read_only"] and about["cap_drop"] == ["ALL"]
    assert about["security_opt"] == ["no-new-privileges:true"]
    assert [each for each in about["volumes"] if not each.endswith(":ro")] == ["data:/data"]
    assert about["user"] == "10001:10001"


def test_workers_on_one_machine_have_folders_of_their_own(tmp_path):
    service = section(DEPLOY / "workers.conf", "Service")
    words = service["ExecStart"][-1].split()
    assert words[: words.index("--data")] == section(UNIT, "Service")["ExecStart"][0].split()
    assert service["ExecStart"][0] == service["StateDirectory"][0] == "", "or the unit's own would count too"
    assert f"/var/lib/{service['StateDirectory'][1]}" == words[-1] == service["WorkingDirectory"][0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_of_workers_is_understood(tmp_path):
    (tmp_path / "threadfast@.service").write_text(UNIT.read_text())
    (tmp_path / "threadfast@.service.d").mkdir()
    shutil.copy(DEPLOY / "workers.conf", tmp_path / "threadfast@.service.d")
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "threadfast@1.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "threadfast" in line]
    assert [line for line in ours if "is not executable" not in line] == []


def test_two_workers_and_their_database_fit_together():
    about = yaml.safe_load((DEPLOY / "compose-postgres.yaml").read_text().replace("!override", ""))
    services = about["services"]
    workers = [services["worker-1"], services["worker-2"]]
    assert {worker["build"]["args"]["EXTRA"] for worker in workers} == {"postgres"}
    assert (DEPLOY.parent / "requirements-postgres.lock").exists()
    folders = [worker.get("volumes", compose()["volumes"])[0].split(":")[0] for worker in workers]
    assert len({*folders}) == 2
    assert {*folders, "postgres"} == {*about["volumes"]}
    for service in services.values():
        assert {*service["secrets"]} <= {*about["secrets"]}


def steps(name: str) -> list[str]:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    return [line.removeprefix(name).strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def test_the_image_runs_as_a_user_and_says_itself_whether_it_is_ready():
    assert steps("USER") == ["10001:10001"]
    assert json.loads(steps("ENTRYPOINT")[0]) == ["threadfast"]
    assert json.loads(steps("CMD")[-1])[0] == "run"
    [health] = steps("HEALTHCHECK")
    assert json.loads(health[health.index("[") :])[:3] == ["threadfast", "status", "--quiet"]


def test_the_commands_of_the_image_exist():
    for words in (json.loads(steps("CMD")[-1]), ["status", "--quiet", "--settings", "x"]):
        command = main.get_command(click.Context(main), words[0])
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_what_is_copied_into_the_image_is_there_and_is_not_ignored():
    repository = DEPLOY.parent
    ignored = (repository / ".dockerignore").read_text().split()
    for step in steps("COPY"):
        if step.startswith("--from"):
            continue
        for source in step.split()[:-1]:
            assert (repository / source).exists()
            assert f"!{source}" in ignored


def test_secrets_in_the_container_are_found_by_their_name(tmp_path):
    [places] = [step for step in steps("ENV") if "CREDENTIALS_DIRECTORY" in step]
    (tmp_path / "settings.json").write_text("{}")
    loaded = load(tmp_path / "settings.json", environ=dict([places.split("=")]))
    assert loaded.environ["CREDENTIALS_DIRECTORY"] == "/run/secrets"
