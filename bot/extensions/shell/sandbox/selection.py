"""Chooses the layer of the sandbox: the first that starts and passes the self-probe.

| mode          | tried in this order                                                   | if none works     |
|---------------|-----------------------------------------------------------------------|-------------------|
| `auto`        | bubblewrap (the system's, then the packaged one, each variant), Landlock | off, with a reason |
| `bubblewrap`  | bubblewrap                                                            | off, with a reason |
| `landlock`    | Landlock                                                              | off, with a reason |
| `unsafe-host` | no walls: only limits, and the whole tree is killed at the end        | off, with a reason |
| `off`         | -                                                                     |                   |

Nothing is tried as root: neither the limit of processes nor the owners of files stop root.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from bot.extensions.shell.extension import Mode
from bot.ports.errors import SandboxFailed, ToolBusy, ToolDenied
from bot.tools.files.quota import Quota
from threads.store.disk import Offload

from . import bubblewrap, seccomp
from .layers import Bubblewrap, Landlock, Layer, Name, landlock_abi
from .probe import probe
from .profile import DEFAULT_LIMITS, Limits
from .run import CommandResult, run
from .workspace_meter import Meter

if TYPE_CHECKING:
    from bot.extensions.shell.network.proxy import Proxy

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Commands that run at once in the whole process; each may use its own limit of memory."""


class Sandbox:
    """Runs commands behind one layer; without one, ``why`` is the reason."""

    def __init__(
        self,
        layer: Layer | None,
        why: str,
        *,
        offload: Offload,
        limits: Limits = DEFAULT_LIMITS,
        quota: Quota | None = None,
    ) -> None:
        self._layer, self.why, self._quota = layer, why, quota
        self._offload, self._limits = offload, limits
        self._slots = anyio.Semaphore(AT_ONCE)

    @property
    def layer(self) -> Name | Literal["off"]:
        return self._layer.name if self._layer else "off"

    async def run(
        self, command: str, workspace: Path, deadline: float, proxy: Proxy | None = None
    ) -> CommandResult:
        """Run *command* in *workspace* until *deadline* on anyio's clock; create the workspace if it is missing.

        It reaches what *proxy* lets it, which needs bubblewrap.

        Raises `ToolDenied` if the sandbox is off, `ToolBusy` if too many commands run until the deadline, and
        `SandboxFailed`.
        """
        if self._layer is None:
            raise ToolDenied(self.why, suggestion="Go on without commands, and say so.")
        await self._acquire(deadline)
        try:
            await self._offload(partial(workspace.mkdir, mode=0o700, parents=True, exist_ok=True))
            meter = await self._offload(Meter, self._quota, workspace) if self._quota else None
            layer = self._layer
            if proxy:
                assert isinstance(layer, Bubblewrap), "no other layer gives a command a network of its own"
                layer = replace(layer, authority=proxy.network.authority)
            return await run(layer, command, workspace, deadline, self._limits, self._offload, meter, proxy)
        finally:
            self._slots.release()

    async def _acquire(self, deadline: float) -> None:
        with anyio.CancelScope(deadline=deadline):
            await self._slots.acquire()
            return
        raise ToolBusy(
            "Too many commands were running; this one was not started.", suggestion="Try again later."
        )


async def open_sandbox(
    mode: Mode, parent: Path, *, offload: Offload, limits: Limits = DEFAULT_LIMITS, quota: Quota | None = None
) -> Sandbox:
    """Return the best sandbox that *mode* allows and that works. *parent* is the folder that has the workspaces.

    *quota* limits what commands leave in a workspace; without one only the disk does.
    """
    if mode == "off":
        return Sandbox(None, "commands are switched off in the settings", offload=offload)
    if reason := _unsupported_reason():
        return Sandbox(None, reason, offload=offload)
    reasons: dict[str, str] = {}
    for layer in _candidates(mode):
        if not (fault := await find_fault(layer, parent, limits, offload)):
            why = _describe(layer, reasons)
            log.info("sandbox.chosen: %s", why)
            return Sandbox(layer, why, offload=offload, limits=limits, quota=quota)
        log.info("sandbox.unusable: %r cannot be used: %s", layer, fault)
        reasons.setdefault(layer.name, fault)
    if mode in ("auto", "bubblewrap") and "bubblewrap" not in reasons:
        reasons["bubblewrap"] = "it is not installed: install the package bubblewrap"
    if mode in ("auto", "landlock") and "landlock" not in reasons:
        reasons["landlock"] = "this kernel, or the container, does not have it"
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return Sandbox(None, f"no sandbox works here; {listed}", offload=offload)


def _unsupported_reason() -> str:
    """Return why no command can run here, or "" if one can."""
    if not sys.platform.startswith("linux"):
        return "commands need Linux: run the bot in a container, in a virtual machine, or under WSL 2"
    if os.geteuid() == 0 or os.getuid() == 0:
        return "commands are not run while the bot runs as root: start it as a user of its own"
    if platform.machine() not in seccomp.MACHINES:
        return "commands need a system call filter, which exists only for x86_64 and aarch64"
    return ""


def _candidates(mode: Mode) -> Iterator[Layer]:
    if mode == "unsafe-host":
        yield Landlock(landlock_abi(), confined=False)
    if mode in ("auto", "bubblewrap"):
        for binary in bubblewrap.find_binaries():
            for variant in bubblewrap.VARIANTS:
                yield Bubblewrap(binary, variant)
    if mode in ("auto", "landlock") and landlock_abi():
        yield Landlock(landlock_abi())


async def find_fault(layer: Layer, parent: Path, limits: Limits, offload: Offload) -> str:
    """Return why *layer* cannot be used, or "" if it can."""
    try:
        leaks = await probe(layer, parent, limits, offload)
    except SandboxFailed as error:
        reason = str(error.__cause__ or error)
        advice = bubblewrap.advice_for(reason) if layer.name == "bubblewrap" else reason.strip()[:200]
        if "AppArmor" in advice:
            log.warning("sandbox.profile: a profile that lets bubblewrap work:\n%s", bubblewrap.APPARMOR)
        return advice
    except OSError as error:
        return f"the folder of the workspaces cannot be used ({type(error).__name__})"
    return "" if layer.name == "unsafe-host" else "; ".join(leaks)


def _describe(layer: Layer, reasons: dict[str, str]) -> str:
    match layer.name:
        case "unsafe-host":
            return "commands run on the host without any walls, as the settings demand"
        case "bubblewrap":
            return "commands run in bubblewrap: only their workspace, not this host's network, no other processes"
        case "landlock":
            instead = "".join(f", since bubblewrap does not work ({reason})" for reason in reasons.values())
            return f"commands run behind Landlock: only their workspace, no network{instead}"
