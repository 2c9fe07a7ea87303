"""The watchdog is fed while a new process would do no better, row by row of the table in `bot.observe.watchdog`."""

from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from bot.observe.supervision import prepare_first_answer
from bot.observe.watchdog import SILENT_LINK_S
from bot.observe.worker_threads import PATIENCE_S, WorkerWatch, watch_workers
from tests.bot.observe.fake_bot import FakeBot, TransportLink
from tests.sim.loop import virtual_time
from threads.background import background_tasks

anyio_backend = virtual_time


@asynccontextmanager
async def beating(body, tmp_path):
    watchdog = body.watchdog(tmp_path)
    async with background_tasks() as tasks:
        tasks.start_soon(watchdog.run)
        yield watchdog


async def fed(body, seconds=10.0):
    before = body.count("WATCHDOG")
    await anyio.sleep(seconds)
    return body.count("WATCHDOG") - before


async def test_ready_is_said_once_with_the_first_transport_and_until_then_more_time_is_asked_for(tmp_path):
    body = FakeBot(
        [
            TransportLink("slack", "starting", silent_s=None),
            TransportLink("discord", "reconnecting", silent_s=None),
        ]
    )
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(600)
        assert not body.count("READY")
        assert not body.count("WATCHDOG")
        assert body.count("EXTEND_TIMEOUT_USEC") >= 10
        assert "slack is starting" in watchdog.unready
        body.edges[1].state = "connected"
        await anyio.sleep(1)
        assert body.count("READY") == 1
        assert watchdog.unready == ""
        body.edges[1].state = "reconnecting"
        await anyio.sleep(5)
        body.edges[1].state = "connected"
        await anyio.sleep(5)
        assert body.count("READY") == 1


async def test_a_bot_whose_store_does_not_answer_is_not_ready_and_stays_alive(tmp_path):
    body = FakeBot()
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(1)
        body.store_trouble = "the database does not answer"
        assert await fed(body, 60)
        assert (watchdog.unready, watchdog.fault) == ("the database does not answer", "")
        assert not watchdog.status().ready


async def test_the_first_answer_is_prepared_once_ready_is_said_and_not_before(tmp_path):
    body, prepared = FakeBot([TransportLink("slack", "starting", silent_s=None)]), []

    async def prepare():
        prepared.append(body.count("READY"))

    async with background_tasks() as tasks:
        watchdog = body.watchdog(tmp_path)
        tasks.start_soon(watchdog.run)
        tasks.start_soon(prepare_first_answer, watchdog, replace(body.live(tmp_path), prepare=prepare))
        await anyio.sleep(60)
        assert prepared == []
        body.edges[0].state = "connected"
        await anyio.sleep(5)
    assert prepared == [1]


async def test_a_ready_that_did_not_get_out_is_said_again(tmp_path):
    body, refused = FakeBot(), [False, False, True]
    body.systemd.send = lambda **fields: body.told.append(fields) or ("READY" not in fields or refused.pop(0))
    async with beating(body, tmp_path):
        await anyio.sleep(3)
    assert body.count("READY") == 3


@pytest.mark.parametrize("watchdog_s", [0.9, 3.0, 30.0])
async def test_the_watchdog_is_fed_three_times_in_its_time_at_least(tmp_path, watchdog_s):
    body = FakeBot(watchdog_s=watchdog_s)
    async with beating(body, tmp_path):
        await anyio.sleep(1)
        assert await fed(body, watchdog_s * 10) >= 29


async def test_threads_that_are_stuck_starve_the_watchdog_and_a_disk_that_hangs_does_not(tmp_path):
    body = FakeBot()
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(1)
        body.workers.state = "waiting"
        assert await fed(body)
        assert "the disk does not respond" in watchdog.status().troubles
        assert watchdog.fault == ""
        body.workers.state = "stuck"
        assert not await fed(body)
        assert "threads" in watchdog.fault
        body.workers.state = "free"
        assert await fed(body)


async def test_a_link_that_says_connected_and_hears_nothing_for_long_starves_the_watchdog(tmp_path):
    body = FakeBot()
    async with beating(body, tmp_path) as watchdog:
        for _ in range(int(SILENT_LINK_S) - 5):
            body.edges[0].silent_s += 1.0
            await anyio.sleep(1)
        assert await fed(body, 2)
        for _ in range(10):
            body.edges[0].silent_s += 1.0
            await anyio.sleep(1)
        assert "slack" in watchdog.fault
        assert not await fed(body, 2)
        body.edges[0].silent_s = 0.5
        assert await fed(body, 3)


@pytest.mark.parametrize(
    "ages",
    [{"web": None}, {"console": None}, {"web": None, "slack": 0.5}, {"slack": 0.0, "discord": 41.0}],
    ids=lambda ages: " beside ".join(ages),
)
async def test_what_has_no_frames_and_what_gets_one_between_all_beats_is_never_silent(tmp_path, ages):
    body = FakeBot([TransportLink(name, silent_s=age) for name, age in ages.items()])
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(1)
        assert await fed(body, 3 * SILENT_LINK_S) >= 3 * SILENT_LINK_S - 1
        assert body.count("STATUS") == 1
        assert watchdog.fault == ""


async def test_a_process_that_was_stopped_for_an_hour_is_not_deaf(tmp_path):
    body = FakeBot()
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(5)
        body.edges[0].silent_s = 3600.0
        await anyio.sleep(2)
        assert watchdog.fault == ""


@pytest.mark.parametrize("state", ["reconnecting", "disconnected", "stopped"])
async def test_a_platform_that_is_down_is_no_reason_for_a_restart(tmp_path, state):
    body = FakeBot()
    async with beating(body, tmp_path) as watchdog:
        await anyio.sleep(1)
        body.edges[0].state, body.edges[0].silent_s = state, None
        assert await fed(body, 4000) > 1000
        assert not watchdog.ready


async def test_systemds_line_says_how_it_goes(tmp_path):
    body = FakeBot([TransportLink(), TransportLink("discord", "reconnecting")], ["mcp x is down"])
    body.slots.running = 1
    async with beating(body, tmp_path):
        await anyio.sleep(20)
    lines = [fields["STATUS"] for fields in body.told if "STATUS" in fields]
    assert lines == ["slack connected, discord reconnecting; 1 turn runs, 0 messages wait; mcp x is down"]


class HangingProbe:
    """Answers, until it is told to hang."""

    def __init__(self, *, hangs=False):
        self.hangs = hangs

    async def __call__(self):
        while self.hangs:
            await anyio.sleep(1)


async def test_threads_are_called_stuck_only_when_the_disk_answers_and_are_free_again_when_they_do():
    threads, disk = HangingProbe(), HangingProbe(hangs=True)
    workers = WorkerWatch(threads, disk)
    async with background_tasks() as tasks:
        tasks.start_soon(workers.run)
        await anyio.sleep(3 * PATIENCE_S)
        assert workers.state == "free"
        threads.hangs = True
        await anyio.sleep(PATIENCE_S / 2)
        assert workers.state == "free"
        await anyio.sleep(PATIENCE_S)
        assert workers.state == "waiting"
        disk.hangs = False
        await anyio.sleep(2)
        assert workers.state == "stuck"
        threads.hangs = False
        await anyio.sleep(2)
        assert workers.state == "free"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_real_threads_and_the_real_disk_answer(tmp_path):
    workers = watch_workers(tmp_path, ())
    await workers.probe_threads()
    await workers.probe_disk()
    await watch_workers(tmp_path / "gone", ()).probe_disk()
    assert list(tmp_path.iterdir()) == []
