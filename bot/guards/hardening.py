"""Hides this process from other programs of the same user."""

from __future__ import annotations

import ctypes
import resource
import sys

_SET_DUMPABLE = 4
"""PR_SET_DUMPABLE of prctl(2)."""


def harden_process() -> None:
    """Keep our memory and environment, with their tokens, from children and core dumps.

    A program outside the sandbox, such as an MCP server, runs as our user and could read our ``/proc/*/environ``.
    Other kernels than Linux have only the limit on core dumps.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
