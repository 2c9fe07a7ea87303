"""What the doctor finds in and about a data folder, and what it fixes there."""

import os

import pytest

import bot.extensions.doctor.data_folder as folder
from bot.config.settings import Settings
from bot.extensions.doctor.data_folder import check_folder, filesystem
from bot.extensions.doctor.fixes import LEFT_S, apply_fixes
from bot.extensions.doctor.records import check_records, summarize_journal
from bot.host.checks import Context
from threads.journal.records import Received, Settled, Started, record_adapter
from threads.model import Author
from threads.store.checksummed_lines import encode


async def found(look_at, data):
    look = Context(Settings(data=data), {})
    return {finding.name: finding async for finding in look_at(look)}


@pytest.fixture
def data(tmp_path):
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


async def test_a_good_folder_is_found_good_and_left_as_it_was(data, monkeypatch):
    monkeypatch.setattr(folder, "SLOW_FSYNC_S", 60.0)  # how busy the disk is now is not asked
    states = {name: finding.state for name, finding in (await found(check_folder, data)).items()}
    kind = states.pop("data.filesystem")
    assert states == dict.fromkeys(("data.folder", "data.writable", "data.modes", "data.space"), "ok")
    assert kind in ("ok", "warn")
    assert list(data.iterdir()) == []


async def test_a_folder_that_is_not_there_is_no_fault_but_one_that_cannot_be_is(tmp_path):
    assert (await found(check_folder, tmp_path / "a" / "b"))["data.folder"].state == "ok"
    (tmp_path / "file").write_text("")
    assert (await found(check_folder, tmp_path / "file"))["data.folder"].state == "fail"
    assert not (tmp_path / "a").exists()


