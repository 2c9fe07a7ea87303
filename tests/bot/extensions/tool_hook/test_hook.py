"""The command of `tools.hook` decides on tool calls."""

import json
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from bot.extensions.tool_hook.extension import HookSettings
from bot.extensions.tool_hook.hook import MOST_BYTES, Hook
from bot.ports.errors import ToolDenied
from bot.ports.tool import Arguments
from tests.fakes import anthropic as a
from tests.patience import WITHIN_S, until
from tests.serving import serving
from tests.stories.test_instructions import settings
from tests.tool_context import tool_context


class Said(Arguments):
    text: str


class Echo:
    name, description, risk, arguments = "echo", "Says it.", "read", Said

    async def __call__(self, arguments, context):
        return arguments.text


def hook(tmp_path, code, **given):
    """A hook that runs this Python over the call that it got."""
    path = tmp_path / "hook.py"
    path.write_text(f"import json, os, sys, time\ncall = json.load(sys.stdin)\n{code}\n")
    return HookSettings.model_validate({"command": (sys.executable, str(path)), **given})


async def decided(tmp_path, code, **given):
    tool = Echo()
    with anyio.fail_after(WITHIN_S):
        hooked = Hook(hook(tmp_path, code, **given), {"PATH": "/bin", "OPENAI_API_KEY": "sk-1"})
        return await hooked.review(tool, tool.arguments(text="hi"), tool_context(tmp_path))


@pytest.mark.parametrize(
    ("printed", "decision"),
    [('{"decision": "allow"}', "allow"), ('{"decision": "ask"}', "ask"), ("{}", None)],
)
async def test_it_allows_asks_or_leaves_it_to_the_rules(tmp_path, printed, decision):
    assert await decided(tmp_path, f"print({printed!r})") == decision


async def test_its_reason_for_a_denial_is_told_to_the_model(tmp_path):
    with pytest.raises(ToolDenied, match="not on a Friday"):
        await decided(tmp_path, 'print(json.dumps({"decision": "deny", "reason": "not on a Friday"}))')


FAULTS = {
    "it exits with an error": "sys.exit(3)",
    "it prints nothing": "pass",
    "it prints no JSON": 'print("allow")',
    "it prints an unknown decision": """print('{"decision": "yes"}')""",
    "it prints an unknown field": """print('{"decision": "allow", "once": true}')""",
    "it never ends": "time.sleep(1000)",
    "it never ends printing": f'print("x" * {MOST_BYTES + 1}, flush=True); time.sleep(1000)',
    "a child of it never ends": "os.system('sleep 1000')",
    "an allowed call, and then an error": """print('{"decision": "allow"}', flush=True); sys.exit(1)""",
}


@pytest.mark.parametrize("code", FAULTS.values(), ids=FAULTS)
async def test_where_it_fails_nothing_runs(tmp_path, code):
    with pytest.raises(ToolDenied, match="hook that decides on tool calls failed"):
        await decided(tmp_path, code, timeout_s=0.7)


async def test_what_it_leaves_behind_ends_with_the_wait_for_its_decision(tmp_path):
    left = tmp_path / "left"
    code = f"import subprocess; open({str(left)!r}, 'w').write(str(subprocess.Popen(['sleep', '1000']).pid))"
    with pytest.raises(ToolDenied):
        await decided(tmp_path, code, timeout_s=0.7)
    command = Path(f"/proc/{left.read_text()}/cmdline")
    await until(lambda: not command.exists() or not command.read_bytes())


async def test_a_command_that_is_not_there_denies_all_calls(tmp_path):
    missing = HookSettings.model_validate({"command": (str(tmp_path / "nothing"),)})
    with pytest.raises(ToolDenied):
        await Hook(missing, {}).review(Echo(), Echo().arguments(text="hi"), tool_context(tmp_path))


async def test_it_gets_the_call_and_none_of_the_secrets(tmp_path):
    seen = tmp_path / "seen.json"
    await decided(
        tmp_path, f"open({str(seen)!r}, 'w').write(json.dumps([call, dict(os.environ)])); print('{{}}')"
    )
    call, environ = json.loads(seen.read_text())
    assert (call["tool"], call["arguments"], call["risk"]) == ("echo", {"text": "hi"}, "read")
    assert call["after_outside_text"] is False
    assert "OPENAI_API_KEY" not in environ


async def test_a_call_that_it_denies_is_in_the_audit_and_the_file_is_not_written(tmp_path):
    deny = 'print(json.dumps({"decision": "deny", "reason": "no files today"} if "x.sh" in call["subject"] else {}))'
    given = hook(tmp_path, deny).model_dump(mode="json")
    calls = iter([a.Tool("t1", "write_file", {"path": "x.sh", "content": "1"}), a.Text("I may not.")])
    data = tmp_path / "data"
    async with (
        a.FakeAnthropic(lambda _: a.answer(next(calls))) as fake,
        serving(data, settings(fake) | {"tools": {"enabled": ["files"], "hook": given}}) as chat,
    ):
        assert (await chat.say("write it")).text == "I may not."
    assert "no files today" in json.dumps(fake.requests[1].json["messages"][-1])
    assert not [*data.rglob("x.sh")]
    assert "write_file" in Path(next((data / "audit").glob("*.jsonl"))).read_text()
