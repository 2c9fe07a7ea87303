"""The draft of the settings: all of it is written or nothing, and nothing that was there is lost."""

import errno
import json
import os
import stat

import pytest

from bot.config.load import load, resolve_secret
from bot.extensions.setup import draft as drafts
from bot.extensions.setup.draft import SettingsDraft
from bot.ports.config_error import ConfigInvalid
from threads.store.disk import PosixDisk, write_new

OLD = '{\n  "limits": {"mailbox": 5},\n  "model": "ollama/qwen",\n  "name": "Ünï"\n}'


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "settings.json"


def drafted(path, **secrets):
    draft = SettingsDraft.open(path, {})
    for name, secret in secrets.items():
        draft.put(draft.store_secret(name, secret), "providers", "anthropic", "api_key")
    return draft


def test_what_is_written_can_be_read_and_the_secret_is_found(path):
    drafted(path, anthropic_api_key="sk-canary").write()
    loaded = load(path, environ={})
    assert resolve_secret(loaded.settings.providers["anthropic"].api_key, loaded.environ) == "sk-canary"
    assert "sk-canary" not in path.read_text()


def test_secrets_are_for_their_owner_alone_whatever_the_umask_says(path):
    before = os.umask(0)
    try:
        drafted(path, anthropic_api_key="sk-canary").write()
    finally:
        os.umask(before)
    folder = path.parent / "credentials"
    assert (mode(folder), mode(folder / "anthropic_api_key"), mode(path)) == (0o700, 0o600, 0o666)


def test_loose_modes_are_fixed(path):
    folder = path.parent / "credentials"
    folder.mkdir(mode=0o755)
    (folder / "anthropic_api_key").write_text("sk-canary\n")
    (folder / "anthropic_api_key").chmod(0o644)
    drafted(path, anthropic_api_key="sk-canary").write()
    assert (mode(folder), mode(folder / "anthropic_api_key")) == (0o700, 0o600)


def test_the_settings_name_a_schema_that_lies_beside_them(path):
    SettingsDraft.open(path, {}).write()
    named = json.loads(path.read_text())["$schema"]
    assert json.loads((path.parent / named).read_text())["title"] == "Settings"


def test_other_keys_and_their_order_stay_and_the_old_file_is_kept(path):
    path.write_text(OLD)
    path.chmod(0o640)
    draft = SettingsDraft.open(path, {})
    draft.put("anthropic/claude-x", "model")
    draft.write()
    assert list(json.loads(path.read_text())) == ["$schema", "limits", "model", "name"]
    assert json.loads(path.read_text())["name"] == "Ünï"
    assert path.with_name("settings.json.bak").read_text() == OLD
    assert mode(path) == mode(path.with_name("settings.json.bak")) == 0o640


def test_a_second_write_of_the_same_changes_nothing(path):
    path.write_text(OLD)
    drafted(path, anthropic_api_key="sk-canary").write()
    before = {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")}
    assert drafted(path, anthropic_api_key="sk-canary").write() == []
    assert before == {file: file.stat().st_mtime_ns for file in path.parent.rglob("*")}


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', '{"model": "no"}', "\udcff", ""])
def test_broken_settings_are_refused_and_left(path, text):
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigInvalid):
        SettingsDraft.open(path, {})
    assert path.read_bytes() == text.encode("utf-8", "surrogateescape")


STEPS = 4
"""Files that are written: the secret, the schema, the old settings, the settings."""


@pytest.mark.parametrize("fails", range(STEPS))
def test_a_full_disk_leaves_everything_as_it_was(path, monkeypatch, fails):
    path.write_text(OLD)
    left = iter(range(fails))

    def filling(disk, target, data):
        write_new(disk, target, data)
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(drafts, "write_new", filling)
    with pytest.raises(OSError, match="No space"):
        drafted(path, anthropic_api_key="sk-canary").write()
    assert [file.name for file in path.parent.rglob("*") if file.is_file()] == ["settings.json"]
    assert path.read_text() == OLD


@pytest.mark.parametrize("survives", range(STEPS))
def test_killed_between_two_names_the_old_settings_are_whole_and_the_next_run_finishes(
    path, monkeypatch, survives
):
    class Killed(BaseException):
        pass

    path.write_text(OLD)
    left, rename = iter(range(survives)), PosixDisk.rename

    def renaming(self, source, target):
        if next(left, None) is None:
            raise Killed
        rename(self, source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(PosixDisk, "rename", renaming)
        drafted(path, anthropic_api_key="sk-canary").write()
    assert path.read_text() == OLD
    assert drafted(path).stored_secret("anthropic_api_key") == ("sk-canary" if survives else "")
    drafted(path, anthropic_api_key="sk-canary").write()
    assert not list(path.parent.rglob("*.tmp"))
    assert path.with_name("settings.json.bak").read_text() == OLD
    assert load(path, environ={}).settings.name == "Ünï"


def test_settings_that_somebody_changed_meanwhile_are_left(path):
    path.write_text(OLD)
    draft = drafted(path, anthropic_api_key="sk-canary")
    path.write_text("{}")
    with pytest.raises(ConfigInvalid, match="changed"):
        draft.write()
    assert path.read_text() == "{}"
    assert not (path.parent / "credentials").exists()


def test_a_link_to_settings_elsewhere_stays_a_link(path, tmp_path):
    real = tmp_path / "repository" / "mine.json"
    real.parent.mkdir()
    real.write_text("{}")
    path.symlink_to(real)
    drafted(path, anthropic_api_key="sk-canary").write()
    assert path.is_symlink()
    assert "file:anthropic_api_key" in real.read_text()
    assert (tmp_path / "credentials" / "anthropic_api_key").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_whom_the_folder_belongs(path):
    os.chown(path.parent, 12345, 12345)
    try:
        drafted(path, anthropic_api_key="sk-canary").write()
        owners = {file.name: file.stat().st_uid for file in path.parent.rglob("*")}
        assert set(owners.values()) == {12345}
        assert drafts.owned_by_another(path.parent)
    finally:
        os.chown(path.parent, 0, 0)


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_asked(path, as_user):
    path.parent.chmod(0o500)
    assert "cannot be written to" in SettingsDraft.open(path, {}).write_obstacle()
    path.parent.chmod(0o700)


def test_a_secret_goes_where_it_will_be_read_from(path, tmp_path):
    draft = SettingsDraft.open(path, {"CREDENTIALS_DIRECTORY": str(tmp_path / "elsewhere")})
    draft.store_secret("slack_bot_token", "xoxb-1")
    draft.write()
    assert (tmp_path / "elsewhere" / "slack_bot_token").read_text() == "xoxb-1\n"
