"""The machine inside: its systemd, the installed service, its settings and secrets. Everything here runs as its root."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import anyio

UNIT = "threadfast.service"
ETC, DATA = Path("/etc/threadfast"), Path("/var/lib/threadfast")
CHECKOUT, PACKAGES = Path("/opt/checkout"), Path("/opt/packages")
DROP_INS = Path("/run/systemd/system", f"{UNIT}.d")

PYTHON = """#!/bin/bash
# Makes environments whose pip knows nothing but the libraries of the checkout that is proved: there is no network.
if [ "$1 $2 $3" = "-I -m venv" ]; then
  /opt/python/bin/python3 -m venv --without-pip "$4"
  packages=$(echo "$4"/lib/python3*/site-packages)
  echo /opt/packages > "$packages/proof.pth"
  mkdir "$packages/pip" && cp /proof/pip.py "$packages/pip/__main__.py"
else
  exec /opt/python/bin/python3 "$@"
fi
"""
PIP = """import compileall, pathlib, shutil, sys
if "-r" not in sys.argv:
    packages, binary = pathlib.Path(__file__).parent.parent, pathlib.Path(sys.executable).parent
    for name in ("bot", "threads", "transports"):
        shutil.copytree(pathlib.Path(sys.argv[-1], name), packages / name)
        compileall.compile_dir(packages / name, quiet=1)
    program = binary / "threadfast"
    program.write_text(f"#!{sys.executable}\\nfrom bot.cli import main\\nmain()\\n")
    program.chmod(0o755)
"""
INJECTED = """import signal, time
signal.signal(signal.SIGUSR2, lambda *_: time.sleep(3600))
"""
"""Python reads this at its start, in one proof: a signal then makes the event loop hang, as a bug could."""


@dataclass(frozen=True)
class State:
    active: str
    sub: str
    pid: int
    restarts: int
    result: str
    code: int


async def run(*command: str | Path, **env: str) -> CompletedProcess[str]:
    done = await anyio.run_process([str(word) for word in command], check=False, env=os.environ | env)
    return CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


async def ctl(*words: str) -> CompletedProcess[str]:
    return await run("systemctl", *words)


async def state() -> State:
    names = "ActiveState,SubState,MainPID,NRestarts,Result,ExecMainStatus"
    shown = await ctl("show", UNIT, f"--property={names}")
    values = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    return State(
        values["ActiveState"],
        values["SubState"],
        int(values["MainPID"]),
        int(values["NRestarts"]),
        values["Result"],
        int(values["ExecMainStatus"]),
    )


async def until(predicate: Callable[[State], bool], limit_s: float = 20.0) -> tuple[State, float]:
    """Wait for a state of the unit; return it, and how many seconds that took. Raises TimeoutError."""
    began = time.monotonic()
    with anyio.fail_after(limit_s):
        while not predicate(now := await state()):
            await anyio.sleep(0.03)
    return now, time.monotonic() - began


async def serving(not_pid: int = 0, limit_s: float = 20.0) -> tuple[State, float]:
    """Wait until systemd was told READY by a process other than *not_pid*."""
    return await until(lambda now: now.active == "active" and now.pid not in (0, not_pid), limit_s)


async def journal(since: float) -> str:
    await run("journalctl", "--sync")
    return (await run("journalctl", "-u", UNIT, "-o", "cat", "--no-pager", "--since", f"@{since:.3f}")).stdout


async def drop_in(name: str, *lines: str) -> None:
    """Change the unit, until `take_out`; it holds from the next start on."""
    DROP_INS.mkdir(parents=True, exist_ok=True)
    (DROP_INS / f"{name}.conf").write_text("\n".join(("[Service]", *lines, "")))
    await ctl("daemon-reload")


async def take_out(name: str) -> None:
    (DROP_INS / f"{name}.conf").unlink()
    await ctl("daemon-reload")


async def install(*words: str, source: Path = CHECKOUT, **env: str) -> CompletedProcess[str]:
    return await run("bash", source / "deploy/install.sh", *words, "--python", "/proof/python", **env)


def prepare() -> None:
    """Lay out what `install.sh` is given instead of a network."""
    for path, text in ((Path("/proof/python"), PYTHON), (Path("/proof/pip.py"), PIP)):
        path.write_text(text)
        path.chmod(0o755)
    Path("/proof/inject").mkdir()
    Path("/proof/inject/sitecustomize.py").write_text(INJECTED)


def secret(name: str, value: str) -> None:
    path = ETC / "credentials" / name
    path.touch(mode=0o600)
    path.write_text(value + "\n")


def settings(**given: object) -> None:
    (ETC / "settings.json").write_text(json.dumps({"data": str(DATA)} | given))


def changed(name: str, path: str, text: str) -> Path:
    """Return a checkout with one file more, or another one."""
    copy = Path("/srv", name)
    copy.mkdir()
    for each in ("bot", "threads", "transports", "deploy", "docs"):
        shutil.copytree(CHECKOUT / each, copy / each, ignore=shutil.ignore_patterns("__pycache__"))
    for each in (*CHECKOUT.glob("requirements*.lock"), CHECKOUT / "pyproject.toml", CHECKOUT / "README.md"):
        shutil.copy(each, copy)
    (copy / path).write_text(text)
    return copy
