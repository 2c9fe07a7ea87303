"""All of it together, as `threadfast run` puts it together: a turn, then what Prometheus and a receiver have of it."""

import urllib.request

import anyio
import anyio.to_thread
import pytest

from bot.config.extensions import settings_model
from bot.observe.shutdown import Stop
from bot.observe.systemd_notify import Notify
from bot.wiring import run
from tests.bot.extensions.tracing.test_otlp_export import receiving
from tests.patience import WITHIN_S
from tests.serving import Chat
from threads.background import background_tasks

Settings = settings_model()

ANSWERED = 'threadfast_messages_total{outcome="answered",transport="fake"} 1.0'

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.mark.needs("metrics")
async def test_a_served_turn_can_be_scraped_and_traced(tmp_path, monkeypatch, free_tcp_port):
    seat = Chat()
    monkeypatch.setattr(run, "_transports", lambda *_: [seat])
    with receiving() as receiver:
        observe = {"metrics_port": free_tcp_port, "otlp_endpoint": receiver.url}
        given = {
            "model": "offline/demo",
            "data": tmp_path,
            "observe": observe,
            "tools": {"enabled": ["files"]},
            "transports": {"discord": {}},
        }
        settings = Settings.model_validate(given, strict=False)
        async with background_tasks() as tasks:
            tasks.start_soon(
                run.serve_until_stopped, settings, {"DISCORD_TOKEN": "t"}, Stop(1), Notify.from_environ({})
            )
            with anyio.fail_after(WITHIN_S):
                await seat.ready.wait()
                await seat.say("list")
                body = ""
                while ANSWERED not in body:  # nobody is told when the outcome is on the disk
                    body = await anyio.to_thread.run_sync(_read, f"http://127.0.0.1:{free_tcp_port}/metrics")
    for line in (
        ANSWERED,
        'threadfast_tool_calls_total{outcome="ok",tool="list_files"} 1.0',
        'threadfast_transport_up{transport="fake"} 1.0',
        "threadfast_ready 1.0",
    ):
        assert line in body.splitlines()
    assert receiver.posts[0][0] == "/v1/traces"
    assert receiver.names == [
        *("chat demo", "chat demo", "execute_tool list_files"),
        *("invoke_agent threadfast", "step", "step"),
    ]


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
