"""Checks the machine: Python, the user, the limit of open files, and systemd."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from bot.admin.doctor.checks import Context, Findings
from transports.shared.checks import Finding

OLDEST = (3, 11)
FEW_FILES = 1_024
UNIT = "threadfast.service"
UNITS = tuple(
    Path(place) / UNIT for place in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)
SYSTEMCTL_WITHIN_S = 3.0


async def check_machine(context: Context) -> Findings:
    yield _python()
    yield _user()
    yield _files()
    if found := await context.offload(_unit):
        yield found


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


def _unit() -> Finding | None:
    """Return the state of systemd's unit, or None if there is no unit."""
    if not any(unit.exists() for unit in UNITS):
        return None
    unit = _properties() if shutil.which("systemctl") and Path("/run/systemd/system").is_dir() else {}
    state = unit.get("ActiveState", "")
    if not state:
        return Finding("systemd", "ok", f"{UNIT} is installed; systemd does not run here")
    found = f"{UNIT}: {state}, restarted {unit.get('NRestarts', '0')} times"
    if state != "failed":
        return Finding("systemd", "ok", found)
    result = unit.get("Result")
    why = f"exit code {unit.get('ExecMainStatus')}" if result == "exit-code" else result
    fix = "journalctl -u threadfast -n 50; fix it, then systemctl restart threadfast."
    return Finding("systemd", "fail", f"{found} ({why})", "systemd does not start it again.", fix)


def _properties() -> dict[str, str]:
    names = "ActiveState,Result,NRestarts,ExecMainStatus"
    try:
        done = subprocess.run(  # noqa: S603  fixed words
            ["systemctl", "show", UNIT, "--property", names],  # noqa: S607  the system's own
            capture_output=True,
            text=True,
            timeout=SYSTEMCTL_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
