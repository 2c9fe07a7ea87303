"""A Python program of our own beside the bot: it sees nothing of our environment, and dies when it is done with."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE

import anyio
from anyio.abc import Process

END_S = 1.0
"""How long a killed one is waited for."""

NEEDED = "LD_LIBRARY_PATH"
"""Where some Pythons find their own library."""


@asynccontextmanager
async def run_child(*words: str, stdin: int = PIPE) -> AsyncIterator[Process]:
    """Run ``python -I`` with these *words* meanwhile; it is dead when the block ends, however that ends.

    Raises OSError when it cannot be started.
    """
    process = await anyio.open_process(
        [sys.executable, "-I", *words],
        stdin=stdin,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd="/",
        env={NEEDED: os.environ[NEEDED]} if NEEDED in os.environ else {},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(END_S, shield=True):
            await process.aclose()
