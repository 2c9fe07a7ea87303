"""Whatever is tried again says so in the log: which try comes, in how many seconds, why, and for whom."""

from __future__ import annotations

import errno
import logging

import pytest

from bot.config.settings import LlmRetry
from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.server import Timeouts
from bot.llm.policies.retry import RetryingModel
from bot.ports.errors import ModelUnavailable
from tests.bot.agent.test_compaction import Summariser, compact, talk
from tests.bot.agent.test_compaction import says as summary
from tests.bot.extensions.mcp.test_server import FakeConnection, running_server, until
from tests.bot.extensions.mcp.test_server import call as call_server
from tests.one_model import Only
from tests.sim.loop import virtual_time
from tests.transports.shared.test_supervisor import play
from tests.world import FaultyDisk, Gate, Platform, Scripted, calls, converse, message, running, says
from threads.errors import TransportRateLimited, TransportUnavailable
from threads.model import Waiting
from transports.shared.link.supervisor import LinkDown

anyio_backend = virtual_time


@pytest.fixture
def told(caplog):
    """Return what was told of retries so far: the event, which try comes, in how many seconds, the code."""
    caplog.set_level(logging.INFO)

    def records(event=""):
        found = [record for record in caplog.records if hasattr(record, "wait_s")]
        return [record for record in found if record.message.startswith(event)]

    def told(event=""):
        return [
            (record.message.partition(":")[0], record.attempt, record.wait_s, record.code)
            for record in records(event)
        ]

    told.records = records
    return told


async def test_of_a_model_call(tmp_path, platform, told):
    flaky = Scripted(ModelUnavailable("529"), ModelUnavailable("529 again"), says("late"))
    model = Only(RetryingModel(flaky, LlmRetry(), lambda: 0.5))
    await converse(tmp_path, platform, model, message())
    assert told() == [("model.retry", 2, 2.0, "unavailable"), ("model.retry", 3, 4.0, "unavailable")]
    expected = ["model.retry: fake/one: 529", "model.retry: fake/one: 529 again"]
    assert [record.message for record in told.records()] == expected
    for record in told.records():
        assert (record.levelname, record.provider, record.model) == ("WARNING", "fake", "fake/one")
        assert record.duration_ms == 0, "of the call, not of the wait"


async def test_of_an_empty_answer(tmp_path, platform, told):
    await converse(tmp_path, platform, Scripted(says(""), says("there")), message())
    assert told() == [("model.retry", 2, 0.0, "output_invalid")]
    [record] = told.records()
    assert (record.levelname, record.provider, record.duration_ms) == ("WARNING", "fake", 0)


async def test_of_a_post_and_of_its_look_up_with_the_reference_of_the_turn(tmp_path, platform, told):
    platform.faults.extend(
        [
            TransportRateLimited("slow", retry_after=40),
            TransportUnavailable("cut"),
            TransportUnavailable("cut"),
        ]
    )
    async with running(tmp_path, platform, Scripted(says("hi"))) as bot:
        await platform.exchange(bot, message())
    assert told() == [
        ("post.failed", 2, 40.0, "transport_rate_limited"),
        ("post.failed", 3, 2.0, "transport_unavailable"),
        ("post.failed", 4, 4.0, "transport_unavailable"),
    ]
    started = next(r for r in bot.journal.ledger.recent if r[1].received.message_id == "m1")[1].started
    for record in told.records():
        assert (record.message_id, record.correlation_id) == ("m1", started.correlation_id)


async def test_of_a_checkpoint(tmp_path, told, caplog):
    disk, platform = FaultyDisk(), Platform()
    async with running(tmp_path, platform, Scripted(says("one")), disk=disk) as bot:
        disk.refuse = {"create context.jsonl.tmp": OSError(errno.EIO, "I/O error")}
        await platform.exchange(bot, message())
    saving = [
        ("context.not_saved", n, wait, "store_unavailable") for n, wait in ((2, 2.0), (3, 4.0), (4, 6.0))
    ]
    assert told() == saving
    last = [record for record in caplog.records if record.message.startswith("context.not_saved")][3]
    assert (last.code, hasattr(last, "attempt")) == ("store_unavailable", False), "it is given up"


async def test_of_an_actor_that_waits_for_the_disk_or_crashes(tmp_path, told):
    disk, platform, gate = FaultyDisk(), Platform(), Gate(says("paid"))
    async with running(tmp_path, platform, Scripted(gate), disk=disk) as bot:
        await gate.hold(bot, message())
        disk.fill_journal()
        gate.open.set()
        await platform.until(lambda: sum(isinstance(e, Waiting) for _, e in platform.events) == 2)
        disk.refuse = {}
        await platform.settled("m1")
    expected = [("actor.waits", 2, 2.0, "store_unavailable"), ("actor.waits", 3, 4.0, "store_unavailable")]
    assert told() == expected
    assert all(record.correlation_id for record in told.records())


async def test_of_a_link(told):
    await play(*[(None, LinkDown("refused"))] * 2, (None, LinkDown("slow", retry_after=30)))
    assert told() == [
        ("transport.down", 2, 1.0, "transport_unavailable"),
        ("transport.down", 3, 2.0, "transport_unavailable"),
        ("transport.down", 4, 30.0, "transport_unavailable"),
    ]
    assert {record.transport for record in told.records()} == {"fake"}


async def test_of_a_summary(told):
    messages = talk(10)
    _, word = await compact(messages, Summariser(summary("")))
    assert word is None
    assert told() == [("compaction.useless", 2, 0.0, "output_invalid")], "the second was the last"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_of_an_mcp_server(told, monkeypatch):
    connection = FakeConnection(monkeypatch)
    connection.refuse = ConnectionLost("it ended")
    async with running_server(Timeouts(first_pause=0.02, longest_pause=0.04)) as server:
        with pytest.raises(Exception, match="it ended"):
            await call_server(server)
        await until(lambda: len(told()) >= 3)
    assert told()[:3] == [
        ("mcp.down", n, wait, "mcp_unavailable") for n, wait in ((2, 0.02), (3, 0.04), (4, 0.04))
    ]
    assert {record.server for record in told.records()} == {"s"}


async def test_a_history_that_was_damaged_has_its_code_in_the_log(tmp_path, platform, caplog):
    await converse(tmp_path, platform, Scripted(calls("list_files"), says("one")), message(1))
    (path,) = tmp_path.rglob("context.jsonl")
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, b"{broken\n", *rest]))
    await converse(tmp_path, platform, Scripted(), message(2))
    (damaged,) = [record for record in caplog.records if record.message.startswith("context.damaged")]
    assert (damaged.code, damaged.thread_id) == ("context_corrupt", str(message().thread))
