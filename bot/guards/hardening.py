"""The process itself: what other programs of the same user may see of it."""

from __future__ import annotations

import ctypes
import resource
import sys

_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE of prctl(2)."""


def harden_process() -> None:
    """Keep our memory and environment, with all tokens in them, from children and from core dumps.

    A program that is not walled in, as an MCP server, runs as our user and could read ``/proc/<us>/environ`` else.
    Where the kernel knows no such thing, nothing is done.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
