"""`threadfast status`: what it shows, and that its exit code can be a container's health check."""

import fcntl
import io
import json
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner
from rich.console import Console

from bot.cli import main
from bot.extensions.status.status_lines import lines, on_terminal, through_pipe
from bot.extensions.status.status_report import code_of, state_of
from bot.host.status_client import ask, lock_holder, silence, span
from bot.observe.http_pages import pages
from bot.observe.http_server import serve_pages
from bot.ports.status import SOCKET, CircuitStatus, NoStatus, Spend, Status, TransportStatus
from tests.bot.observe.fake_bot import FakeBot, TransportLink
from threads.store.data_folder import lock_data_folder

STATUS = Status(
    pid=4711, version="0.1.0", started_at="2026-11-22T10:53:00+00:00", uptime_s=11_520, ready=True, stopping=False,
    data="/srv/bot", model="anthropic/claude-sonnet-5-5",
    transports=(
        TransportStatus("slack", "connected", silent_s=3.0),
        TransportStatus("discord", "disconnected", "banned for 20 minutes\x1b[2J"),
    ),
    circuits=(CircuitStatus("anthropic/claude-sonnet-5-5", "open", "it answers 529", waiting=3, key=2),),
    spend=(Spend("day", 4.5, 0.25, 5.0), Spend("month", 12.0, 0.0, None)),
    threads=12, running=2, queued=1, waiting=4, pending=7, oldest_pending_s=75.0, lag_s=0.002, worst_lag_s=0.4,
    rss_bytes=142_000_000, open_files=37, facts={"sandbox": "bubblewrap"}, troubles=("mcp files is down",),
    servers=("local/x: sent without temperature",),
)  # fmt: skip


def shown(width):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(on_terminal(lines(STATUS)))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 200])
def test_it_fits_a_terminal_and_leaves_nothing_out(width):
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for piece in (
        "ready, with trouble", "3 h 12 min", "pid 4711", "last sign 3 s ago", "discord disconnected", "banned for 20",
        "anthropic/claude-sonnet-5-5, key 2 open: it answers 529", "3 calls wait", "2 running, 1 wait for a slot, 4 behind those", "the oldest for 1 min 15 s",
        "$4.50 today and $0.25 held for calls, of $5.00", "95%", "$12.00 this month, no limit", "400 ms at worst",
        "142 MB, 37 open files", "bubblewrap", "mcp files is down",
        "local/x: sent without temperature",
    ):  # fmt: skip
        assert piece in flat, piece
    assert "\x1b" not in text


def test_through_a_pipe_it_is_columns():
    first, second, *_ = through_pipe(lines(STATUS)).splitlines()
    assert first == "threadfast  ready, with trouble"
    assert second.startswith("up          3 h 12 min, since 2026-11-22 10:53 UTC")


def test_secrets_and_control_characters_of_others_do_not_reach_the_screen():
    text = through_pipe(lines(STATUS, lambda said: said.replace("files", "***")))
    assert "mcp *** is down" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("found", "state", "code"),
    [
        (STATUS, "ready", 0),
        (replace(STATUS, ready=False), "not_ready", 3),
        (replace(STATUS, ready=False, stopping=True), "stopping", 3),
        (NoStatus("absent"), "absent", 4),
        (NoStatus("mute", 7), "mute", 4),
        (NoStatus("stuck", 7), "stuck", 4),
    ],
)
def test_the_exit_code_says_whether_it_serves(found, state, code):
    assert (state_of(found), code_of(found)) == (state, code)


def test_who_does_not_answer_is_named():
    assert "kill -9 7" in silence(NoStatus("stuck", 7))
    assert "kill" not in silence(NoStatus("stuck"))
    assert "process 7" in silence(NoStatus("mute", 7))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (75, "1 min 15 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h")],
)
def test_times_are_told_in_their_two_largest_units(seconds, text):
    assert span(seconds) == text


async def test_a_process_that_takes_the_call_and_says_nothing_is_stuck_and_named(tmp_path):
    with lock_data_folder(tmp_path), socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / SOCKET))
        there.listen()
        assert await to_thread.run_sync(ask, tmp_path, 0.1) == NoStatus("stuck", os.getpid())


async def test_a_folder_that_is_held_without_a_socket_is_mute_and_one_that_is_not_is_absent(tmp_path):
    assert await to_thread.run_sync(ask, tmp_path / "nowhere") == NoStatus("absent")
    with lock_data_folder(tmp_path):
        assert await to_thread.run_sync(ask, tmp_path) == NoStatus("mute", os.getpid())
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / SOCKET))
        assert await to_thread.run_sync(ask, tmp_path) == NoStatus("mute", os.getpid())
    assert await to_thread.run_sync(ask, tmp_path) == NoStatus("absent")


async def test_asking_who_holds_the_folder_never_holds_it(tmp_path):
    (tmp_path / "lock").touch()
    assert lock_holder(tmp_path) is None
    with (tmp_path / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lock_holder(tmp_path) == os.getpid()


@asynccontextmanager
async def serving(body, data):
    async with serve_pages(pages(body.watchdog(data), {}), data, None):
        yield


async def status(*words):
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(main, ["status", *words]))


async def test_the_command_asks_the_bot_that_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body, data = (
        FakeBot([TransportLink(), TransportLink("discord", "starting", silent_s=None)]),
        tmp_path / "data",
    )
    data.mkdir()
    async with serving(body, data):
        done = await status("--data", str(data), "--json")
        told = json.loads(done.stdout)
        assert (done.exit_code, told["state"], told["pid"]) == (0, "ready", os.getpid())
        assert {line["name"] for line in told["transports"]} == {"slack", "discord"}
        done = await status("--data", str(data))
        assert "slack connected" in done.stdout
        assert "discord starting" in done.stdout
        body.edges[0].state = "reconnecting"
        done = await status("--data", str(data), "--quiet")
        assert (done.exit_code, done.output) == (3, "")
    done = await status("--data", str(data), "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (4, {"state": "absent", "pid": 0})


async def test_a_bot_of_another_user_is_said_to_be_one_without_a_traceback(tmp_path, monkeypatch):
    def refused(_):
        raise PermissionError(13, "Permission denied", "status.sock")

    monkeypatch.setattr("bot.extensions.status.status_report.ask", refused)
    result = await status("--data", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "status.sock: Permission denied; run this as the bot's user or as root.\n"
