"""The context of every check, and the runner of all checks."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from bot.admin.status.client import ABSENT, NoStatus
from bot.config.settings import Settings
from bot.ports.status import UP, Status
from threads.store.disk import Offload
from transports.shared.checks import Finding

log = logging.getLogger(__name__)

AS_ROOT = "Run `threadfast doctor` as root, or with the bot's own environment, to check it."
"""For secrets that only the bot can read: under systemd its credentials are for the service and root."""

WITHIN_S = 90.0
"""Seconds for a whole check. Each call that may hang has its own, shorter time."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is checked. *offline* leaves out what leaves this machine; ``settings_file`` None means the defaults."""

    settings: Settings
    environ: Mapping[str, str]
    settings_file: Path | None = None
    offline: bool = False
    post_in: str = ""
    running_bot: Status | NoStatus = ABSENT
    mask: Callable[[str], str] = str
    offload: Offload = anyio.to_thread.run_sync

    @property
    def running(self) -> bool:
        """Whether a bot has the data folder now."""
        return self.running_bot != ABSENT

    @property
    def has_all_links(self) -> bool:
        """Whether a bot runs with all transports connected, so it could read its secrets when it started."""
        transports = () if isinstance(self.running_bot, NoStatus) else self.running_bot.transports
        return bool(transports) and all(transport.state in UP for transport in transports)


Findings = AsyncGenerator[Finding, None]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to check. ``run`` closes what it opened when it is closed."""

    name: str
    run: Callable[[Context], Findings]


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
