"""Data folders of the past are opened, recovered and readable, by this version and every later one.

`old-data-v1` was left by a real run (`tests.bot.store.old_data`); `old-data-issue2` holds lines in the shape of the very
first journal, written by the code of that time, which lack every field that was added since.
"""

import shutil
from datetime import timedelta
from pathlib import Path, PurePosixPath

import anyio
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.store.data_version import version_of
from bot.store.layout import DATA_VERSION, kind_of
from tests.bot.store.old_data import ANSWERED, ASKED, BEGAN, CUT, SETTINGS, TickingClock, make
from tests.patience import WITHIN_S
from tests.serving import Chat, serving
from threads.journal.records import Ledger, record_adapter
from threads.model import Outgoing, ThreadId, message_key
from threads.store.checksummed_lines import scan
from transports.base.transport import Capabilities

STORED = Path(__file__).parent


@pytest.fixture(params=["old-data-v1", "old-data-issue2"])
def old(request, tmp_path):
    return Path(shutil.copytree(STORED / request.param, tmp_path / request.param))


@pytest.fixture
def soon_after(monkeypatch):
    """The clock of those days: what was cut is young enough to be served."""
    monkeypatch.setattr("bot.wiring.app.utc_now", TickingClock(BEGAN + timedelta(minutes=2)))


def seat_of_then():
    """Return the platform as the old process left it: the post that an intent speaks of may be out."""
    seat = Chat()
    seat.capabilities = Capabilities(find=True, lands_late=False)
    seat.sent = 100
    return seat


def owed_in(data):
    promises = Ledger()
    for line in scan((data / "journal.jsonl").read_bytes()).good:
        promises.apply(record_adapter().validate_json(line))
    return promises


@pytest.mark.needs("schedule")
@pytest.mark.usefixtures("soon_after")
async def test_what_an_old_process_left_is_served_to_its_end(tmp_path):
    data = shutil.copytree(STORED / "old-data-v1", tmp_path / "data")
    left = {pending.received.message_id: pending for pending in owed_in(data).pending.values()}
    expected = {"write asked.txt may I", "take for ever, unless somebody ends me"}
    assert {pending.received.text for pending in left.values()} == expected
    seat = seat_of_then()
    async with serving(data, SETTINGS, model="offline/demo", chat=seat):
        with anyio.fail_after(WITHIN_S):
            await seat.until(lambda: any("?" in post.key for post in seat.posts))
            await seat.send("/approve", thread=ASKED)
            await seat.settled(*left)
            known = await seat.say("recall tea", thread=ANSWERED)
            listed = await seat.say("/schedule", thread=ANSWERED)
            kept = await seat.say("read notes.txt", thread=ANSWERED)
    assert (data / "threads/fake/W~C1~4.0/workspace/asked.txt").read_text() == "may I"
    assert {post.thread for post in seat.posts if post.reply_to in left} == {ASKED, CUT}
    assert "left drawer" in known.text
    assert "make tea" in listed.text
    assert "milk and honey" in kept.text
    assert version_of(data) == DATA_VERSION


@pytest.mark.usefixtures("soon_after")
async def test_the_first_journal_ever_is_still_understood(tmp_path):
    data = shutil.copytree(STORED / "old-data-issue2", tmp_path / "data")
    seat = seat_of_then()
    place = ThreadId("fake", "W", "C1", "2.0")
    seat.posts.append(Outgoing(place, message_key(place, "m3"), "Here I am.", "reply"))
    async with serving(data, SETTINGS, model="offline/demo", chat=seat):
        with anyio.fail_after(WITHIN_S):
            await seat.settled("m2", "m3", "m4")
    assert seat.outcomes == {"m1": "answered", "m2": "answered", "m3": "answered", "m4": "answered"}
    assert [post.reply_to for post in seat.posts[1:]].count("m3") == 0
    assert not owed_in(data).pending


async def test_what_is_too_old_to_be_served_is_answered_for(old):
    left = {pending.received.message_id for pending in owed_in(old).pending.values()}
    seat = seat_of_then()
    async with serving(old, SETTINGS, model="offline/demo", chat=seat):
        with anyio.fail_after(WITHIN_S):
            await seat.settled(*left)
    assert not owed_in(old).pending


def test_every_command_that_reads_can_read_it(old, monkeypatch):
    monkeypatch.chdir(old.parent)

    def said(*words):
        done = CliRunner().invoke(main, [*words, "--data", str(old)])
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output

    assert "fake:W:C1:1.0" in said("threads", "list")
    assert "hello" in said("threads", "show", "fake:W:C1:1.0")
    assert "hello" in said("why", "m1")
    said("usage")
    letters = said("dead-letters", "list")
    assert ("take for ever" in letters) == (old.name == "old-data-v1")
    assert "files" in said("backup", str(old.parent / "b.tar.gz"))


@pytest.mark.needs("schedule")
async def test_every_file_of_a_whole_run_is_in_the_table(tmp_path):
    data = tmp_path / "data"
    await make(data)
    paths = [PurePosixPath(path.relative_to(data)) for path in data.rglob("*") if path.is_file()]
    assert [path for path in paths if kind_of(path) is None] == []
    assert {kind.pattern for path in paths if (kind := kind_of(path))} >= {
        "journal.jsonl",
        "schedules.json",
        "approvals.json",
        "models.json",
        "schema.json",
        "usage/*.jsonl",
        "audit/*.jsonl",
        "threads/*/*/context.jsonl",
        "threads/*/*/log.jsonl",
        "threads/*/*/MEMORY.md",
        "threads/*/*/workspace/**",
    }
