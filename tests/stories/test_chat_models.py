"""`threadfast chat` as a process, in two threads, with both real SDKs against the wire on loopback."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import anyio
import pytest

from tests.fakes import anthropic, openai
from tests.patience import WITHIN_S

ROOT = Path(__file__).parents[2]
CONVERSATION = b"list please\n/thread side\nwho are you\n/thread main\nand again\n"


async def chat(folder: Path, settings: dict, lines: bytes = CONVERSATION) -> tuple[int, str, str]:
    """Pipe lines through a chat with these settings; return its exit code, answers and notes."""
    path = folder / "settings.json"
    path.write_text(json.dumps(settings))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "ANTHROPIC_API_KEY": "sk-ant-canary-0123456789abcdef",
        "OPENAI_API_KEY": "sk-canary-0123456789abcdef",
    }
    command = [sys.executable, "-m", "bot", "chat", "--settings", str(path)]
    with anyio.fail_after(WITHIN_S):
        done = await anyio.run_process(command, input=lines, check=False, env=environment, cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def providers(kind: str, base_url: str) -> dict:
    model = {"anthropic": "anthropic/claude-x", "openai": "openai/gpt-x", "local": "local/llama-x"}[kind]
    entry = {"base_url": base_url, "free": True}
    if kind == "local":
        entry |= {"kind": "openai-compatible", "api_key": None}
    return {"model": model, "providers": {kind: entry}}


def scripted(kind: str):
    """Answer each thread in its own words, the first message with a tool call before."""
    fake = anthropic if kind == "anthropic" else openai
    answer = {"anthropic": anthropic.answer, "openai": openai.response_answer, "local": openai.chat_answer}[
        kind
    ]

    def reply(seen):
        said = json.dumps(seen.json)
        if "who are you" in said:
            return answer(fake.Text("I am the side thread."))
        if "and again" in said:
            return answer(fake.Text("Once more."))
        if "call_1" in said:
            return answer(fake.Text("The folder is empty."))
        return answer(fake.Tool("call_1", "list_files", {"path": "."}))

    return reply


@pytest.mark.parametrize("kind", ["anthropic", "openai", "local"])
async def test_a_conversation_in_two_threads_over_a_real_sdk(tmp_path, kind):
    server = (anthropic.FakeAnthropic if kind == "anthropic" else openai.FakeOpenAI)(scripted(kind))
    async with server as fake:
        code, answers, notes = await chat(tmp_path, providers(kind, fake.base_url))
    assert answers.splitlines() == ["The folder is empty.", "I am the side thread.", "Once more."]
    assert code == 0, notes
    assert len(fake.requests) == 4
    side, main_again = json.dumps(fake.requests[2].json), json.dumps(fake.requests[3].json)
    assert "list please" not in side
    assert "list please" in main_again
    assert "The folder is empty." in main_again


@pytest.mark.parametrize("kind", ["anthropic", "openai", "local"])
async def test_a_refused_key_is_told_without_a_word_of_the_provider(tmp_path, kind):
    fault = anthropic.fault if kind == "anthropic" else openai.fault
    refused = fault(
        401, "authentication_error" if kind == "anthropic" else "invalid_api_key", "sk-leak at /etc/key"
    )
    server = (anthropic.FakeAnthropic if kind == "anthropic" else openai.FakeOpenAI)([refused])
    async with server as fake:
        code, answers, notes = await chat(tmp_path, providers(kind, fake.base_url), b"hello\n")
    name, key = {
        "anthropic": ("Anthropic", "the key in ANTHROPIC_API_KEY"),
        "openai": ("OpenAI", "the key in OPENAI_API_KEY"),
        "local": ("local", "a call without a key (providers.local.api_key)"),
    }[kind]
    assert answers.startswith(f"{name} does not accept {key}. `threadfast init` sets")
    assert re.search(r"`threadfast why (\w{8})` tells more. \(ref \1\)\n$", answers)
    assert code == 1
    assert notes.splitlines()[-1] == "line 1: failed"
    assert "WARNING" not in notes, "the log is a file"
    assert "sk-leak" not in answers
    assert "canary" not in answers + notes
    on_disk = b"".join(p.read_bytes() for p in tmp_path.rglob("*.jsonl"))
    assert b"canary" not in on_disk


async def test_chat_obeys_verify_providers(tmp_path):
    refused = anthropic.fault(401, "authentication_error", "invalid x-api-key")
    async with anthropic.FakeAnthropic([refused]) as fake:
        settings = {**providers("anthropic", fake.base_url), "verify_providers": True}
        code, answers, notes = await chat(tmp_path, settings, b"hello\n")
    assert (code, answers, len(fake.requests)) == (78, "", 1)
    assert "Anthropic does not accept the key in ANTHROPIC_API_KEY." in notes
    assert "Traceback" not in notes


async def test_chat_starts_when_one_of_its_models_answers_and_names_the_other(tmp_path):
    refused = anthropic.fault(401, "authentication_error", "invalid x-api-key")
    async with anthropic.FakeAnthropic([refused] * 2) as fake:
        settings = {**providers("anthropic", fake.base_url), "verify_providers": True}
        settings |= {"fallback_models": ["offline/demo"]}
        code, answers, notes = await chat(tmp_path, settings, b"hello\n")
    assert code == 0
    assert "I am offline/demo" in answers
    assert "Does not answer: anthropic/claude-x: Anthropic does not accept the key" in notes
