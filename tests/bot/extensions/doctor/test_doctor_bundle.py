"""A bundle goes to strangers: nothing that was planted anywhere is in it, and what a maintainer needs is."""

import json
import os
import re
from datetime import UTC, datetime

import pytest

from bot.config.load import load
from bot.extensions.doctor.bundle import bundle
from bot.extensions.doctor.run import DoctorOptions, run_doctor
from bot.guards.redaction import Masker
from bot.host.checks import Context
from bot.ports.status import CircuitStatus, Status, TransportStatus
from threads.journal.records import Intent, Received, Settled, Started, record_adapter
from threads.model import Author
from threads.store.checksummed_lines import encode
from transports.shared.checks import Finding

AT = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)


def canary(place):
    return f"canary-{place}-7f3a"


@pytest.fixture
def home(tmp_path):
    """A folder with a canary wherever somebody may have put something of his own."""
    here = tmp_path / canary("path")
    (here / "credentials").mkdir(parents=True, mode=0o700)
    (here / "credentials" / "KEY").write_text(canary("secretfile"))
    settings = {
        "data": canary("data"),
        "model": "openai/gpt-6.1-terra",
        "providers": {"openai": {"api_key": "file:KEY"}},
        "mcp_servers": {
            canary("server"): {"command": f"/opt/{canary('command')}", "env": {"K": "env:PLANTED"}}
        },
    }
    (here / "settings.json").write_text(json.dumps(settings))
    return here


ENVIRON = {
    "SLACK_BOT_TOKEN": "xoxb-canary-bottoken-7f3a",
    "PLANTED": canary("planted"),
    "PATH": os.environ["PATH"],
}


def furnish(data):
    about = {"thread_id": f"slack:T1:{canary('threadid')}:1", "message_id": canary("messageid")}
    records = (
        Received(**about, author=Author("U0CANARY7F3A", canary("person")), text=canary("text")),
        Started(**about, attempt=1, correlation_id="ref4711"),
        Intent(**about, text=canary("answer"), post="error", outcome="failed", code="timeout"),
        Settled(**about, outcome="failed"),
    )
    data.mkdir(mode=0o700)
    (data / "journal.jsonl").write_bytes(b"".join(encode(record_adapter(), record) for record in records))


def status(data):
    return Status(
        pid=7, version="0.1.0", started_at="2026-11-22T13:00:00Z", uptime_s=60, ready=True, stopping=False,
        data=str(data), model="openai/gpt-6.1-terra", pending=3,
        transports=(TransportStatus("slack", "connected", canary("trouble")),),
        circuits=(CircuitStatus("openai/gpt-6.1-terra", "open", canary("why")),),
        troubles=(canary("statustrouble"),),
    )  # fmt: skip


@pytest.fixture
def context(home):
    file = home / "settings.json"
    loaded = load(file, environ=ENVIRON)
    data = loaded.settings.data
    furnish(data)
    mask = Masker([canary("secretfile"), canary("planted"), ENVIRON["SLACK_BOT_TOKEN"]])
    return Context(loaded.settings, loaded.environ, file, running_bot=status(data), mask=mask)


BOT, TEAM, OUTPUT = canary("bot"), canary("team"), canary("stderr")
FINDINGS = [
    Finding("slack.token", "ok", f"{BOT} in {TEAM}", names=(BOT, TEAM)),
    Finding("mcp_servers.x", "fail", f"it ended. It said: {OUTPUT} x", "m", "f", (f"{OUTPUT}  x",)),
    Finding("model", "fail", f"auth: {canary('planted')}", "The bot cannot answer.", "Set a good key."),
]


def left(text):
    return re.findall(r"(?i)[\w-]*canary[\w-]*", text) + re.findall("700000000000000777", text)


def test_nothing_that_was_planted_is_in_it(context, home):
    place = Finding("data.folder", "ok", f"{context.settings.data} and {home}/settings.json")
    text = bundle(context, [*FINDINGS, place], at=AT)
    assert left(text) == []
    assert "<data> and <settings>/settings.json" in text


def test_what_a_maintainer_needs_is_in_it(context):
    text = bundle(context, FINDINGS, at=AT)
    for words in (
        "threadfast 0.", "Python 3.", "pydantic 2", "openai/gpt-6.1-terra",
        "fail  model", "Set a good key.", "pending: 3", '"state": "open"',
        "records: 4, damaged: 0, waiting: 0", "failed: 1", "timeout: 1, the last ones ref4711",
    ):  # fmt: skip
        assert words in text


def test_the_command_writes_it_closed_to_others(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    settings = {"model": "offline/demo", "tools": {"sandbox": "off"}}
    (home / "settings.json").write_text(json.dumps(settings))
    (home / "out.txt").write_text("older, and longer " * 10_000)
    (home / "out.txt").chmod(0o644)
    assert run_doctor(DoctorOptions(home / "settings.json", bundle=home / "out.txt"), ENVIRON) == 0
    assert (home / "out.txt").stat().st_mode & 0o777 == 0o600
    text = (home / "out.txt").read_text()
    assert left(text) == []
    assert "## Checks" in text
    assert "older, and longer" not in text
    assert "read it before you share it" in capsys.readouterr().err


def test_settings_that_cannot_be_used_are_not_repeated_with_their_values(home, monkeypatch):
    monkeypatch.chdir(home)
    (home / "settings.json").write_text(json.dumps({"providers": {"openai": {"api_key": canary("literal")}}}))
    assert run_doctor(DoctorOptions(home / "settings.json", bundle=home / "out.txt"), ENVIRON) == 78
    assert left((home / "out.txt").read_text()) == []


def test_a_bundle_is_written_through_no_link_and_into_no_pipe(home):
    theirs, link, pipe = home / "theirs.txt", home / "link.txt", home / "pipe.txt"
    theirs.write_text("theirs")
    link.symlink_to(theirs)
    os.mkfifo(pipe)
    for place in (link, pipe):
        run_doctor(DoctorOptions(home / "settings.json", offline=True, bundle=place), ENVIRON)
        assert place.read_text().startswith("# Threadfast doctor")
    assert theirs.read_text() == "theirs"


def test_a_bundle_that_cannot_be_written_is_reported(home, capsys):
    place = home / "settings.json" / "out.txt"
    assert run_doctor(DoctorOptions(home / "settings.json", offline=True, bundle=place), ENVIRON) == 1
    assert f"Not written: {place}: Not a directory." in capsys.readouterr().err
