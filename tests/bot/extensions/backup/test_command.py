"""`threadfast backup` and `restore`, as people type them."""

from dataclasses import replace

import pytest

from bot.extensions.backup import snapshot
from tests.bot.cli.data_folders import exchange, threadfast, write_thread


def test_a_typo_in_the_settings_keeps_nobody_from_a_backup_but_from_a_restore(tmp_path):
    data, file, settings = tmp_path / "data", str(tmp_path / "copy.tar.gz"), tmp_path / "settings.json"
    write_thread(data, "1.1", *exchange(1))
    settings.write_text('{"max_tokens": "many"}')
    assert threadfast(data, "backup", file, "--settings", str(settings)).exit_code == 0
    assert threadfast(tmp_path / "again", "restore", file, "--settings", str(settings)).exit_code == 78
    assert not (tmp_path / "again").exists()


def test_a_restore_says_what_no_backup_holds(tmp_path):
    write_thread(tmp_path / "data", "1.1", *exchange(1))
    file = tmp_path / "copy.tar.gz"
    assert threadfast(tmp_path / "data", "backup", str(file)).exit_code == 0
    result = threadfast(tmp_path / "again", "restore", str(file))
    assert result.exit_code == 0
    assert "settings.json and credentials/ are in no backup" in result.stdout


@pytest.mark.parametrize(("problems", "left"), [((), 1), (("notes: unreadable",), 3)])
def test_older_backups_go_only_when_the_new_one_is_whole(tmp_path, monkeypatch, problems, left):
    data, kept = tmp_path / "data", tmp_path / "kept"
    write_thread(data, "1.1", *exchange(1))
    kept.mkdir()
    for day in (1, 2):
        (kept / f"threadfast-backup-2026010{day}T000000Z.tar.gz").write_bytes(b"old")
    real = snapshot.back_up
    monkeypatch.setattr(snapshot, "back_up", lambda *given: replace(real(*given), problems=problems))
    done = threadfast(data, "backup", str(kept), "--keep", "1")
    assert done.exit_code == bool(problems), done.output
    assert len(list(kept.iterdir())) == left
