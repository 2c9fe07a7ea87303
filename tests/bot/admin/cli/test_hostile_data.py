"""A data folder of a newer version, which nothing that starts or writes goes near; and what people put into one."""

import json
import os
import shutil
import subprocess
import sys
import zlib
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
import pytest

from bot.config.settings import Settings
from bot.extensions.doctor.fixes import LEFT_S, apply_fixes
from bot.host.checks import Context
from bot.reports.workspace_files import files_of
from bot.store.data_version import READ_AT_THE_START
from bot.store.layout import KINDS, Step
from tests.bot.extensions.backup.archives import nested_folders
from tests.serving import serving
from threads.errors import NewerSchema

OLD = Path(__file__).parents[2] / "store" / "old-data-v1"
EXAMPLES = {
    "*-commands.json": "discord-commands.json",
    "*-marks.json": "slack-marks.json",
    "usage/*.jsonl": "usage/2026-11.jsonl",
}
READ = [kind.pattern for kind in KINDS if kind.schema and kind.step in READ_AT_THE_START]
FILES = [EXAMPLES.get(pattern, pattern) for pattern in READ]
CODE = "from bot.admin.cli import main; main()"


@pytest.fixture
def data(tmp_path):
    folder = Path(shutil.copytree(OLD, tmp_path / "data"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def tree(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
        if path.name != "lock"
    }


def make_newer(path):
    """Let a file be of a version that is to come: a value as a whole, lines by the last of them."""
    before = path.read_bytes() if path.exists() else b""
    if path.suffix == ".jsonl":
        body = b'{"v":9,"kind":"hologram","at":"2031-01-01T00:00:00+00:00"'
        path.write_bytes(before + b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body)))
    else:
        path.write_text(json.dumps({**json.loads(before or b"{}"), "v": 9}))


def test_every_kind_that_is_read_at_the_start_is_tried_here():
    kinds = [kind for kind in KINDS if kind.schema and kind.step is not Step.NEVER]
    assert {kind.step for kind in kinds} - READ_AT_THE_START == {
        Step.CONVERSATIONS,  # refused by its thread
        Step.OLD_CONVERSATIONS,  # only appended to
        Step.AUDIT,  # the same
    }
    assert all(any(fnmatchcase(path, kind.pattern) for kind in kinds) for path in FILES)


@pytest.mark.parametrize("name", [*FILES, "restoring.json"])
async def test_a_start_over_any_newer_file_is_refused_and_leaves_every_byte(data, name):
    make_newer(data / name)
    before = tree(data)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with serving(data, {}, model="offline/demo"):
            raise AssertionError("it serves")
    match = "newer" if name == "schema.json" else name.rpartition("/")[2]
    assert caught.group_contains(NewerSchema, match=match)
    assert tree(data) == before


def command(data, *words):
    settings = data.parent / "settings.json"
    settings.write_text(json.dumps({"data": str(data), "model": "offline/demo"}))
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    call = [sys.executable, "-c", CODE, *words, "--settings", str(settings)]
    return anyio.run_process(call, env=env, input=b"hello\n", stderr=subprocess.STDOUT, check=False)


@pytest.mark.parametrize(
    ("name", "words"), [("journal.jsonl", "chat"), ("schema.json", "dead-letters resubmit m7")]
)
async def test_a_command_that_writes_says_why_it_does_not_and_ends_with_78(data, name, words):
    make_newer(data / name)
    before = tree(data)
    done = await command(data, *words.split())
    assert done.returncode == 78, done.stdout
    assert b"newer Threadfast" in done.stdout
    assert b"Traceback" not in done.stdout
    assert tree(data) == before


def test_only_what_we_began_to_write_is_deleted_and_never_through_a_link(data, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.rmtree(data / "audit")
    (data / "audit").symlink_to(theirs)
    thread = next(data.glob("threads/*/*1.0"))
    ours = [data / "models.json.tmp", data / "usage" / "2026-11.jsonl.tmp", thread / "context.jsonl.tmp"]
    others = [
        data / "plan.tmp",
        data / "IDENTITY.tmp",
        theirs / "2026-11-22.jsonl.tmp",
        data / "fresh.json.tmp",
    ]
    others.append(thread / "workspace" / "mine.tmp")
    for path in (*ours, *others):
        path.write_text("x")
        if path.name != "fresh.json.tmp":
            os.utime(path, (path.stat().st_mtime - 2 * LEFT_S,) * 2)
    (data / "approvals.json.tmp").symlink_to(others[0])
    done = list(apply_fixes(Context(Settings(data=data), {})))
    assert len([line for line in done if line.startswith("deleted ")]) == len(ours)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)
    assert (data / "approvals.json.tmp").is_symlink()


def test_folders_without_end_do_not_keep_the_other_files_from_being_exported(data):
    thread = next(data.glob("threads/*/*1.0"))
    with nested_folders(thread / "workspace"):
        assert [file.name for file in files_of(thread)] == ["notes.txt"]
