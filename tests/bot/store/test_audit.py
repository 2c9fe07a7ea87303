"""What the audit tells of a running bot: who stopped, allowed and paid what, what was tried again, what went wrong."""

import json
import logging
from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import pytest

from bot.observe.audit import MOST_WAITING, Audit, AuditFiles, record_adapter
from bot.observe.audit_sinks import MOST_A_MINUTE, AuditLog, audit_logs, record_decision
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.serving import anthropic, compatible, serving
from tests.world import ANN, FaultyDisk, inline, message
from threads.errors import StoreUnavailable, TransportUnavailable, retry_fields
from threads.model import Answer, Author, ThreadId
from threads.store.checksummed_lines import intact
from threads.store.disk import PosixDisk


def now():
    return datetime(2027, 1, 1, tzinfo=UTC)


def lines_of(folder, *kinds):
    """Return the records of these kinds, or all of them."""
    found = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    assert all(map(intact, found))
    records = [json.loads(line) for line in found]
    return [record for record in records if not kinds or record["kind"] in kinds]


def claude(fake, **more):
    providers = anthropic(fake.base_url, model_map={}, requests_per_minute=None)
    return {"model": "anthropic/claude-sonnet-5-5", "providers": providers, **more}


@pytest.fixture
def audit(tmp_path):
    return Audit(AuditFiles(PosixDisk(), tmp_path, inline).append, now)


async def test_a_stop_says_who_stopped_what_and_a_run_says_when_it_began_and_ended(tmp_path, monkeypatch):
    begun = anyio.Event()

    async def hang(*_):
        begun.set()
        await anyio.sleep_forever()

    monkeypatch.setattr("bot.llm.adapters.offline.OfflineModel.complete", hang)
    async with serving(tmp_path, {}, model="offline/demo") as seat:
        await seat.send("take for ever")
        await begun.wait()
        stop = await seat.say("/stop")
    found = lines_of(tmp_path / "audit")
    assert [line["kind"] for line in found] == ["start", "cancel", "stop"]
    assert found[0]["details"].keys() == {"version", "model"}
    assert (found[1]["author"], found[1]["message_id"]) == (ANN.id, stop.reply_to)
    assert found[1]["details"] == {"running": "1", "waiting": "0"}


async def test_lines_stand_in_the_order_in_which_they_arose_whoever_waits_for_them(tmp_path):
    disk, times = FaultyDisk(), iter(range(60))
    audit = Audit(AuditFiles(disk, tmp_path, inline).append, lambda: now().replace(second=next(times)))
    where = message(1).thread

    async def note(n):
        await audit.note("approval", where, str(n), "U1", {})

    for n in range(3):
        audit.tell("retry", {"n": str(n)})
        await note(n)
    disk.refuse["append"] = OSError(28, "No space left on device")
    with pytest.raises(StoreUnavailable):
        await note(3)
    audit.tell("retry", {"n": "3"})
    disk.refuse.clear()
    async with anyio.create_task_group() as tasks:
        for n in range(4, 8):
            tasks.start_soon(note, n)
            audit.tell("retry", {"n": str(n)})
    await audit.flush()
    found = lines_of(tmp_path)
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    expected = ["0", "1", "2", "4", "5", "6", "7"]
    assert [line["message_id"] for line in found if line["kind"] == "approval"] == expected
    assert [line["details"]["n"] for line in found if line["kind"] == "retry"] == list("01234567")


async def test_a_failed_turn_is_told_with_its_reason_and_reference(tmp_path, monkeypatch):
    async def fail(*_):
        raise RuntimeError("a bug with sk-ant-test in it")

    monkeypatch.setattr("bot.llm.adapters.offline.OfflineModel.complete", fail)
    async with serving(tmp_path, {}, model="offline/demo") as seat:
        told = await seat.say("hello")
    (error,) = lines_of(tmp_path / "audit", "error")
    assert error["details"]["event"] == "turn.failed"
    assert error["details"]["error"].startswith("RuntimeError: a bug with")
    assert "sk-ant-test" not in json.dumps(error)
    assert error["correlation_id"] in told.text
    assert error["thread_id"] == str(told.thread)


BOSS = Author("U9", "boss")


