"""Archives that were made to do harm, and folders whose people try to make a backup worthless."""

import gzip
import hashlib
import io
import json
import os
import random
import tarfile

import pytest

from bot.extensions.backup.archive import ABOUT, CONTENTS, BackupDamaged, verify
from bot.extensions.backup.restore import RestoreRefused
from bot.extensions.backup.snapshot import DEEPEST, back_up, size_of
from bot.store.data_version import prepare
from tests.bot.cli.data_folders import nested_folders
from tests.bot.extensions.backup.archives import now, put_back, tree
from threads.errors import NewerSchema

WORKSPACE = "threads/fake/W~C~1.0/workspace"


def about(**more):
    return {"v": 1, "threadfast": "1", "data_version": 1, "at": "2026-11-22T00:00:00Z", **more}


def member(name, content=b"x", **header):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in header.items():
        setattr(info, key, value)
    return info, content


def packed(*members, what=None, unlisted=()):
    """Return the tar, not zipped, of an archive whose list says of every member just what it is, but for some."""
    sums = {
        info.name.removeprefix("data/"): {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for info, content in members
        if info.isreg()
    }
    first = member(ABOUT, json.dumps(what or about()).encode())
    last = member(CONTENTS, json.dumps({"files": sums}).encode())
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in (first, *members, *unlisted, last):
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "b.tar.gz"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / WORKSPACE).mkdir(parents=True)
    (folder / "journal.jsonl").write_bytes(b"one\n")
    return folder


IN_THE_WAY = ("lock", "status.sock", "restoring", "restoring.json", "restoring.json.tmp", "restored.json")


@pytest.mark.parametrize(
    "name", [*IN_THE_WAY, "before-x", "schema.json", "journal.jsonl", "usage/2026-11.jsonl"]
)
@pytest.mark.parametrize("kind", ["a folder", "a file below"])
def test_no_folder_takes_the_place_of_a_file_that_every_start_needs(tmp_path, file, name, kind):
    bad = (
        member(f"data/{name}", b"", type=tarfile.DIRTYPE) if kind == "a folder" else member(f"data/{name}/x")
    )
    file.write_bytes(gzip.compress(packed(bad)))
    with pytest.raises(BackupDamaged, match="no backup of Threadfast holds"):
        put_back(file, tmp_path / "again")
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["lock"]
    prepare(tmp_path / "again")


@pytest.mark.parametrize("mtime", ["nan", "inf", "-1e30", "9223372036854775808"])
def test_a_time_that_no_system_knows_keeps_nobody_from_their_data(tmp_path, file, mtime):
    file.write_bytes(gzip.compress(packed(member("data/a", pax_headers={"mtime": mtime}))))
    put_back(file, tmp_path / "again")
    assert (tmp_path / "again" / "a").read_bytes() == b"x"


def odd_header(**pax):
    return packed(member("data/a", pax_headers=pax))


