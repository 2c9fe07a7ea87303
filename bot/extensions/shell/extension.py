"""The tool `shell`: commands in the thread's workspace, in the strongest sandbox that the machine offers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from pydantic.fields import FieldInfo

from bot.config.parts import SettingsPart
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

log = logging.getLogger(__name__)

Mode = Literal["auto", "bubblewrap", "landlock", "off", "unsafe-host"]

SANDBOX = SettingsPart[Mode](
    "tools.sandbox",
    Mode,
    FieldInfo(
        default="auto",
        description="Where shell runs; off disables it, unsafe-host gives no protection at all.",
    ),
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "shell" not in host.enabled:
        yield Running(facts={"sandbox": "off"})
        return
    from bot.extensions.shell.sandbox import open_sandbox  # noqa: PLC0415 - only where commands are wanted
    from bot.extensions.shell.tool import Shell  # noqa: PLC0415

    mode, folder = SANDBOX.of(host.settings), host.settings.data / "threads"
    await host.offload(host.disk.mkdir, folder)
    sandbox = await open_sandbox(mode, folder, offload=host.work, quota=host.writer.quota)
    off = {"shell": f"The shell is off: {sandbox.why}."} if sandbox.layer == "off" else {}
    for why in off.values():
        log.warning("tool.unavailable: %s", why)
    yield Running({"shell": [Shell(sandbox, host.work)]}, off=off, facts={"sandbox": sandbox.layer})


def _checks(_context: Context) -> Sequence[Check]:
    from bot.extensions.shell.checks import check_sandbox  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("sandbox", check_sandbox)]


extension = Extension(
    "shell",
    "runs commands in a sandbox",
    page="docs/operations.md",
    settings=(SANDBOX,),
    open=_open,
    checks=_checks,
)
