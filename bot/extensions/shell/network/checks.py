"""Checks `tools.network` for `threadfast doctor`: the walls of this machine, the credentials, and each host."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bot.extensions.shell.extension import SANDBOX
from bot.extensions.shell.network.opening import find_fault, open_network
from bot.extensions.shell.network.settings import NETWORK, written
from bot.extensions.shell.sandbox import open_sandbox
from bot.guards.egress import Egress
from bot.host.checks import AS_ROOT, Context, Findings
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ToolError
from transports.shared.checks import Finding

NAME = "network of commands"


async def check_network(context: Context) -> Findings:
    settings, given = context.settings, NETWORK.of(context.settings)
    assert given is not None, "such a setting has this check"
    egress = Egress(settings.tools.private_hosts)
    try:
        network = await context.offload(open_network, given, settings, context.environ, egress)
    except ConfigInvalid as error:
        yield Finding(NAME, "fail", str(error), "The bot does not start.", AS_ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        sandbox = await open_sandbox(SANDBOX.of(settings), Path(folder), offload=context.offload)
        fault = await find_fault(network, sandbox, Path(folder))
    if fault:
        fix = "Make bubblewrap work here, or take tools.network out."
        yield Finding(NAME, "fail", fault, "Commands reach nothing.", fix)
        return
    for target in () if context.offline else sorted(network.allowed):
        try:
            await egress.addresses(*target)
        except ToolError as error:
            fix = "Look at its name, and at tools.private_hosts for a host of your own network."
            yield Finding(NAME, "fail", f"{written(target)}: {error}", "Commands cannot reach it.", fix)
            return
    more = f"; a credential is added for {len(network.added)} of them" if network.added else ""
    yield Finding(NAME, "ok", f"commands reach {network.named or 'no host'}{more}")
