"""The browser as processes of the system: what they take, and their end. Linux; elsewhere nothing is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def memory(pids: Iterable[int]) -> int:
    """Return the bytes that the processes have for themselves, their program's own files not counted."""
    return sum(_own(pid) for pid in pids)


def _own(pid: int) -> int:
    fields = _lines(pid, "status")
    return 1024 * sum(int(fields.get(name, "0 kB").split()[0]) for name in ("RssAnon", "RssShmem"))


def parent(pid: int) -> int:
    """Return the process that started *pid*, 0 if that is not known."""
    return int(_lines(pid, "status").get("PPid", "0"))


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


def _lines(pid: int, name: str) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/{name}").read_text("ascii", "replace")
    except OSError:  # it is gone, or this system has no such folder
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
