"""The processes of the browser: their memory, and their end. Linux; elsewhere nothing is known of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def memory(pids: Iterable[int]) -> int:
    """Return the bytes that the processes have for themselves, without their program's own files."""
    fields = [_status(pid).get(name, "0 kB") for pid in pids for name in ("RssAnon", "RssShmem")]
    return 1024 * sum(int(field.split()[0]) for field in fields)


def parent(pid: int) -> int:
    """Return the process that started *pid*, or 0 if unknown."""
    return int(_status(pid).get("PPid", "0"))


def kill_group(pid: int) -> None:
    """Kill *pid* and all that it leads, if it still runs. Never this process's own group."""
    with suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgid(0):
            os.killpg(group, signal.SIGKILL)


def kill_child(pid: int) -> None:
    """Kill *pid* if it is a child of this process."""
    if parent(pid) == os.getpid():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:  # it is gone, or this system has no /proc
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
