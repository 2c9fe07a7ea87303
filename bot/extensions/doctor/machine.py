"""Checks the machine: Python, the user, and the limit of open files."""

from __future__ import annotations

import os
import platform
import resource
import sys
from contextlib import suppress
from importlib.metadata import version

from bot.host.checks import Context, Findings
from transports.shared.checks import Finding

OLDEST = (3, 11)
FEW_FILES = 1_024


async def check_machine(_: Context) -> Findings:
    yield _python()
    yield _user()
    yield _files()


def _python() -> Finding:
    found = f"threadfast {version('threadfast')}, Python {platform.python_version()}, {_system()}"
    if sys.version_info >= OLDEST:
        return Finding("version", "ok", found)
    return Finding("version", "fail", found, "It needs Python 3.11 or newer.", "Install a newer Python.")


def _system() -> str:
    name = ""
    with suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return f"{name or platform.system()} ({platform.machine()}, kernel {platform.release()})"


def _user() -> Finding:
    if os.geteuid() != 0:
        return Finding("user", "ok", f"user {os.geteuid()}")
    meaning = "As root the shell and the browser are off, because their sandboxes do not contain root."
    fix = "Run it as its own user; deploy/ has a unit and a container for that."
    return Finding("user", "warn", "this is root", meaning, fix)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    found = "no limit" if soft == endless else f"{soft:,} may be open"
    if soft == endless or soft >= FEW_FILES:
        return Finding("open_files", "ok", found)
    meaning = "With many threads at once, files and connections fail to open."
    fix = f"ulimit -n {hard if hard != endless else 65_536}, or LimitNOFILE=65536 in the unit."
    return Finding("open_files", "warn", found, meaning, fix)
