import json
from datetime import datetime, timedelta

import anyio
import pytest

from bot.budget.budgets import Call, Commit, Reserve
from bot.observe.audit import AuditRecord
from bot.ports.model import Usage
from bot.reports import message_story
from tests.bot.budget.ledgers import Time
from tests.bot.cli.data_folders import (
    DAY,
    at,
    document,
    exchange,
    threadfast,
    write_audit,
    write_records,
    write_thread,
)
from tests.bot.extensions.reports.test_usage_command import spend
from tests.fakes import anthropic as a
from tests.serving import anthropic, serving
from threads.journal.records import Received, Settled, Started, record_adapter
from threads.model import Author, Message, Text, ThreadId, ToolCall, ToolResult
from threads.store.context import Line, line_adapter
from threads.store.data_folder import thread_folder

ID = "1700000000.000001"
WHERE = "slack:T1:C1:1700000000.000001"


def journal(data, *records) -> None:
    (data / "journal.jsonl").unlink(missing_ok=True)
    write_records(data / "journal.jsonl", record_adapter(), *records)


def received(**more) -> Received:
    return Received(thread_id=WHERE, message_id=ID, author=Author("U1", "ann"), text="hi", at=at(1), **more)


def started(attempt=1) -> Started:
    return Started(thread_id=WHERE, message_id=ID, attempt=attempt, correlation_id="abcd1234", at=at(2))


LINK = "https://x.slack.com/archives/C1/p1700000000000001?thread_ts=1700000000.000001&cid=C1"


@pytest.mark.parametrize("name", [ID, "abcd1234", LINK])
def test_a_message_has_many_names(tmp_path, name):
    journal(tmp_path, received(), started())
    (found,) = document(tmp_path, "why", name)["messages"]
    assert (found["thread"], found["message_id"], found["outcome"]) == (WHERE, ID, None)
    assert [event["kind"] for event in found["events"]] == ["received", "started"]


def test_the_bot_s_own_post_leads_to_what_it_answered(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(7))
    (found,) = document(tmp_path, "why", "p7")["messages"]
    assert (found["message_id"], found["outcome"], found["verdict"]) == ("m7", "answered", "It was answered.")


def test_one_that_waits_is_told_apart_from_one_that_is_served(tmp_path):
    journal(tmp_path, received())
    assert "it waits for its turn" in threadfast(tmp_path, "why", ID).stdout
    journal(tmp_path, received(), started())
    assert "it is being served" in threadfast(tmp_path, "why", ID).stdout


def test_merged_messages_name_the_one_they_joined(tmp_path):
    end = Settled(thread_id=WHERE, message_id=ID, outcome="merged", by="m0", at=at(3))
    journal(tmp_path, received(), end)
    assert "merged and answered with message m0" in threadfast(tmp_path, "why", ID).stdout


def test_what_it_cost_and_what_was_decided_is_part_of_the_story(tmp_path):
    journal(tmp_path, received(), started())
    call = Call(WHERE, "U1", f"slack:T1:C1:{ID}", "anthropic/large", DAY)
    other = Call(WHERE, "U1", f"slack:T1:C1:{ID}0", "anthropic/large", DAY)
    reserve = Reserve(call=call, micros=400_000)
    paid = Commit(call=call, usage=Usage(1000, 500, 7000), micros=250_000, reserve=1)
    limited = Commit(call=call, usage=Usage(), micros=0, outcome="rate_limited")
    elsewhere = Commit(call=other, usage=Usage(1, 1), micros=1)
    records = (reserve, paid, elsewhere, limited, Reserve(call=call, micros=300_000))
    anyio.run(spend, tmp_path, Time(f"{DAY}T10:00:05"), *records)
    decision = {"tool": "shell", "verdict": "allowed", "about": "ls", "call": "0f3e"}
    about = {"thread_id": WHERE, "message_id": ID, "author": "U1"}
    decided = AuditRecord(at=at(4), kind="approval", **about, details=decision)
    tried = {
        "event": "model.retry",
        "reason": "anthropic/large: 429 slow down",
        "attempt": "2",
        "wait_s": "4.1",
    }
    tried |= {"code": "rate_limited", "model": "anthropic/large"}
    again = AuditRecord(at=at(5), kind="retry", correlation_id="abcd1234", details=tried)
    other = AuditRecord(at=at(5), kind="retry", correlation_id="abcd1235", details=tried)
    write_audit(tmp_path, decided, again, other)
    lines = [(e["kind"], e["what"]) for e in document(tmp_path, "why", ID)["messages"][0]["events"][2:]]
    assert lines == [
        ("approval", "allowed: shell ls by U1"),
        ("retry", "model.retry: anthropic/large: 429 slow down; try 2 in 4.1 s, code rate_limited"),
        ("model call", "anthropic/large: 8,000 (7,000 cached) tokens in, 500 out, $0.25"),
        ("model call", "anthropic/large: rate_limited"),
        ("model call", "anthropic/large: began, no end on disk; counts as up to $0.30"),
    ]


