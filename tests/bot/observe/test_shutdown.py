"""A stop on a signal: what runs is answered, what waits is kept for the next start, and a second signal is obeyed."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest

from bot.config.extensions import settings_model
from bot.config.settings import Observe
from bot.observe.event_stream import EventStream
from bot.observe.shutdown import Stop
from bot.observe.supervision import supervised
from bot.observe.systemd_notify import Notify
from bot.wiring.app import serve
from tests.fakes.anthropic import FakeAnthropic, Text, answer
from tests.fakes.http import Reply, Wait
from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S, until
from tests.serving import FAST, KEYS, Chat, anthropic
from tests.world import T2
from threads.background import background_tasks
from transports.base.transport import Capabilities

MODEL = "anthropic/claude-sonnet-5-5"


def slow(text, until):
    """An answer that begins when it is told to."""
    whole = answer(Text(text))
    return Reply(whole.steps, whole.status, whole.headers, silent=(Wait(until),))


class StoppableBot:
    """The whole bot over *data*, stopped by signals to this very process."""

    def __init__(self, data, model, drain_s):
        self.seat, self.stop, self.over = Chat(), Stop(drain_s), anyio.Event()
        # Or a resumed post would wait for the one that the cut turn may have sent.
        self.seat.capabilities = Capabilities(find=True, lands_late=False)
        providers = anthropic(model.base_url)
        given = {**FAST, "data": data, "model": MODEL, "providers": providers}
        self.settings = settings_model().model_validate(given, strict=False)

    async def run(self):
        given = {"observe": Observe(), "notify": Notify(), "events": EventStream(), "others": {}}
        watch = partial(supervised, stop=self.stop, **given)
        await self.stop.run(
            partial(
                serve, self.settings, KEYS, model=MODEL, make_transports=lambda _: [self.seat], watch=watch
            )
        )
        self.over.set()


@asynccontextmanager
async def serving(data, model, drain_s=20.0):
    bot = StoppableBot(data, model, drain_s)
    async with background_tasks() as tasks:
        tasks.start_soon(bot.run)
        with anyio.fail_after(WITHIN_S):
            await bot.seat.ready.wait()
            yield bot


def ask_to_stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def answers(seat):
    return [post.text for post in seat.posts if post.kind == "reply"]


async def test_a_turn_that_runs_is_answered_and_what_waits_is_answered_by_the_next_start(tmp_path):
    go = anyio.Event()
    async with FakeAnthropic([slow("the first", go), answer(Text("the second"))]) as model:
        async with serving(tmp_path, model) as bot:
            await bot.seat.send("one")
            await until(lambda: len(model.requests) == 1)
            ask_to_stop()
            await bot.stop.asked.wait()
            await bot.seat.send("two", thread=T2)  # taken: it is on disk, and not begun
            await anyio.sleep(0.1)
            assert len(model.requests) == 1
            go.set()
            await bot.over.wait()
            assert answers(bot.seat) == ["the first"]
        async with serving(tmp_path, model) as again:
            await until(lambda: answers(again.seat))
            assert answers(again.seat) == ["the second"]
        assert len(model.requests) == 2


async def test_a_turn_that_takes_too_long_is_cut_and_answered_once_after_the_next_start(tmp_path):
    never = anyio.Event()
    async with FakeAnthropic([slow("late", never), answer(Text("in the end"))]) as model:
        async with serving(tmp_path, model, drain_s=0.2) as bot:
            await bot.seat.send("one")
            await until(lambda: len(model.requests) == 1)
            ask_to_stop()
            await bot.over.wait()
            assert answers(bot.seat) == []
        async with serving(tmp_path, model) as again:
            await until(lambda: answers(again.seat))
        assert len(answers(again.seat)) == 1
        assert "in the end" in answers(again.seat)[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_bot_ends_at_once_on_either_signal(tmp_path, number):
    async with FakeAnthropic([]) as model, serving(tmp_path, model) as bot:
        ask_to_stop(number)
        with anyio.fail_after(WITHIN_S):
            await bot.over.wait()


async def test_a_post_that_is_on_its_way_is_settled_first(tmp_path):
    async with FakeAnthropic([answer(Text("hello"))]) as model, serving(tmp_path, model) as bot:
        posting, go = anyio.Event(), anyio.Event()
        post = bot.seat.post

        async def held(outgoing):
            posting.set()
            await go.wait()
            return await post(outgoing)

        bot.seat.post = held
        sent = await bot.seat.send("one")
        await posting.wait()
        ask_to_stop()
        await anyio.sleep(0.2)
        assert not bot.over.is_set()
        go.set()
        await bot.over.wait()
        assert answers(bot.seat) == ["hello"]
        assert bot.seat.outcomes[sent.id] == "answered"


async def test_a_signal_before_anything_is_served_ends_it_at_once():
    stop, began = Stop(20), anyio.Event()

    async def connecting():
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop.run, connecting)
            await began.wait()
            ask_to_stop()


@asynccontextmanager
async def process(path, slack, **more):
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    env |= more | KEYS | {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token}
    command = [sys.executable, "-c", "from bot.cli import main; main()", "run", "--settings", str(path)]
    async with await anyio.open_process(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                running.kill()
            await running.wait()


def settings(tmp_path, slack, drain_s, model=MODEL, providers=None):
    path = tmp_path / "settings.json"
    given = {
        **FAST,
        "data": "data",
        "model": model,
        "providers": providers or {},
        "recovery": {"drain_s": drain_s},
        "transports": {"slack": {"api_base_url": slack.api_base_url}},
    }
    path.write_text(json.dumps(given))
    return path


async def test_the_process_tells_systemd_and_exits_with_0(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{tmp_path.name}-{os.getpid()}")
        systemd.setblocking(False)
        unit = {"NOTIFY_SOCKET": f"@{tmp_path.name}-{os.getpid()}", "WATCHDOG_USEC": "900000"}
        async with FakeSlack() as slack:
            path = settings(tmp_path, slack, 20, model="offline/demo")
            async with process(path, slack, **unit) as running:
                told = ""
                while told.count("WATCHDOG=1") < 2:
                    await anyio.wait_readable(systemd)
                    told += systemd.recv(1000).decode() + "\n"
                running.send_signal(signal.SIGTERM)
                with anyio.fail_after(WITHIN_S):
                    assert await running.wait() == 0
        with suppress(BlockingIOError):
            while True:
                told += systemd.recv(1000).decode() + "\n"
    said = [line.partition("=")[0] for line in told.splitlines()]
    assert said.index("READY") < said.index("WATCHDOG") < said.index("STOPPING")
    assert "STATUS" in said


@pytest.mark.slow
async def test_the_process_answers_what_runs_exits_0_and_a_second_signal_ends_it_at_once(tmp_path):
    go, never = anyio.Event(), anyio.Event()
    script = [slow("done", go), slow("never", never), answer(Text("after all"))]
    async with FakeSlack() as slack, FakeAnthropic(script) as model:
        path = settings(tmp_path, slack, 20, providers=anthropic(model.base_url))
        async with process(path, slack) as running:
            await slack.until(lambda: slack.sockets.links)
            said = await slack.say("U1", "C1", "<@UBOT> hello")
            await until(lambda: len(model.requests) == 1)
            running.send_signal(signal.SIGTERM)
            await anyio.sleep(0.2)
            assert running.returncode is None
            go.set()
            with anyio.fail_after(WITHIN_S):
                assert await running.wait() == 0
        assert "done" in slack.thread("C1", said.ts)[-1].text
        async with process(path, slack) as running:
            await slack.until(lambda: slack.sockets.links)
            said = await slack.say("U1", "C1", "<@UBOT> and now?")
            await until(lambda: len(model.requests) == 2)
            running.send_signal(signal.SIGTERM)
            await anyio.sleep(0.2)
            running.send_signal(signal.SIGTERM)
            with anyio.fail_after(WITHIN_S):
                assert await running.wait() == -signal.SIGTERM
        async with process(path, slack):
            await slack.until(lambda: len(slack.thread("C1", said.ts)) > 1)
            assert "after all" in slack.thread("C1", said.ts)[-1].text
