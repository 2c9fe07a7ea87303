"""A folder says its version; what was written by a newer program is left alone."""

from datetime import UTC, datetime
from pathlib import PurePosixPath

import anyio
import pytest

from bot.observe.audit import Audit, AuditFiles
from bot.store.data_version import prepare, version_of
from bot.store.layout import DATA_VERSION, KINDS, kind_of
from threads.errors import NewerSchema
from threads.log import LogEntry, entry_adapter
from threads.store.checksummed_lines import encode
from threads.store.disk import PosixDisk


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes(b"one\n")
    return folder


def test_a_new_folder_and_one_of_before_the_versions_are_of_this_one(data, tmp_path):
    for folder in (data, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        prepare(folder)
        assert version_of(folder) == DATA_VERSION
        assert (folder / "schema.json").read_bytes() == b'{"v":%d}' % DATA_VERSION


def test_a_version_that_cannot_be_read_is_no_version_to_guess(data):
    (data / "schema.json").write_bytes(b"{")
    with pytest.raises(NewerSchema, match=r"schema\.json"):
        prepare(data)


NEWER_LINE = encode(entry_adapter(), LogEntry(at="", kind="message", message_id="m", v=2))


async def test_what_is_only_appended_to_keeps_newer_lines_as_they_are(tmp_path):
    path = tmp_path / "2027-01-01.jsonl"
    path.write_bytes(NEWER_LINE)
    audit = Audit(
        AuditFiles(PosixDisk(), tmp_path, anyio.to_thread.run_sync).append,
        lambda: datetime(2027, 1, 1, tzinfo=UTC),
    )
    async with audit.writing({}):
        audit.tell("cancel", {})
    assert path.read_bytes().startswith(NEWER_LINE)


def test_every_kind_is_found_by_its_own_pattern():
    for kind in KINDS:
        example = PurePosixPath(kind.pattern.replace("**", "x/y").replace("*", "z"))
        assert kind_of(example) is kind
