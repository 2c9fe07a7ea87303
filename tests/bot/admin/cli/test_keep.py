"""`threadfast backup --keep`: only a copy that is whole takes the place of older ones."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.admin import backup
from bot.admin.cli import main

OLD = Path(__file__).parents[2] / "store" / "old-data-v1"


@pytest.mark.parametrize(("problems", "left"), [((), 1), (("notes: unreadable",), 3)])
def test_older_backups_go_only_when_the_new_one_is_whole(tmp_path, monkeypatch, problems, left):
    data, kept = shutil.copytree(OLD, tmp_path / "data"), tmp_path / "kept"
    kept.mkdir()
    for day in (1, 2):
        (kept / f"threadfast-backup-2026010{day}T000000Z.tar.gz").write_bytes(b"old")
    real = backup.back_up
    monkeypatch.setattr(backup, "back_up", lambda *given: replace(real(*given), problems=problems))
    done = CliRunner().invoke(main, ["backup", str(kept), "--data", str(data), "--keep", "1"])
    assert done.exit_code == bool(problems), done.output
    assert len(list(kept.iterdir())) == left
