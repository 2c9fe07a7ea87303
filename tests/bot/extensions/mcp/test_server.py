"""The states of a server and its circuit, with a fake connection."""

import asyncio
import math
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from bot.extensions.mcp import session as sdk
from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.server import MAX_WAITING, Server, Timeouts
from bot.extensions.mcp.settings import McpServer
from bot.extensions.mcp.tool_list import RawTool
from bot.ports.errors import McpUnavailable, ToolBusy, ToolTimeout
from tests.patience import until
from threads.background import background_tasks

FAST = Timeouts(program=10, first_pause=0.02, longest_pause=0.08, idle=5, leave=0.2)


class FakeConnection:
    """A connection whose outcome the test decides; ``opened`` counts the attempts."""

    def __init__(self, monkeypatch) -> None:
        self.opened = self.closed = self.running = self.most = self.listed = 0
        self.changed = anyio.Event()
        self.refuse: BaseException | None = None
        self.answers = anyio.Event()
        self.answers.set()
        self.fault: BaseException | None = None
        monkeypatch.setattr(sdk, "open_session", self.open)

    @asynccontextmanager
    async def open(self, *_):
        self.opened += 1
        if self.refuse:
            raise self.refuse
        try:
            yield self
        finally:
            self.closed += 1

    async def list(self):
        self.listed += 1
        return [RawTool("tool", "", {"type": "object"})]

    async def listen(self):
        pass

    async def next_change(self):
        await self.changed.wait()
        self.changed = anyio.Event()

    async def call(self, tool, arguments):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.fault:
                raise self.fault
            await self.answers.wait()
        finally:
            self.running -= 1
        return f"{tool} did"


@pytest.fixture
def connection(monkeypatch):
    return FakeConnection(monkeypatch)


@asynccontextmanager
async def running_server(times: Timeouts = FAST):
    async def discard(_name, _listing):
        pass

    run = partial(anyio.to_thread.run_sync, abandon_on_cancel=False)
    server = Server("s", McpServer(command="x"), {}, offload=run, mask=str, on_listed=discard, times=times)
    async with background_tasks() as tasks:
        tasks.start_soon(server.run)
        yield server


def call(server, within_s=5.0):
    return server.call("tool", {}, anyio.current_time() + within_s)


async def test_nothing_is_started_before_it_is_needed(connection):
    async with running_server() as server:
        await anyio.sleep(0.05)
        assert (server.state, connection.opened) == ("stopped", 0)
        assert await call(server) == "tool did"
        assert (server.state, connection.opened) == ("connected", 1)
    assert connection.closed == 1


async def test_an_idle_server_is_stopped_and_started_again_by_a_call(connection):
    async with running_server(Timeouts(idle=0.05)) as server:
        await call(server)
        await until(lambda: server.state == "stopped")
        assert connection.closed == 1
        assert await call(server) == "tool did"
        assert connection.opened == 2


async def test_a_server_is_not_idle_while_it_works(connection):
    connection.answers = anyio.Event()
    async with running_server(Timeouts(idle=0.02)) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(call, server)
        await until(lambda: connection.running)
        await anyio.sleep(0.1)
        assert server.state == "connected"
        connection.answers.set()
        await until(lambda: server.state == "stopped")


CANCELLED = asyncio.CancelledError("Cancelled via cancel scope")


@pytest.mark.parametrize(
    ("fault", "reason"), [(ConnectionLost("it ended"), "it ended"), (CANCELLED, "the connection broke")]
)
async def test_a_failed_connect_fails_the_calls_that_waited_for_it(connection, fault, reason):
    connection.refuse = fault
    async with running_server() as server:
        with pytest.raises(McpUnavailable, match=f"cannot be used: {reason}"):
            await call(server)
        assert server.state == "waiting"


