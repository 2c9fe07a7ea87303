"""What the subjects are given, and having all of them look side by side."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from bot.admin.status.client import ABSENT, NoStatus
from bot.config.settings import Settings
from bot.ports.status import Status
from threads.store.disk import Offload
from transports.shared.checks import Finding

log = logging.getLogger(__name__)

AS_ROOT = "Run `threadfast doctor` as root, or with the bot's own environment, to check it."
"""For secrets that only the bot can read: under systemd its credentials are for the service and root."""

WITHIN_S = 90.0
"""Seconds for a whole subject; each thing that may hang has its own, shorter time."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is looked at. ``settings_file`` None is none; *offline* leaves out what leaves this machine."""

    settings: Settings
    environ: Mapping[str, str]
    settings_file: Path | None = None
    offline: bool = False
    post_in: str = ""
    beside: Status | NoStatus = ABSENT
    mask: Callable[[str], str] = str
    offload: Offload = anyio.to_thread.run_sync

    @property
    def running(self) -> bool:
        """Whether a bot has the data folder now."""
        return self.beside != ABSENT

    @property
    def has_all_links(self) -> bool:
        """Whether a bot runs that has all its links, and so could read its secrets when it began."""
        edges = () if isinstance(self.beside, NoStatus) else self.beside.transports
        return bool(edges) and all(edge.state == "connected" for edge in edges)


Findings = AsyncGenerator[Finding, None]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at; ``look`` closes what it opened when it is closed itself."""

    name: str
    look: Callable[[Context], Findings]


Tell = Callable[[Finding], None]


async def run_checks(
    subjects: Sequence[Check],
    look: Context,
    tell: Tell,
    waiting: Callable[[Sequence[str]], None] = lambda _: None,
) -> list[Finding]:
    """Have all subjects look at once. Each finding is told once it is its turn, in the order of the subjects.

    *waiting* is told the names of those that still look, whenever one is done.
    """
    found: dict[str, list[Finding]] = {subject.name: [] for subject in subjects}
    open_names = list(found)
    told: list[Finding] = []
    untold = list(found)

    def flush() -> None:
        while untold:
            name = untold[0]
            for finding in found[name]:
                told.append(finding)
                tell(finding)
            found[name].clear()
            if name in open_names:
                return
            untold.pop(0)

    async def one(subject: Check) -> None:
        async def collect() -> None:
            async with aclosing(subject.look(look)) as findings:
                async for finding in findings:
                    found[subject.name].append(finding)
                    flush()

        found[subject.name] += await _bounded(subject.name, collect)
        open_names.remove(subject.name)
        waiting(open_names)
        flush()

    waiting(open_names)
    async with anyio.create_task_group() as tasks:
        for subject in subjects:
            tasks.start_soon(one, subject)
    return told


async def _bounded(name: str, collect: Callable[[], Awaitable[None]]) -> list[Finding]:
    """Run one subject to its end; what ends it early is a finding too."""
    try:
        with anyio.fail_after(WITHIN_S):
            await collect()
    except TimeoutError:
        return [
            Finding(name, "fail", f"not finished within {WITHIN_S:.0f} s", "Other problems there are unknown.",
                    "Run `threadfast doctor` again; with --offline if the network hangs.")
        ]  # fmt: skip
    except Exception as error:  # the boundary of a subject: a look that breaks must not hide the others
        log.exception("doctor.broke: %s", name)
        return [
            Finding(name, "fail", f"this check itself broke ({_where(error)})",
                    "Problems there are unknown.", "Please report it, with `threadfast doctor --bundle`.")
        ]  # fmt: skip
    return []


def _where(error: Exception) -> str:
    """Say which error it is and where it was raised, not what it says: that may be anything."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
