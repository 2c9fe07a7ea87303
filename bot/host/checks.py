"""What a check of `threadfast doctor` is: its context, and what it finds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from bot.config.settings import Settings
from bot.ports.status import ABSENT, UP, NoStatus, Status
from threads.store.disk import Offload
from transports.shared.checks import Finding

AS_ROOT = "Run `threadfast doctor` as root, or with the bot's own environment, to check it."
"""For secrets that only the bot can read: under systemd its credentials are for the service and root."""


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
