"""Runs all checks of `threadfast doctor` at once, each within its own time."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from bot.host.checks import Check, Context
from transports.shared.checks import Finding

log = logging.getLogger(__name__)

WITHIN_S = 90.0
"""Seconds for a whole check. Each call that may hang has its own, shorter time."""


async def run_checks(
    checks: Sequence[Check],
    context: Context,
    report: Callable[[Finding], None],
    waiting: Callable[[Sequence[str]], None] = lambda _: None,
) -> list[Finding]:
    """Run all checks at once, and report each finding in the order of the checks.

    *waiting* gets the names of the checks that still run, whenever one ends.
    """
    streams = [anyio.create_memory_object_stream[Finding](math.inf) for _ in checks]
    running = [check.name for check in checks]
    findings: list[Finding] = []

    async def run(check: Check, send: MemoryObjectSendStream[Finding]) -> None:
        with send:
            await _run(check, context, send)
            running.remove(check.name)
            waiting(running)

    waiting(running)
    async with anyio.create_task_group() as tasks:
        for check, (send, _) in zip(checks, streams, strict=True):
            tasks.start_soon(run, check, send)
        for _, receive in streams:
            with receive:
                async for finding in receive:
                    findings.append(finding)
                    report(finding)
    return findings


async def _run(check: Check, context: Context, send: MemoryObjectSendStream[Finding]) -> None:
    """Run one check to its end. What ends it early is a finding too."""
    try:
        with anyio.fail_after(WITHIN_S):
            async with aclosing(check.run(context)) as findings:
                async for finding in findings:
                    send.send_nowait(finding)
    except TimeoutError:
        found = f"not finished within {WITHIN_S:.0f} s"
        fix = "Run `threadfast doctor` again; with --offline if the network hangs."
        send.send_nowait(Finding(check.name, "fail", found, "Other problems there are unknown.", fix))
    except Exception as error:  # a check that breaks must not hide the others
        log.exception("doctor.broke: %s", check.name)
        found = f"this check itself broke ({_where(error)})"
        fix = "Please report it, with `threadfast doctor --bundle`."
        send.send_nowait(Finding(check.name, "fail", found, "Problems there are unknown.", fix))


def _where(error: Exception) -> str:
    """Return the error's type and the line that raised it, without its text, which may hold anything."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
