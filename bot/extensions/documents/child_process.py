"""A Python child process of our own: it gets nothing of our environment, and is killed at the end of its block."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import Process

END_S = 1.0
"""Seconds that a killed child is waited for."""

LIBRARIES = "LD_LIBRARY_PATH"
"""Where some Pythons find their own library."""


@asynccontextmanager
async def run_child(*arguments: str, stdin: int = PIPE) -> AsyncIterator[Process]:
    """Run ``python -I`` with these arguments; it is dead when the block ends. Raises OSError if it cannot start."""
    process = await anyio.open_process(
        [sys.executable, "-I", *arguments],
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd="/",
        env={LIBRARIES: os.environ[LIBRARIES]} if LIBRARIES in os.environ else {},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(END_S, shield=True):
            await process.aclose()