async def test_a_folder_of_another_user_is_told(data, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    told = await found(check_folder, data)
    assert list(told) == ["data.folder"]
    assert "cannot be opened by this user" in told["data.folder"].found
    assert await found(check_records, data) == {}


async def test_a_disk_that_is_full_or_slow_is_told(data, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        bad = (await found(check_folder, data))["data.writable"]
        assert bad.state == "fail"
        assert "No space left" in bad.found
    monkeypatch.setattr(folder, "SLOW_FSYNC_S", 0.0)
    assert (await found(check_folder, data))["data.writable"].state == "warn"
    monkeypatch.setattr(folder, "LOW_BYTES", 1 << 62)
    assert (await found(check_folder, data))["data.space"].state == "warn"
    monkeypatch.setattr(folder, "FULL_BYTES", 1 << 62)
    assert (await found(check_folder, data))["data.space"].state == "fail"


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", "overlay", "ext4", ""])
async def test_the_file_system_is_judged(data, kind, monkeypatch):
    mounts = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    mounts += (
        f"22 21 0:30 / {data.parent} rw shared:1 - {kind} none rw\n23 21 0:31 / /other rw - tmpfs none rw\n"
    )
    monkeypatch.setattr(folder, "_mounts", lambda: mounts if kind else "garbage\n\n - \n")
    told = (await found(check_folder, data))["data.filesystem"]
    assert told.state == ("ok" if kind in ("ext4", "") else "warn")
    assert filesystem(data, mounts) == (kind or "none")


async def test_what_is_open_to_others_is_told_and_closed_but_workspaces_are_not_touched(data):
    thread = data / "threads" / "slack" / "T~C~1"
    work = thread / "workspace"
    work.mkdir(parents=True, mode=0o755)
    for file in (data / "journal.jsonl", thread / "log.jsonl", work / "mine.txt"):
        file.write_text("")
        file.chmod(0o644)
    data.chmod(0o750)
    modes = (await found(check_folder, data))["data.modes"]
    assert (modes.state, str(data) in modes.found) == ("warn", True)
    done = list(apply_fixes(Context(Settings(data=data), {})))
    assert (await found(check_folder, data))["data.modes"].state == "ok"
    assert (work / "mine.txt").stat().st_mode & 0o777 == 0o644
    assert len([line for line in done if line.startswith("closed ")]) == 3


async def test_another_users_folder_is_left_alone_and_none_is_made_for_root(data, tmp_path, monkeypatch):
    data.chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: data.stat().st_uid + 1)
    assert "run this as that user" in next(iter(apply_fixes(Context(Settings(data=data), {}))))
    assert list(data.iterdir()) == []
    assert data.stat().st_mode & 0o777 == 0o755
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "would belong to root" in next(iter(apply_fixes(Context(Settings(data=tmp_path / "none"), {}))))
    assert not (tmp_path / "none").exists()


async def test_a_folder_that_is_missing_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    wanted = tmp_path / "a" / "data"
    assert f"created {wanted}" in list(apply_fixes(Context(Settings(data=wanted), {})))
    assert wanted.stat().st_mode & 0o777 == 0o700


def line(record):
    return encode(record_adapter(), record)


def about(n):
    return {"thread_id": "slack:T:C:1", "message_id": f"m{n}"}


async def test_the_journal_tells_what_waits_what_is_damaged_and_what_was_put_aside(data):
    received = [line(Received(**about(n), author=Author("U1", "ann"), text="hi")) for n in range(3)]
    started = line(Started(**about(0), attempt=1, correlation_id="ref0"))
    ends = [line(Settled(**about(0), outcome="dead_letter")), line(Settled(**about(1), outcome="answered"))]
    (data / "journal.jsonl").write_bytes(b"".join([*received, started, b"garbage\n", *ends, b'{"torn']))
    told = summarize_journal(data)
    assert (told.records, told.damaged, told.torn, told.waiting) == (6, 1, True, 1)
    assert told.outcomes == {"dead_letter": 1, "answered": 1}
    states = await found(check_records, data)
    assert states["data.journal"].state == states["data.dead_letters"].state == "warn"
    assert "1 damaged line" in states["data.journal"].found
    assert states["data.damage"].state == states["data.version"].state == "ok"


async def test_what_a_newer_version_wrote_fails_the_check(data):
    (data / "schema.json").write_text('{"v": 99}')
    assert (await found(check_records, data))["data.version"].state == "fail"
    (data / "schema.json").unlink()
    newer = Settled(**about(1), outcome="answered")
    newer.v = 99
    (data / "journal.jsonl").write_bytes(line(newer))
    told = (await found(check_records, data))["data.journal"]
    assert told.state == "fail"
    assert "newer Threadfast" in told.found


async def test_sidecars_of_damage_are_told(data):
    (data / "usage").mkdir()
    (data / "usage" / "2026-01.jsonl.broken").write_text("x")
    told = (await found(check_records, data))["data.damage"]
    assert told.state == "warn"
    assert "usage/2026-01.jsonl.broken" in told.found


async def test_tokens_that_others_may_read_are_told_and_closed(data):
    folder = data / "mcp-tokens"
    folder.mkdir(mode=0o700)
    tokens = folder / "0123.json"
    tokens.write_text("{}")
    tokens.chmod(0o644)
    modes = (await found(check_folder, data))["data.modes"]
    assert (modes.state, modes.found) == ("warn", f"open to others: {tokens}")
    assert "act as the people who signed in" in modes.meaning
    assert "threadfast doctor --fix" in modes.fix
    assert list(apply_fixes(Context(Settings(data=data), {}))) == [f"closed {tokens} to others (now 600)"]
    assert (await found(check_folder, data))["data.modes"].state == "ok"


def test_only_what_we_began_to_write_is_deleted_and_never_through_a_link(data, tmp_path):
    theirs, thread = tmp_path / "theirs", data / "threads" / "slack" / "T~C~1"
    for place in (theirs, thread / "workspace", data / "usage"):
        place.mkdir(parents=True)
    (data / "audit").symlink_to(theirs)
    ours = [data / "models.json.tmp", data / "usage" / "2026-11.jsonl.tmp", thread / "context.jsonl.tmp"]
    others = [
        data / "plan.tmp",
        data / "IDENTITY.tmp",
        theirs / "2026-11-22.jsonl.tmp",
        thread / "workspace" / "mine.tmp",
        data / "fresh.json.tmp",
    ]
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
