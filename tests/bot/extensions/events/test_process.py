"""Events over the real process and a loopback Slack: the command, the webhook, and kill -9 at the worst moments."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from tests.bot.extensions.events.sender import SECRET, free_port, signed
from tests.fakes.slack import FakeSlack
from tests.patience import CODE, WITHIN_S
from tests.stories.test_run_process import AGAIN, environ, running

CHANNEL = "slack:T1:C1"
BODY = b'{"job": 17}'


class Machine:
    """A bot's settings, and what happens on its machine."""

    def __init__(self, tmp_path, slack) -> None:
        self.slack, self.path, self.port = slack, tmp_path / "settings.json", free_port()
        source = {"secret": "env:CI_SECRET", "channel": CHANNEL, "prompt": "A build has failed: look at it."}
        transports = {"slack": {"api_base_url": slack.api_base_url}}
        events = {"port": self.port, "sources": {"ci": source}}
        self.settings = {"data": "data", "model": "offline/demo", "events": events, "transports": transports}
        self.env = environ(slack, CI_SECRET=SECRET)

    @asynccontextmanager
    async def bot(self):
        self.path.write_text(json.dumps(self.settings))
        async with running(self.path, self.env) as process:
            await self.slack.until(lambda: self.slack.sockets.links)
            yield process

    async def post(self, *words, said=""):
        """Run `threadfast post` and return its exit code and what it prints."""
        command = [sys.executable, "-c", CODE, "post", "--settings", str(self.path), *words]
        with anyio.fail_after(WITHIN_S):
            done = await anyio.run_process(command, env=self.env, input=said.encode(), check=False)
        return done.returncode, (done.stdout + done.stderr).decode()

    async def send(self):
        async with httpx2.AsyncClient() as client:
            url = f"http://127.0.0.1:{self.port}/events/ci"
            return (await client.post(url, content=BODY, headers=signed(BODY))).status_code

    @property
    def roots(self):
        return [one for one in self.slack.posts("C1") if "Event from" in one.text and not one.thread_ts]

    async def answered(self, roots):
        """Wait for the answer to each of so many events."""
        await self.slack.until(
            lambda: (
                len(self.roots) == roots
                and all(len(self.slack.thread("C1", root.ts)) == 2 for root in self.roots)
            )
        )


async def test_a_command_and_a_webhook_start_turns_in_the_threads_of_their_posts(tmp_path):
    async with FakeSlack(redeliver_after=AGAIN) as slack:
        machine = Machine(tmp_path, slack)
        async with machine.bot():
            code, said = await machine.post(CHANNEL, "The `disk` of <!channel> is full.", "--as", "disks")
            assert (code, said[:6]) == (0, "disks:")
            await machine.answered(1)
            again = [await machine.post("ci", "--key", "k", said="job 16\n") for _ in range(2)]
            assert again[0] == again[1]
            await machine.answered(2)
            assert await machine.send() == 202
            await machine.answered(3)
            refused = [await machine.post("nobody", "x"), await machine.post("ci", " ")]
            assert [code for code, _ in refused] == [1, 1]
            assert "there is no source nobody" in refused[0][1]
            assert slack.pings == []


async def test_without_a_bot_or_without_events_the_command_says_so(tmp_path):
    async with FakeSlack(redeliver_after=AGAIN) as slack:
        machine = Machine(tmp_path, slack)
        machine.path.write_text(json.dumps(machine.settings))
        code, said = await machine.post(CHANNEL, "text")
        assert (code, said) == (4, "not running: nothing serves this data folder\n")
        del machine.settings["events"]
        async with machine.bot():
            code, said = await machine.post(CHANNEL, "text")
            assert (code, "takes no events" in said) == (1, True)
            with pytest.raises(httpx2.ConnectError):
                await machine.send()


@pytest.mark.parametrize(
    "post",
    ["is out", *(pytest.param(late, marks=pytest.mark.slow) for late in ("never lands", "lands late"))],
)
async def test_after_kill_minus_nine_an_accepted_event_has_one_post_and_one_turn(tmp_path, post):
    async with FakeSlack(redeliver_after=AGAIN) as slack:
        machine = Machine(tmp_path, slack)
        async with machine.bot() as process:
            gate = slack.gate("chat.postMessage", applied=post == "is out")
            assert await machine.send() == 202
            await gate.reached()
            process.send_signal(signal.SIGKILL)
            await process.wait()
        assert len(machine.roots) == (post == "is out")
        async with machine.bot():
            if post == "lands late":
                gate.open()
            await machine.answered(1)
            assert await machine.send() == 202
            assert (await machine.post("ci", "another"))[0] == 0
            await machine.answered(2)