async def answered(tmp_path, given, word):
    """Return the decisions in the audit after somebody gave *word* to the question that "hello" leads to."""
    async with serving(tmp_path, {"access": {"admins": [BOSS.id]}, **given}) as seat:
        asked = await seat.send("hello")
        await seat.until(lambda: any(post.choices for post in seat.posts))
        yes, no = next(post.choices for post in seat.posts if post.choices)
        await seat.say(yes.command if word == "yes" else no.command, author=BOSS)
        found = lines_of(tmp_path / "audit", "decision")
        await seat.settled(asked.id)
    for line in found:
        assert (line["author"], line["message_id"], line["thread_id"]) == (
            BOSS.id,
            asked.id,
            str(asked.thread),
        )
    return [line["details"] for line in found]


@pytest.mark.parametrize(("word", "verdict"), [("yes", "allowed"), ("no", "denied")])
async def test_a_yes_or_no_to_another_model_is_on_disk_when_it_is_confirmed(tmp_path, word, verdict):
    async with a.FakeAnthropic([a.fault(401, "authentication_error")]) as fake:
        given = claude(fake, fallback_models=["offline/demo"], failover={"acknowledge": "ask"})
        found = await answered(tmp_path, given, word)
    about = "offline/demo in place of anthropic/claude-sonnet-5-5"
    assert found == [{"verdict": verdict, "about": about}]


async def test_a_no_to_more_money_is_in_the_audit_and_a_yes_is_a_grant(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("there"))]) as fake:
        limits = {"turn": 0.05, "thread": None, "user_day": None, "day": None, "month": None}
        given = claude(fake, budget={"limit_usd": limits})
        (refused,) = await answered(tmp_path / "no", given, "no")
        assert await answered(tmp_path / "yes", given, "yes") == []
    assert (refused["verdict"], refused["scopes"]) == ("denied", "turn")
    assert refused["about"].startswith("up to $0.")
    assert [line["kind"] for line in lines_of(tmp_path / "yes" / "audit") if line["kind"] == "grant"]


async def test_a_decision_that_the_disk_refuses_waits_and_is_taken_all_the_same(tmp_path):
    disk = FaultyDisk()
    disk.refuse["append"] = OSError(28, "No space left on device")
    audit = Audit(AuditFiles(disk, tmp_path, inline).append, now)
    turn = SimpleNamespace(incoming=message(1, "hello"))
    async with audit.writing({}):
        await record_decision(
            audit, turn, {"about": "b/two in place of a/one"}, Answer(approved=False, by="")
        )
        disk.refuse.clear()
    (line,) = lines_of(tmp_path, "decision")
    assert line["details"]["why"] == "nobody answered in time"


async def test_every_try_of_a_call_is_told_with_the_wait_that_was_planned_and_then_the_other_model(tmp_path):
    overloaded = a.fault(529, "overloaded_error")
    answers = o.FakeOpenAI(lambda _: o.chat_answer(o.Text("from llama")))
    async with a.FakeAnthropic(lambda _: overloaded) as fake, answers as other:
        given = claude(fake, fallback_models=["gateway/llama"])
        given["providers"] |= compatible("gateway", other.base_url)
        async with serving(tmp_path, given) as seat:
            await seat.say("hello")
            await seat.say("it is not that thread alone", thread=ThreadId("fake", "W", "C2", "1.0"))
            await seat.say("again")
    found = lines_of(tmp_path / "audit", "retry", "failover", "error")
    assert [(line["message_id"], line["details"]["event"]) for line in found] == [
        *[("m1", "model.retry")] * 3,
        ("m1", "model.failover"),
        ("m2", "model.retry"),
        ("m2", "model.failover"),
        ("m3", "model.passed_over"),
    ]
    [opened] = lines_of(tmp_path / "audit", "circuit")
    assert opened["details"]["event"] == "circuit.opened"
    retries = [line["details"] for line in found[:3]]
    waits = [float(retry.pop("wait_s")) for retry in retries]
    assert waits == sorted(waits)
    assert all("529" in retry.pop("reason") for retry in retries)
    reports = [retry.pop("report") for retry in retries]
    assert all((one["type"], one["recoverable"]) == ("unavailable", True) for one in reports)
    assert all(one["ways"] == ["retry"] for one in reports)
    assert all(int(retry.pop("duration_ms")) >= 0 for retry in retries)
    told = {"event": "model.retry", "code": "unavailable", "model": "anthropic/claude-sonnet-5-5"}
    told["provider"] = "anthropic"
    assert retries == [told | {"attempt": attempt} for attempt in ("2", "3", "4")]
    assert found[3]["details"]["from_model"] == "anthropic/claude-sonnet-5-5"
    assert len({line["correlation_id"] for line in found}) == 3