async def test_the_circuit_opens_after_three_failures_refuses_at_once_and_closes_by_itself(connection):
    connection.refuse = ConnectionLost("it ended")
    async with running_server(Timeouts(first_pause=0.02, longest_pause=0.3)) as server:
        with pytest.raises(McpUnavailable):
            await call(server)
        await until(lambda: connection.opened >= 3 and server.state == "waiting")
        started = anyio.current_time()
        with pytest.raises(McpUnavailable, match=r"is down: it ended\. It is tried again in 1 s"):
            await call(server)
        assert anyio.current_time() - started < 0.02
        connection.refuse = None
        await until(lambda: server.state == "connected")
        assert await call(server) == "tool did"
        connection.fault = ConnectionLost("it ended")
        with pytest.raises(McpUnavailable, match="went away"):
            await call(server)
        connection.fault = None
        assert await call(server) == "tool did", "the count began anew: this call waits and is not refused"


async def test_the_pauses_are_1_2_4_and_at_most_60_s():
    pauses = {1: 1, 2: 2, 3: 4, 4: 8, 6: 32, 7: 60, 100: 60, 10**9: 60}
    assert {failures: Timeouts().pause(failures) for failures in pauses} == pauses


async def test_nobody_waits_for_a_server_that_nobody_called_for_long(connection):
    connection.refuse = ConnectionLost("it ended")
    async with running_server(Timeouts(first_pause=0.01, longest_pause=0.02, idle=0.05)) as server:
        with pytest.raises(McpUnavailable):
            await call(server)
        await until(lambda: server.state == "stopped")
        opened = connection.opened
        await anyio.sleep(0.1)
        assert connection.opened == opened
        connection.refuse = None
        assert await call(server) == "tool did"  # the one probe


async def test_a_connect_that_takes_too_long_is_given_up(connection, monkeypatch):
    monkeypatch.setattr(connection, "list", anyio.sleep_forever)
    async with running_server(Timeouts(program=0.3)) as server:
        with pytest.raises(McpUnavailable, match=r"did not answer within 0\.3 s"):
            await call(server)
    assert connection.closed == connection.opened


@pytest.mark.parametrize(
    "fault",
    [
        ConnectionLost("it ended"),
        RuntimeError("inside the SDK"),
        ExceptionGroup("two", [OSError(), ValueError()]),
        CANCELLED,
    ],
)
async def test_whatever_the_sdk_raises_or_cancels_ends_the_connection_alone(connection, fault):
    async with running_server() as server:
        connection.fault = fault
        with pytest.raises(McpUnavailable, match="may or may not have worked"):
            await call(server)
        connection.fault = None
        assert await call(server) == "tool did"
        assert connection.opened == 2


@pytest.mark.parametrize("within_s", [5.0, math.inf])
async def test_a_stop_of_ours_stays_ours(connection, within_s):
    connection.answers = anyio.Event()
    async with running_server() as server:
        with anyio.move_on_after(0.05) as stop:
            await call(server, within_s)
        assert stop.cancelled_caught
        await until(lambda: connection.running == 0)
        connection.answers.set()
        assert await call(server) == "tool did"
        assert connection.opened == 1


async def test_a_time_out_leaves_the_connection_as_it_is(connection):
    connection.answers = anyio.Event()
    async with running_server() as server:
        with pytest.raises(ToolTimeout):
            await call(server, 0.05)
        connection.answers.set()
        assert await call(server) == "tool did"
        assert connection.opened == 1


async def test_a_server_that_never_answers_any_more_is_started_anew(connection):
    async with running_server() as server:
        await call(server)
        connection.answers = anyio.Event()
        for _ in range(3):
            with pytest.raises(ToolTimeout):
                await call(server, 0.03)
        await until(lambda: connection.closed == 1)
        assert server.reason == "it stopped answering"
        connection.answers.set()
        assert await call(server) == "tool did"


async def test_calls_are_bounded_in_what_runs_and_what_waits(connection):
    refused = []

    async def one(server):
        try:
            await call(server)
        except ToolBusy:
            refused.append(1)

    async with running_server() as server:
        await call(server)
        connection.answers = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(one, server)
            await until(lambda: connection.running == 16)
            for _ in range(MAX_WAITING + 5):
                tasks.start_soon(one, server)
            await until(lambda: len(refused) == 5)
            connection.answers.set()
    assert connection.most == 16