def test_a_message_that_the_journal_knows_opens_no_other_thread(tmp_path, monkeypatch):
    write_thread(tmp_path, "9.9", *exchange(1))
    journal(tmp_path, received())
    opened = []
    real = message_story.entries
    monkeypatch.setattr(
        message_story, "entries", lambda folder, *a, **k: opened.append(folder.name) or real(folder, *a, **k)
    )
    assert document(tmp_path, "why", ID)["messages"]
    assert opened == []


def test_an_unknown_message_is_told_with_what_that_can_mean(tmp_path):
    result = threadfast(tmp_path, "why", "nope")
    assert result.exit_code == 1
    for word in ("No record of 'nope'", "never reached", "mentioned", "access", "threads show"):
        assert word in result.stderr
    result = threadfast(tmp_path, "why", "nope", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["messages"] == []
    assert len(json.loads(result.stdout)["possible_reasons"]) == len(message_story.UNKNOWN)


def test_a_secret_at_the_edge_of_what_is_shown_is_masked_whole(tmp_path):
    key = "sk-abcdef1234567890abcdef1234"
    for before in range(250, 300, 7):
        write_thread(tmp_path, "1.1", *exchange(1, "x" * before + " " + key))
        assert "sk-a" not in threadfast(tmp_path, "why", "m1").stdout
        assert "sk-a" not in threadfast(tmp_path, "threads", "list").stdout


async def test_the_steps_of_a_turn_are_told_in_their_order_each_with_its_own_time_and_reason(tmp_path):
    script = [
        a.fault(529, "overloaded_error", retry_after="0.04"),
        a.answer(a.Tool("t1", "list_files", {"path": "."})),
        a.answer(a.Tool("t2", "read_file", {"path": "none.txt"}), a.Tool("t3", "list_files", {"path": "."})),
        a.answer(a.Text("there is none")),
    ]
    async with a.FakeAnthropic(script) as fake:
        providers = anthropic(fake.base_url, model_map={})
        settings = {"model": "anthropic/claude-sonnet-5-5", "providers": providers}
        async with serving(tmp_path, settings) as bot:
            await bot.say("read it")
    (found,) = document(tmp_path, "why", "m1")["messages"]
    events = found["events"]
    assert [(event["kind"], event["what"].split()[0]) for event in events] == [
        ("received", "from"),
        ("started", "attempt"),
        ("model call", "anthropic/claude-sonnet-5-5:"),
        ("retry", "model.retry:"),
        ("model call", "anthropic/claude-sonnet-5-5:"),
        ("tool", "list_files"),
        ("model call", "anthropic/claude-sonnet-5-5:"),
        ("tool", "read_file"),
        ("tool", "list_files"),
        ("tool", "read_file"),
        ("model call", "anthropic/claude-sonnet-5-5:"),
        ("intent", "reply:"),
        ("posted", "as"),
        ("settled", "answered"),
    ]
    retry, wish, failed = (events[place] for place in (3, 7, 9))
    assert "529" in retry["what"]
    assert "try 2 in 0.04 s" in retry["what"]
    assert wish["what"] == 'read_file {"path":"none.txt"}'
    assert failed["what"].startswith("read_file failed: ")
    assert "none.txt" in failed["what"]
    times = [datetime.fromisoformat(event["at"]) for event in events]
    assert times == sorted(times)
    assert times[4] - times[3] >= timedelta(milliseconds=35), "the retry was told when it was planned"
    assert times[5] > times[3], "a tool has its own time, not the start's"


def used(call: str, at: str = "", *, failed: bool = False) -> list[Message]:
    said = {"success": False, "error": {"type": "timeout", "message": "It took too long."}} if failed else {}
    return [
        Message("user", (Text("hi"),), source=ID),
        Message("assistant", (ToolCall(call, "shell", {"command": "make"}),), at=at),
        Message("user", (ToolResult(call, json.dumps(said), is_error=failed),), at=at),
    ]


def conversation(data, *messages: Message) -> None:
    folder = thread_folder(data, ThreadId.parse(WHERE))
    write_records(folder / "context.jsonl", line_adapter(), *map(Line, messages))
    (folder / "log.jsonl").write_bytes(b"")


def test_a_tool_that_failed_says_why_even_where_the_audit_is_gone(tmp_path):
    journal(tmp_path, received(), started())
    conversation(tmp_path, *used("c1", at(5), failed=True))
    tool = document(tmp_path, "why", ID)["messages"][0]["events"][-1]
    what = 'shell {"command":"make"}, failed: It took too long.'
    assert tool == {"at": at(5), "kind": "tool", "what": what}


def test_tools_of_a_conversation_that_does_not_say_when_are_told_as_of_the_start(tmp_path):
    journal(tmp_path, received(), started())
    conversation(tmp_path, *used("c1"))
    tool = document(tmp_path, "why", ID)["messages"][0]["events"][-1]
    assert (tool["at"], tool["what"]) == (at(2), 'shell {"command":"make"}')
