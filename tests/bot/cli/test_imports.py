"""A command imports only what it uses: people wait for it."""

import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp",
    "anthropic",
    "anyio.lowlevel",
    "asyncio",
    "bot.agent",
    "bot.llm",
    "bot.observe",
    "bot.ports.model",
    "bot.wiring",
    "discord",
    "httpx2",
    "jsonschema",
    "mcp",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "slack_sdk",
    "threads.actor",
    "transports.base",
    "transports.shared",
}


@pytest.mark.parametrize("command", [["--help"], ["status"], ["why", "1"], ["threads", "list"]])
def test_a_command_that_only_looks_brings_no_sdk_and_no_bot(tmp_path, command):
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    code = (
        "import atexit, sys\nfrom bot.cli import main\n"
        f"atexit.register(lambda: print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['threadfast', *{command!r}]\n"
        "main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.stderr.splitlines()[-1] == "[]"
