"""Events over the socket: the command that prints them, many followers, slow ones, and ones that hang up."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import anyio
import pytest
from anyio import to_thread

from bot.extensions.status.event_reader import EventFilter, run_events
from bot.guards.redaction import Masker
from bot.host.status_client import ask
from bot.observe import event_server
from bot.observe.event_server import MOST_FOLLOWERS, EventServer
from bot.observe.event_stream import EventStream
from bot.observe.http_pages import AT_ONCE, pages
from bot.observe.http_server import serve_pages
from bot.ports.status import SOCKET, Status
from tests.bot.observe.fake_bot import FakeBot
from tests.bot.observe.test_event_stream import IDS, settle
from tests.bot.observe.test_health import get
from tests.patience import until

SECRET = "correct-horse-battery"
ALL = EventFilter((), "")


@asynccontextmanager
async def serving(data, *, size=4096, port=None):
    events = EventStream(size=size)
    server = EventServer(events, Masker([SECRET]))
    async with serve_pages(pages(FakeBot().watchdog(data), {}), data, port, server):
        yield events, server


async def printed(data, capfd, wanted=ALL, since=None):
    """Return the exit code of the command, the lines that it prints, and what it says."""
    code = await to_thread.run_sync(partial(run_events, data, wanted, since, follow=False))
    sys.stdout.flush()
    out, err = capfd.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@contextmanager
def follower(data, query="follow=1"):
    """A follower that reads nothing by itself."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(data / SOCKET))
        connection.sendall(f"GET /events?{query} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        yield connection


def read_all(connection):
    connection.settimeout(10)
    with connection.makefile("rb") as stream:
        return stream.read()


async def test_the_command_prints_what_the_ring_has_and_goes_on_after_a_number(tmp_path, capfd):
    async with serving(tmp_path) as (events, _):
        settle(events, 3)
        code, lines, _ = await printed(tmp_path, capfd)
        assert (code, [line["kind"] for line in lines]) == (0, ["settled"] * 3)
        assert {name: lines[0][name] for name in IDS} == IDS
        settle(events, 2)
        _, more, _ = await printed(tmp_path, capfd, since=lines[-1]["seq"])
        assert [line["seq"] for line in more] == [lines[-1]["seq"] + 1, lines[-1]["seq"] + 2]
        assert (await printed(tmp_path, capfd, EventFilter(("turn",), "")))[1] == []
        assert len((await printed(tmp_path, capfd, EventFilter(("settled",), "1.0")))[1]) == 5


async def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are(tmp_path, capfd):
    async with serving(tmp_path):
        code, lines, said = await printed(tmp_path, capfd, EventFilter(("retires",), ""))
    assert (code, lines) == (1, [])
    assert "there is no kind 'retires'; there are: turn, step," in said


async def test_where_no_bot_runs_the_command_says_so(tmp_path, capfd):
    assert await printed(tmp_path, capfd) == (4, [], "not running: nothing serves this data folder\n")


async def test_no_secret_and_no_letter_that_acts_on_a_terminal_is_printed(tmp_path, capfd):
    name = f'console:\x1b[2J\u202e"}}\n{{"kind":"forged{SECRET}'
    async with serving(tmp_path) as (events, _):
        settle(events, ids={**IDS, "thread_id": name})
        code, [line], _ = await printed(tmp_path, capfd)
        assert (code, line["thread_id"]) == (0, name.replace(SECRET, "[masked]"))
        assert len((await printed(tmp_path, capfd, EventFilter((), name)))[1]) == 1
        assert (await printed(tmp_path, capfd, EventFilter((), "\x1b&kind=x\ud800")))[:2] == (0, [])


async def test_a_secret_that_is_learned_later_is_masked_from_then_on(tmp_path, capfd):
    async with serving(tmp_path) as (events, server):
        settle(events, ids={**IDS, "thread_id": "console:long-lived-token"})
        assert (await printed(tmp_path, capfd))[1][0]["thread_id"] == "console:long-lived-token"
        server.mask.learn(["long-lived-token"])
        assert (await printed(tmp_path, capfd))[1][0]["thread_id"] == "console:[masked]"


async def test_the_port_has_no_events(tmp_path, free_tcp_port):
    async with serving(tmp_path, port=free_tcp_port):
        assert (await get(free_tcp_port, "/events"))[0] == 404


async def test_a_follower_gets_each_event_as_it_happens(tmp_path):
    async with serving(tmp_path) as (events, server):
        with follower(tmp_path) as connection:
            await until(lambda: server.followers == 1)
            stream = connection.makefile("rb")
            for _ in range(3):
                settle(events)
                while not (line := await to_thread.run_sync(stream.readline)).startswith(b"{"):
                    pass
                assert json.loads(line)["kind"] == "settled"
            stream.close()
        await until(lambda: server.followers == 0)  # noticed although nothing happens


async def test_followers_are_bounded_and_leave_the_status_its_places(tmp_path, capfd):
    async with serving(tmp_path) as (_, server):
        open_ones = [follower(tmp_path) for _ in range(MOST_FOLLOWERS)]
        for one in open_ones:
            one.__enter__()
        await until(lambda: server.followers == MOST_FOLLOWERS)
        code, _, said = await printed(tmp_path, capfd)
        assert (code, said) == (1, "The bot refuses: 8 others follow the events already.\n")
        assert MOST_FOLLOWERS < AT_ONCE
        assert isinstance(await to_thread.run_sync(ask, tmp_path), Status)
        for one in open_ones:
            one.__exit__(None, None, None)
        await until(lambda: server.followers == 0)


async def test_a_flood_cuts_a_slow_follower_with_a_last_line_and_holds_up_nobody(tmp_path):
    async with serving(tmp_path, size=500) as (events, server):
        with follower(tmp_path) as slow, follower(tmp_path, "follow=1&kind=turn") as other:
            await until(lambda: server.followers == 2)
            began = anyio.current_time()
            for _ in range(300):  # far more than the sockets hold
                settle(events, 100)
                await anyio.sleep(0)
            flooded_s = anyio.current_time() - began
            data = await to_thread.run_sync(read_all, slow)
            lines = [json.loads(line) for line in data.splitlines() if line.startswith(b"{")]
            assert other.fileno() > 0
        *told, last = lines
        assert (last["kind"], last["final"]) == ("gap", True)
        seqs = [line["seq"] for line in told]
        assert seqs == [*range(seqs[0], seqs[0] + len(seqs))]  # nothing is missing before the cut
        assert last["lost"] == last["seq"] - seqs[-1]
        assert flooded_s < 5


async def test_a_follower_that_reads_nothing_at_all_is_cut(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(event_server, "STUCK_S", 0.05)
    caplog.set_level("INFO")
    async with serving(tmp_path) as (events, server):
        with follower(tmp_path):
            await until(lambda: server.followers == 1)
            settle(events, 4000)
            await until(lambda: server.followers == 0)
    assert "events.follower_cut" in caplog.text


async def test_the_command_says_that_it_was_too_slow(tmp_path, capfd):
    class Cutting(EventStream):
        async def read(self, wanted=None, since=None, *, follow=True):
            yield [self._gap(7, 5, final=True)]

    server = EventServer(Cutting(), Masker())
    async with serve_pages(pages(FakeBot().watchdog(tmp_path), {}), tmp_path, None, server):
        code, [line], said = await printed(tmp_path, capfd)
    assert (code, line["lost"]) == (1, 5)
    assert "too slow" in said


@pytest.mark.parametrize("query", ["since=x", "since=-1", "since=" + "9" * 40, "since=%F0%9F"])
async def test_a_number_that_is_none_is_refused(query):
    assert EventServer(EventStream(), Masker()).parse(query) == "since must be the seq of an event"
