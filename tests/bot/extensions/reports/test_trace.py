"""What the commands tell from disk: threads, one thread, one message, dead letters."""

import re

from click.testing import CliRunner

from bot.cli import main
from bot.ports.errors import ModelUnavailable
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from bot.reports.thread import journal
from tests.sim.loop import virtual_time
from tests.world import T1, T2, Platform, Scripted, message, running, says
from threads.log import LogEntry, entry_adapter
from threads.store.checksummed_lines import encode
from threads.store.data_folder import lock_data_folder, thread_folder

anyio_backend = virtual_time


def threadfast(data, *arguments):
    result = CliRunner().invoke(main, [*arguments, "--data", str(data)])
    return result.exit_code, re.sub(
        r"(?m)^Time {8,}|\d\d:\d\d:\d\d\.\d{3}",
        lambda found: "AT  " if ":" in found[0] else "Time  ",
        result.output,
    )


async def talk(data):
    platform = Platform()
    async with running(data, platform, Scripted(says("hi ann"), ModelUnavailable("503"))) as bot:
        await bot.orchestrator.receive(message(1, "hello\x1b[2J there"))
        await platform.settled("m1")
        await bot.orchestrator.receive(message(2, "again", thread=T2))
        await platform.settled("m2")
    return platform


async def test_why_tells_the_story_of_a_message_by_its_id(tmp_path):
    await talk(tmp_path)
    code, told = threadfast(tmp_path, "why", "m1")
    assert code == 0
    assert told == (
        "Message m1 in fake:W:C1:1.0, 2026-11-21 (UTC)\n"
        "Time  What\n"
        'AT    received  from U1 (ann): "hello�[2J there"\n'
        "AT    started   attempt 1 (ref 6d65978b)\n"
        'AT    intent    reply: "hi ann"\n'
        "AT    posted    as p1\n"
        "AT    settled   answered\n"
        "It was answered.\n\n"
    )


async def test_why_finds_a_failure_by_the_reference_that_the_thread_shows(tmp_path):
    platform = await talk(tmp_path)
    reference = platform.texts[-1].split("(ref ")[1].rstrip(")")
    code, told = threadfast(tmp_path, "why", reference)
    assert code == 0
    assert told.startswith("Message m2 in fake:W:C2:2.0, ")
    assert "intent    error, unavailable: \"I'm having trouble" in told
    assert "settled   failed" in told


async def test_why_still_knows_when_the_journal_has_forgotten(tmp_path):
    await talk(tmp_path)
    (tmp_path / "journal.jsonl").unlink()
    _, told = threadfast(tmp_path, "why", "m1")
    assert told.count("Message m1") == 1
    assert 'posted    reply as p1: "hi ann"' in told
    assert "settled   answered (ref 6d65978b)" in told


def test_a_dead_letter_that_is_resubmitted_is_owed_again(tmp_path):
    letter = {"at": "2026-11-21T10:00:00.000+00:00", "message_id": "m1"}
    path = thread_folder(tmp_path, T1) / "log.jsonl"
    path.parent.mkdir(parents=True)
    lines = [
        LogEntry(kind="message", author="U1", text="poison", quoted="> theirs", **letter),
        LogEntry(kind="settled", outcome="dead_letter", **letter),
    ]
    path.write_bytes(b"".join(encode(entry_adapter(), line) for line in lines))
    code, told = threadfast(tmp_path, "dead-letters", "list")
    assert (code, "poison" in told, "> theirs" in told) == (0, True, True)
    for number in (1, 2):
        code, told = threadfast(tmp_path, "dead-letters", "resubmit", "m1")
        assert (code, told) == (0, f"m1 will be served at the next start, as m1~{number}.\n")
        pending = [(r.message_id, r.text, r.quoted) for r in journal(FileReader(tmp_path), Damage())]
        assert pending == [(f"m1~{n}", "poison", "> theirs") for n in range(1, number + 1)]
    assert threadfast(tmp_path, "dead-letters", "resubmit", "m9")[0] == 1
    with lock_data_folder(tmp_path):
        code, told = threadfast(tmp_path, "dead-letters", "resubmit", "m1")
    assert (code, "stop it first" in told) == (78, True)
    (tmp_path / "schema.json").write_text('{"v": 9}')
    code, told = threadfast(tmp_path, "dead-letters", "resubmit", "m1")
    assert (code, "newer Threadfast" in told) == (78, True)
