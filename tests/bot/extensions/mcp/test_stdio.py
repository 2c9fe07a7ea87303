import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from bot.extensions.mcp.settings import McpServer
from tests.bot.extensions.mcp.opened import QUICK, call, opened, plain, starts
from tests.bot.tools.processes import gone
from tests.patience import WITHIN_S
from threads.background import background_tasks


@pytest.mark.parametrize(
    ("way", "reason", "last_output"),
    [
        ("exit", "it ended", "ModuleNotFoundError: No module named 'workshop'"),
        ("garbage", "is not MCP", ""),
        ("endless", "a message of more than", ""),
        ("mute", "did not answer within 0.5 s", ""),
    ],
)
async def test_a_server_that_cannot_be_used_does_not_keep_the_bot_from_starting(
    tmp_path, way, reason, last_output
):
    times = QUICK if way != "mute" else QUICK.__class__(program=0.5)
    both = {"bad": plain(tmp_path, way), "good": plain(tmp_path)}
    async with opened(tmp_path, both, times=times) as servers:
        assert [tool.name for tool in servers.tools] == ["good__hello"]
        assert (await call(servers, "good__hello")).result == "{}"
        assert reason in servers.servers[0].reason
        assert servers.servers[0].last_output == last_output
    assert await gone(starts(tmp_path, way)[0])


@pytest.mark.parametrize("command", [("no-such-program-anywhere",), ("/etc/passwd",), ("/",), ("sh", "a\0b")])
async def test_a_program_that_cannot_be_run(tmp_path, command):
    bad = McpServer(command=command[0], args=command[1:])
    async with opened(tmp_path, {"bad": bad}) as servers:
        assert servers.tools == []
        assert servers.servers[0].reason in ("its program was not found", "it could not be started")


async def test_a_setting_that_refers_to_nothing_is_told_and_stops_nobody_else(tmp_path):
    bad = plain(tmp_path, env={"TOKEN": "env:NOT_SET_ANYWHERE"})
    async with opened(tmp_path, {"bad": bad, "good": plain(tmp_path)}) as servers:
        assert servers.servers[0].reason == "its settings cannot be used"
        assert "NOT_SET_ANYWHERE" in servers.servers[0].last_output
        assert [tool.name for tool in servers.tools] == ["good__hello"]


async def test_a_server_sees_nothing_of_our_environment(tmp_path):
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/somebody",
        "LANG": "C.UTF-8",
        "SLACK_BOT_TOKEN": "xoxb-canary",
        "ANTHROPIC_API_KEY": "sk-canary",
        "LD_PRELOAD": "",
        "GIVEN": "a-secret-for-it",
    }
    given = plain(tmp_path, tools=("environment",), env={"API_KEY": "env:GIVEN", "MODE": "test"})
    async with opened(tmp_path, {"p": given}, environ=environ) as servers:
        seen = json.loads((await call(servers, "p__environment")).result)
    expected = {"HOME": "/home/somebody", "LANG": "C.UTF-8", "API_KEY": "a-secret-for-it", "MODE": "test"}
    assert {name: seen.pop(name) for name in ("HOME", "LANG", "API_KEY", "MODE")} == expected
    assert set(seen) <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}  # what shells and python add


async def test_what_a_server_started_ends_with_it(tmp_path):
    async with opened(tmp_path, {"p": plain(tmp_path, tools=("child",))}) as servers:
        child = int((await call(servers, "p__child")).result)
        server = starts(tmp_path)[0]
    assert await gone(child)
    assert await gone(server)


async def test_a_server_that_ignores_everything_is_killed(tmp_path):
    with anyio.fail_after(WITHIN_S):
        async with opened(tmp_path, {"p": plain(tmp_path, "stubborn")}):
            server = starts(tmp_path, "stubborn")[0]
    assert await gone(server)


BOT = """
import anyio, sys
from pathlib import Path
from tests.bot.extensions.mcp.opened import call, opened, plain

async def main():
    folder = Path(sys.argv[1])
    async with opened(folder, {"p": plain(folder, "stubborn", tools=("child",))}) as servers:
        print((await call(servers, "p__child")).result, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_servers_die_with_a_bot_that_was_killed(tmp_path):
    bot = await anyio.open_process([sys.executable, "-c", BOT, str(tmp_path)], stdin=None, stderr=None)
    with anyio.fail_after(WITHIN_S):
        child = int(await bot.stdout.receive())
    server = starts(tmp_path, "stubborn")[0]
    bot.send_signal(signal.SIGKILL)
    await bot.aclose()
    assert await gone(child)
    assert await gone(server)


async def test_a_flood_on_standard_error_costs_us_little_and_is_logged_a_little(tmp_path, caplog):
    caplog.set_level("INFO")
    async with opened(tmp_path, {"p": plain(tmp_path, "flood")}) as servers:
        before = os.times()
        await anyio.sleep(1)
        after = os.times()
        assert (await call(servers, "p__hello")).result == "{}"
    assert after.user + after.system - before.user - before.system < 0.5
    said = [record for record in caplog.records if "mcp.said: " in record.getMessage()]
    assert len(said) == 51
    assert max(len(record.getMessage()) for record in said) < 600


async def test_secrets_a_server_was_given_are_masked_in_what_it_writes(tmp_path, caplog):
    caplog.set_level("INFO")
    script = 'echo "my key is $KEY" >&2; exit 1'
    settings = McpServer(command="sh", args=("-c", script), env={"KEY": "env:THE_KEY"})
    environ = {"PATH": os.environ["PATH"], "THE_KEY": "correct-horse-battery"}
    async with opened(tmp_path, {"p": settings}, environ=environ) as servers:
        assert servers.servers[0].last_output == "my key is [masked]"
    assert "correct-horse" not in caplog.text
    assert "my key is [masked]" in caplog.text


async def test_a_slow_server_does_not_delay_another(tmp_path):
    both = {"slow": plain(tmp_path, tools=("hang",)), "quick": plain(tmp_path, "other")}
    async with opened(tmp_path, both) as servers, background_tasks() as tasks:
        tasks.start_soon(call, servers, "slow__hang")
        for _ in range(20):
            with anyio.fail_after(WITHIN_S):
                await call(servers, "quick__hello")


async def test_nothing_is_left_open_when_a_server_fails_to_start(tmp_path):
    before = len(list(Path("/dev/fd").iterdir()))
    async with opened(tmp_path, {"bad": McpServer(command="/"), "worse": plain(tmp_path, "exit")}):
        pass
    assert len(list(Path("/dev/fd").iterdir())) <= before
