"""The tool `shell`: commands in the thread's workspace, in the strongest sandbox that the machine offers.

With `tools.network` they reach some hosts, see `bot.extensions.shell.network`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from pydantic.fields import FieldInfo

from bot.config.parts import SettingsPart
from bot.extensions.shell.network.settings import NETWORK
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
    network, fault = None, ""
    if given := NETWORK.of(host.settings):
        from bot.extensions.shell.network.opening import find_fault, open_network  # noqa: PLC0415

        network = await host.work(open_network, given, host.settings, host.environ, host.egress)
        host.learn([form for one in network.added.values() for form in one.forms])
        if fault := await find_fault(network, sandbox, folder):
            log.error("network.refused: %s", fault)
            network = None
    tool = Shell(sandbox, host.work, network, host.note)
    facts = {"sandbox": sandbox.layer} | ({"network of commands": network.named} if network else {})
    yield Running({"shell": [tool]}, off=off, facts=facts, troubles=lambda: fault)


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.shell.checks import check_sandbox  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    if NETWORK.of(context.settings) is None:
        return [Check("sandbox", check_sandbox)]
    from bot.extensions.shell.network.checks import check_network  # noqa: PLC0415 - slow

    return [Check("sandbox", check_sandbox), Check("network of commands", check_network)]


extension = Extension(
    "shell",
    "runs commands in a sandbox",
    page="docs/operations.md",
    settings=(SANDBOX, NETWORK),
    open=_open,
    checks=_checks,
)
