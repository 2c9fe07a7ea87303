"""A data folder of a newer version, which nothing that starts or writes goes near; and what people put into one."""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
import pytest

from bot.reports.workspace_files import files_of
from bot.store.data_version import READ_AT_THE_START
from bot.store.layout import KINDS, Step
from tests.bot.cli.data_folders import nested_folders
from tests.serving import serving
from threads.errors import NewerSchema

OLD = Path(__file__).parents[1] / "store" / "old-data-v1"
EXAMPLES = {
    "*-commands.json": "discord-commands.json",
    "*-marks.json": "slack-marks.json",
    "usage/*.jsonl": "usage/2026-11.jsonl",
}
READ = [kind.pattern for kind in KINDS if kind.schema and kind.step in READ_AT_THE_START]
FILES = [EXAMPLES.get(pattern, pattern) for pattern in READ]
CODE = "from bot.cli import main; main()"


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
    assert caught.group_contains(NewerSchema, match=re.escape(match))
    assert tree(data) == before


@pytest.mark.parametrize("name", ["journal.jsonl", "schema.json"])
async def test_a_command_that_writes_says_why_it_does_not_and_ends_with_78(data, name):
    make_newer(data / name)
    before = tree(data)
    settings = data.parent / "settings.json"
    settings.write_text(json.dumps({"data": str(data), "model": "offline/demo"}))
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    call = [sys.executable, "-c", CODE, "chat", "--settings", str(settings)]
    done = await anyio.run_process(call, env=env, input=b"hello\n", stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 78, done.stdout
    assert b"newer Threadfast" in done.stdout
    assert b"Traceback" not in done.stdout
    assert tree(data) == before


def test_folders_without_end_do_not_keep_the_other_files_from_being_exported(data):
    thread = next(data.glob("threads/*/*1.0"))
    with nested_folders(thread / "workspace"):
        assert [file.name for file in files_of(thread)] == ["notes.txt"]
