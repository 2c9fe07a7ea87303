"""Short texts from one worker of a store to all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Notices(Protocol):
    """Short texts to all workers of a store. ``heard`` gets each; ``missed`` is called when some may be lost."""

    heard: Callable[[str], None]
    missed: Callable[[], None]

    async def send(self, texts: Sequence[str]) -> None:
        """Send each text. Raises OSError."""
