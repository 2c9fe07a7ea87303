"""Looks over what a bot would stand on, and says what is wrong and what to do about it."""

from __future__ import annotations

import json as json_text
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.guards.secrets import Masker
from bot.settings import secrets_of
from bot.settings_model import McpServer, Settings
from bot.tools.mcp.listing import Listing, clean, counted
from bot.tools.mcp.server import USUAL, Server, Times
from bot.trace import plain
from threads.disk import Offload

State = Literal["ok", "warn", "fail"]

SHOWN = 3
"""Of the tools that were left out, how many are named."""
_STYLES: Mapping[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
PIPED_WIDTH = 400


@dataclass(frozen=True, slots=True)
class Check:
    """What was found about one thing, and what to do about it, if anything."""

    name: str
    state: State
    found: str
    fix: str = ""


async def diagnose(settings: Settings, environ: Mapping[str, str], *, times: Times = USUAL) -> list[Check]:
    """Look at everything, side by side. Servers are started and ended again; nothing is kept."""
    offload = anyio.to_thread.run_sync
    mask = Masker(await offload(secrets_of, settings, environ))
    found: dict[str, Check] = {}

    async def one(name: str, server: McpServer) -> None:
        found[name] = await _mcp(
            Server(name, server, environ, offload=offload, mask=mask, on_listed=_unkept, times=times)
        )

    async with anyio.create_task_group() as tasks:
        for name, server in settings.mcp_servers.items():
            tasks.start_soon(one, name, server)
        sandbox = await _sandbox(settings, offload)
    return [sandbox, *(found[name] for name in sorted(found))]


async def _sandbox(settings: Settings, offload: Offload) -> Check:
    from bot.tools.sandbox.opened import open_sandbox  # noqa: PLC0415 - for who asks

    mode = settings.tools.sandbox
    if "shell" not in settings.tools.enabled or mode == "off":
        return Check("sandbox", "ok", "commands are switched off in the settings")
    with tempfile.TemporaryDirectory() as beside:
        sandbox = await open_sandbox(mode, Path(beside), offload=offload)
    found = f"{sandbox.layer}: {sandbox.why}"
    if sandbox.layer == "off":
        return Check("sandbox", "fail", found, "Mend this, or take shell out of tools.enabled.")
    if mode == "unsafe-host":
        return Check("sandbox", "warn", found, 'Set tools.sandbox to "auto": commands have no walls now.')
    return Check("sandbox", "ok", found)


async def _mcp(server: Server) -> Check:
    name = f"mcp_servers.{server.name}"
    started_at = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        server.want()
        await server.tried.wait()
        took_s = anyio.current_time() - started_at
        tasks.cancel_scope.cancel()
    if server.listing is None:
        words = f" It said: {server.words}" if server.words else ""
        return Check(name, "fail", f"{server.reason}.{words}", "Try its command or address by hand.")
    return _listed(name, server.listing, took_s)


def _listed(name: str, listing: Listing, took_s: float) -> Check:
    found = f"{counted(len(listing.tools))}, in {took_s:.1f} s"
    if not listing.left_out:
        return Check(name, "ok", found)
    shown = "; ".join(listing.left_out[:SHOWN])
    more = len(listing.left_out) - SHOWN
    return Check(
        name,
        "warn",
        f"{found}; left out: {shown}{f'; and {more} more' if more > 0 else ''}",
        "The model is not given these. Ask whoever makes the server.",
    )


async def _unkept(_name: str, _listing: Listing) -> None:
    """Keep nothing: this is no start of the bot."""


def run_doctor(settings: Settings, environ: Mapping[str, str], *, json: bool = False) -> int:
    """Print what is found; returns the exit code, 1 if anything fails."""
    checks = anyio.run(partial(diagnose, settings, environ))
    if json:
        print(json_text.dumps([asdict(check) for check in checks], indent=2))  # noqa: T201 - its output
    else:
        console = Console(file=sys.stdout, highlight=False)
        if not console.is_terminal:
            console = Console(file=sys.stdout, highlight=False, width=PIPED_WIDTH, color_system=None)
        console.print(doctor_table(checks))
    return int(any(check.state == "fail" for check in checks))


def doctor_table(checks: Sequence[Check]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("Check", "", "Found", "What to do"):
        table.add_column(title, overflow="fold")
    for check in checks:
        table.add_row(
            Text(plain(check.name)),
            Text(check.state, _STYLES[check.state]),
            Text(clean(check.found)),
            Text(clean(check.fix)),
        )
    return table
