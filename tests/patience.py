"""How long tests wait for what has to come."""

from __future__ import annotations

from collections.abc import Callable

import anyio

CODE = "from threads import delivery; delivery.LATE_POST_S = 0.1; from bot.cli import main; main()"
"""The program, for ``python -c``. What it has posted to a fake before its death is there at once."""

WITHIN_S = 100.0
"""The bound of a wait that an event ends. It catches what hangs: a slow machine takes longer, and fails nothing."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no event tells of."""
    with anyio.fail_after(WITHIN_S):
        while not condition():
            await anyio.sleep(0.01)
