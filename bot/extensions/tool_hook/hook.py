"""Asks the command of `tools.hook` about a call.

It gets one JSON object on its standard input and prints one:

| it prints                                   | then                                                          |
|---------------------------------------------|---------------------------------------------------------------|
| ``{"decision": "allow"}``                   | the call runs; nobody is asked                                |
| ``{"decision": "ask"}``                     | a person is asked, unless they allowed it in the thread       |
| ``{"decision": "deny", "reason": "…"}``     | the call does not run; the model is told the reason           |
| ``{}``                                      | as the rules of the settings say                              |
| anything else, too late, or it exits not 0  | the call does not run                                         |

A rule that denies comes first: the command is not asked then. It has none of the bot's secrets in its environment.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import anyio
from anyio.abc import ByteReceiveStream
from pydantic import BaseModel, ConfigDict, ValidationError

from bot.extensions.tool_hook.extension import HookSettings
from bot.ports.errors import ToolDenied
from bot.ports.tool import Arguments, Tool, ToolContext

log = logging.getLogger(__name__)

MOST_BYTES = 64_000
"""Bytes that are read of what it prints."""

MOST_AT_ONCE = 8
LONGEST_REASON = 500
FAILED = "The hook that decides on tool calls failed, so this call does not run."
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")


class _Decision(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    decision: Literal["allow", "ask", "deny"] | None = None
    reason: str = ""


class HookFailed(Exception):
    """The command has not decided; the message says why."""


class Hook:
    def __init__(self, given: HookSettings, environ: Mapping[str, str]) -> None:
        self._given = given
        self._environ = {name: environ[name] for name in PASSED_ON if name in environ}
        self._slots = anyio.Semaphore(MOST_AT_ONCE)

    async def review(
        self, tool: Tool, arguments: Arguments, context: ToolContext
    ) -> Literal["allow", "ask"] | None:
        """Return what the command decides, None for no decision. Raises `ToolDenied`, also if it fails."""
        call = {
            "tool": tool.name,
            "risk": tool.risk,
            "arguments": arguments.model_dump(mode="json"),
            "subject": arguments.subject(),
            "after_outside_text": context.tainted,
            "thread": str(context.thread),
            "message": context.message_id,
            "asker": {"id": context.asker.id, "name": context.asker.name},
        }
        try:
            found = await self.ask(call)
        except HookFailed as failure:
            log.error("tool.hook_failed: %s: %s", tool.name, failure)  # noqa: TRY400 - not a fault of ours
            raise ToolDenied(FAILED, suggestion="Go on without it, and say so.") from failure
        if found.decision == "deny":
            reason = found.reason.strip()[:LONGEST_REASON] or "The hook here does not allow this."
            raise ToolDenied(reason, suggestion="Do not try it again.")
        return found.decision

    async def ask(self, call: Mapping[str, object]) -> _Decision:
        """Return the decision on a call. Raises `HookFailed`."""
        given = self._given
        async with self._slots:
            try:
                with anyio.fail_after(given.timeout_s):
                    printed, status = await self._run(json.dumps(call).encode())
            except TimeoutError:
                raise HookFailed(f"it did not decide within {given.timeout_s:g} s") from None
            except OSError as error:
                raise HookFailed(f"it cannot be run: {error}") from error
        if status:
            raise HookFailed(f"it exited with {status}")
        try:
            return _Decision.model_validate_json(printed)
        except ValidationError as error:
            raise HookFailed("it printed something else than a decision") from error

    async def _run(self, call: bytes) -> tuple[bytes, int]:
        async with await anyio.open_process(
            self._given.command, env=self._environ, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    await process.stdin.send(call)
                    await process.stdin.aclose()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    log.debug("tool.hook_unread: the command decides without reading the call")
                return await _read(process.stdout), await process.wait()
            except BaseException:
                with suppress(ProcessLookupError):  # what it started may hold its output longer than it lives
                    os.killpg(process.pid, signal.SIGKILL)
                raise


async def _read(stream: ByteReceiveStream) -> bytes:
    printed = b""
    async for piece in stream:
        printed += piece
        if len(printed) > MOST_BYTES:
            raise HookFailed(f"it printed more than {MOST_BYTES:,} bytes")
    return printed
