"""Checks the sandbox of commands for `threadfast doctor`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bot.config.scopes import enabled_anywhere
from bot.extensions.shell.extension import SANDBOX
from bot.extensions.shell.sandbox import open_sandbox
from bot.host.checks import Context, Findings
from transports.shared.checks import Finding, State


async def check_sandbox(context: Context) -> Findings:
    mode = SANDBOX.of(context.settings)
    if "shell" not in enabled_anywhere(context.settings) or mode == "off":
        yield Finding("sandbox", "ok", "shell commands are off in the settings")
        return
    with tempfile.TemporaryDirectory() as folder:
        sandbox = await open_sandbox(mode, Path(folder), offload=context.offload)
    if sandbox.layer == "off":
        meaning = "The model has no shell; everything else works."
        state: State = "warn" if mode == "auto" else "fail"
        yield Finding("sandbox", state, sandbox.why, meaning, "Fix this, or take shell out of tools.enabled.")
    elif mode == "unsafe-host":
        meaning = "Anything the model is talked into runs as this user."
        yield Finding("sandbox", "warn", sandbox.why, meaning, 'Set tools.sandbox to "auto".')
    else:
        yield Finding("sandbox", "ok", sandbox.why)
