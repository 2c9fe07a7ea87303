"""Checks the command of `tools.hook` for `threadfast doctor`: it decides on a call that is made up."""

from __future__ import annotations

from bot.extensions.tool_hook.extension import HOOK
from bot.extensions.tool_hook.hook import Hook, HookFailed
from bot.host.checks import Context, Findings
from transports.shared.checks import Finding

SAMPLE = {
    "tool": "doctor",
    "risk": "read",
    "arguments": {},
    "subject": "",
    "after_outside_text": False,
    "thread": "",
    "message": "",
    "asker": {"id": "", "name": ""},
}


async def check_hook(context: Context) -> Findings:
    if (given := HOOK.of(context.settings)) is None:
        return
    try:
        found = await Hook(given, context.environ).ask(SAMPLE)
    except HookFailed as failure:
        yield Finding(
            "tool hook",
            "fail",
            f"{given.command[0]}: {failure}",
            "No tool call runs.",
            "Run the command by hand: it reads a call as JSON and prints a decision.",
        )
    else:
        yield Finding(
            "tool hook", "ok", f"{given.command[0]} decides: {found.decision or 'as the rules say'}"
        )