async def test_a_failed_tool_is_told_with_its_reason_and_the_reference_of_its_turn(tmp_path):
    wish = a.answer(a.Tool("toolu_1", "read_file", {"path": "none.txt"}))
    script = [wish, a.answer(a.Text("there is none"))]
    async with a.FakeAnthropic(script) as fake, serving(tmp_path, claude(fake)) as seat:
        await seat.say("read it")
    (failed,) = lines_of(tmp_path / "audit", "tool")
    assert failed["details"]["event"] == "tool.failed"
    assert failed["details"]["reason"].startswith("read_file: ")
    assert "none.txt" in failed["details"]["reason"]
    assert (failed["details"]["tool"], failed["details"]["call"]) == ("read_file", "toolu_1")
    assert failed["details"]["code"] == "tool_not_found"
    assert failed["message_id"] == "m1"
    assert failed["correlation_id"]


async def test_retries_are_told_however_many_there_are_and_however_little_is_logged(tmp_path):
    root, ours = logging.getLogger(), logging.getLogger("transports")
    level, before = root.level, ours.level
    root.setLevel(logging.CRITICAL)
    log = logging.getLogger("transports.made_up")
    try:
        audit = Audit(AuditFiles(PosixDisk(), tmp_path, inline).append, now)
        async with audit.writing({}), audit_logs(audit, str):
            for n in range(3 * MOST_A_MINUTE):
                log.info("post.failed: no", extra=retry_fields(TransportUnavailable("no"), n + 2, 1.5))
    finally:
        root.setLevel(level)
    retries = [line["details"] for line in lines_of(tmp_path, "retry")]
    assert [retry["attempt"] for retry in retries] == [str(n + 2) for n in range(3 * MOST_A_MINUTE)]
    assert {(retry["wait_s"], retry["code"], retry["reason"]) for retry in retries} == {
        ("1.5", "transport_unavailable", "no")
    }
    assert ours.level == before


async def test_a_disk_that_refuses_holds_nobody_up_and_what_waits_is_written_later(tmp_path, caplog):
    disk = FaultyDisk()
    disk.refuse["append"] = OSError(28, "No space left on device")
    audit = Audit(AuditFiles(disk, tmp_path, inline).append, now)
    async with audit.writing({}):
        for n in range(MOST_WAITING + 10):
            audit.tell("cancel", {"n": str(n)})
        await audit.flush()
        await audit.flush()
        disk.refuse.clear()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "audit.not_written",
        "audit.lost",
    ]
    found = [line["details"] for line in lines_of(tmp_path)]
    assert found[1:] == [{"n": str(n)} for n in range(MOST_WAITING - 1)]


async def test_an_error_that_comes_a_thousand_times_is_told_a_few_times_and_counted(audit, tmp_path):
    times = iter([0.0] * 1000 + [61.0])
    taking = AuditLog(audit, str, clock=lambda: next(times))
    log = logging.getLogger("threads.made_up")
    log.addHandler(taking)
    try:
        async with audit.writing({}):
            for _ in range(1001):
                log.error("disk.refuses: no space")
            log.warning("not.one: only a warning")
            logging.getLogger("bot.observe.audit").error("audit.lost: of no use here")
    finally:
        log.removeHandler(taking)
    errors = [line["details"] for line in lines_of(tmp_path, "error")]
    assert len(errors) == MOST_A_MINUTE + 1
    expected = {"event": "disk.refuses", "reason": "no space", "more_before": str(1000 - MOST_A_MINUTE)}
    assert errors[-1] == expected


async def test_records_of_older_and_newer_versions_can_be_read():
    old = {
        "at": "",
        "kind": "approval",
        "thread_id": "t",
        "message_id": "m",
        "author": "U1",
        "details": {},
        "v": 1,
    }
    assert record_adapter().validate_python(old).correlation_id == ""
    assert record_adapter().validate_python(old | {"kind": "unheard of"}).kind == "unheard of"
