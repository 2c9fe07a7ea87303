"""The folder of playbooks: read anew each time, only what its owner alone can change, and no file stops another."""

import json

from bot.extensions.doctor.run import DoctorOptions, run_doctor
from bot.extensions.playbooks.folder import Library

ONE = "name: {0}\ndescription: The {0}.\nstages:\n  - name: only\n    act: {{prompt: Do it.}}\n"


def write(folder, name, text=None, mode=0o600):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(ONE.format(name.partition(".")[0]) if text is None else text)
    path.chmod(mode)
    return path


def found(library):
    return {entry.file_name: entry.playbook and entry.playbook.name for entry in library.read_all()}


def test_a_folder_that_is_missing_has_no_playbooks(tmp_path):
    assert Library(tmp_path / "playbooks").read_all() == []


def test_files_are_read_anew_and_a_faulty_one_stops_no_other(tmp_path):
    folder, library = tmp_path / "playbooks", Library(tmp_path / "playbooks")
    write(folder, "good.yaml")
    bad = write(folder, "bad.yaml", "name: bad")
    write(folder, "notes.txt")
    assert found(library) == {"good.yaml": "good", "bad.yaml": None}
    assert library.problems() == ["bad.yaml: description: is required", "bad.yaml: stages: is required"]
    bad.write_text(ONE.format("bad"))
    assert found(library) == {"good.yaml": "good", "bad.yaml": "bad"}


def test_what_others_can_change_or_a_link_is_not_used(tmp_path):
    folder, library = tmp_path / "playbooks", Library(tmp_path / "playbooks")
    write(folder, "loose.yaml", mode=0o666)
    (folder / "linked.yaml").symlink_to(write(tmp_path, "elsewhere.yaml"))
    assert found(library) == {"linked.yaml": None, "loose.yaml": None}
    assert library.problems()[0] == "linked.yaml: it cannot be opened; links are not followed"
    assert library.problems()[1].startswith("loose.yaml: others than its owner can change it")


def test_an_unknown_name_gets_the_nearest_one_and_a_faulty_one_its_faults(tmp_path):
    library = Library(tmp_path)
    write(tmp_path, "triage.yaml")
    write(tmp_path, "broken.yaml", "name: broken\ndescription: x\nstages: []\n")
    assert library.find("triag") == "I know no playbook of that name. Did you mean triage? /play lists them."
    assert library.find("broken").startswith("The playbook broken has faults:\nstages: ")


def test_a_file_with_another_name_is_named_without_what_could_harm_a_screen(tmp_path):
    write(tmp_path, "Ab\x1b[31m.yaml", ONE)
    [entry] = Library(tmp_path).read_all()
    assert entry.file_name == "Ab\\x1b[31m.yaml"
    assert entry.faults == ("must be named with small letters, digits, - and _, at most 40 of them",)


def test_the_doctor_tells_a_fault_with_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir(mode=0o700)
    write(tmp_path / "data" / "playbooks", "good.yaml")
    write(tmp_path / "data" / "playbooks", "bad.yaml", ONE.format("bad").replace("prompt", "promt"))
    settings = tmp_path / "settings.json"
    settings.write_text('{"model": "offline/demo", "tools": {"sandbox": "off"}}')
    settings.chmod(0o600)
    assert run_doctor(DoctorOptions(settings, as_json=True), {"PATH": "/usr/bin:/bin"}) == 1
    told = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["name"] == "playbooks"]
    expected = [("fail", "bad.yaml: stage "), ("ok", "1 valid")]
    assert [(one["state"], one["found"][:16]) for one in told] == expected
    assert "threadfast playbooks check" in told[0]["fix"]