def chained():
    """Headers about headers about headers: tarfile follows them by calling itself."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 10
    return (header.tobuf(tarfile.USTAR_FORMAT) + b"10 a=bcde\n".ljust(512, b"\0")) * 1200 + packed(
        member("data/a")
    )


def long_header():
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 10**12
    return header.tobuf(tarfile.GNU_FORMAT) + packed(member("data/a"))


@pytest.mark.parametrize(
    "content",
    [
        odd_header(**{"GNU.sparse.map": "0,1,x"}),
        odd_header(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
        odd_header(**{"GNU.sparse.size": "x"}),
        odd_header(size="-1000000"),
        odd_header(size="99999999999999999999"),
        chained(),
        long_header(),
        packed(member("data/../../evil")),
        packed(member("/etc/evil")),
        packed(member("data//etc/evil")),
        packed(member("evil")),
        packed(member("data/a", b"", type=tarfile.SYMTYPE, linkname="/tmp"), member("data/a/evil")),
        packed(member("data/j"), member("data/a", b"", type=tarfile.LNKTYPE, linkname="data/j")),
        packed(member("data/a", b"", type=tarfile.CHRTYPE)),
        packed(member("data/a", b"", type=tarfile.FIFOTYPE)),
        packed(unlisted=[member("data/a")]),
        packed(member("data/b"), unlisted=[member("data/b")]),
        packed(member("data/a"), what=about(threadfast="1\x1b[2J")),
        packed(member("data/a"), what=about(threadfast="1\x1b[2J", data_version=9)),
    ],
)
def test_whatever_cannot_be_understood_is_told_as_damage_and_nothing_is_changed(tmp_path, file, content):
    file.write_bytes(gzip.compress(content))
    with pytest.raises(BackupDamaged) as caught:
        put_back(file, tmp_path / "again")
    assert str(caught.value).isprintable()
    assert tree(tmp_path / "again") == {}
    assert not (tmp_path / "evil").exists()


def test_no_header_that_is_spoilt_ends_in_anything_but_a_word_on_damage(file):
    chance = random.Random(7)
    whole = packed(member("data/a", b"hello" * 9), member("data/d", b"", type=tarfile.DIRTYPE))
    ends = set()
    for _ in range(400):
        spoilt = bytearray(whole)
        at = 512 * chance.choice((0, 2, 4, 5))
        for _ in range(3):
            spoilt[at + chance.randrange(512)] = chance.choice((0, 32, 48, 55, 0x80, 0xFF))
        header = spoilt[at : at + 512]
        header[148:156] = b" " * 8
        spoilt[at + 148 : at + 156] = b"%06o\0 " % sum(header)
        file.write_bytes(gzip.compress(spoilt, 1))
        try:
            verify(file)
            ends.add("whole")
        except (BackupDamaged, NewerSchema):
            ends.add("told")
    assert ends == {"whole", "told"}


def test_a_big_file_that_is_cut_off_in_the_middle_is_told_as_damage(data, file):
    (data / WORKSPACE / "big").write_bytes(random.Random(1).randbytes(400_000))
    back_up(data, file, now)
    whole = file.read_bytes()
    for size in (100_000, 200_000, 399_000):
        file.write_bytes(whole[:size])
        with pytest.raises(BackupDamaged):
            verify(file)


@pytest.mark.parametrize(
    "names",
    [
        (os.fsdecode(b"odd-\xff"), "odd-\\udcff"),  # spelled alike, unless backslashes are told apart
        ("a\\b", "a\\\\b"),
        ("line\nbreak", "\x1b[2J"),
        ("n" * 255, "lock"),
    ],
)
def test_no_names_of_files_make_a_backup_worthless(data, file, tmp_path, names):
    for name in names:
        (data / WORKSPACE / name).write_text(ascii(name))
    back_up(data, file, now)
    put_back(file, tmp_path / "again")
    for name in names:
        assert (tmp_path / "again" / WORKSPACE / name).read_text() == ascii(name)


@pytest.mark.parametrize("name", ["old.tmp", "threads/console/l~c~notes.tmp", "threads/console/l~c~a.sock"])
def test_a_folder_that_is_called_like_something_temporary_is_kept(data, file, tmp_path, name):
    (data / name).mkdir(parents=True)
    (data / name / "kept.txt").write_text("mine")
    back_up(data, file, now)
    put_back(file, tmp_path / "again")
    assert (tmp_path / "again" / name / "kept.txt").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_left_out_and_told(data, file, tmp_path):
    (data / "my-marks.json").mkdir()
    assert [line.partition(":")[0] for line in back_up(data, file, now).skipped] == ["my-marks.json"]
    put_back(file, tmp_path / "again")


def test_folders_without_end_do_not_keep_the_rest_from_being_copied(data, file, tmp_path):
    (data / WORKSPACE / "kept.txt").write_text("mine")
    with nested_folders(data / WORKSPACE):
        assert size_of(data) > 0
        report = back_up(data, file, now)
    assert [line.partition(": ")[2][:8] for line in report.skipped] == ["too deep"]
    put_back(file, tmp_path / "again")
    assert (tmp_path / "again" / WORKSPACE / "kept.txt").read_text() == "mine"
    assert (tmp_path / "again" / WORKSPACE / "/".join(["d"] * (DEEPEST - 4))).is_dir()


@pytest.mark.parametrize("said", [b"{", b"[]", b'{"v":2,"step":"in","aside":"before-restore-1"}',
                                  b'{"step":"aside","aside":"../../elsewhere"}', b'{"step":"aside","aside":"threads"}'])  # fmt: skip
def test_a_restore_that_cannot_be_understood_is_told_and_every_byte_left(data, said):
    (data / "restoring.json").write_bytes(said)
    before = {path: path.is_file() and path.read_bytes() for path in data.rglob("*")}
    with pytest.raises(NewerSchema, match=r"restoring\.json"):
        prepare(data)
    assert {path: path.is_file() and path.read_bytes() for path in data.rglob("*")} == before


def test_a_folder_of_another_user_is_not_restored_into(data, file, tmp_path, monkeypatch):
    back_up(data, file, now)
    (tmp_path / "theirs").mkdir()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(RestoreRefused, match=f"belongs to user {mine}"):
        put_back(file, tmp_path / "theirs")
    assert not list((tmp_path / "theirs").iterdir())
