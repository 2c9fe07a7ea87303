"""Starting Chromium. What drives it is imported only then: that alone takes a third of a second."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from threads.store.disk import Offload

from .session import Engine, OnFailure


@dataclass(frozen=True)
class Chromium:
    """A `bot.tools.browser.session.Launch`. Without an *executable* it is Playwright's own, or the system's.

    Without *sandbox* it runs for root too, with nothing between a page and this machine: for tests.
    """

    offload: Offload
    executable: Path | None = None
    sandbox: bool = True

    @asynccontextmanager
    async def __call__(self, port: int, over: OnFailure) -> AsyncIterator[Engine]:
        chromium = await self.offload(importlib.import_module, "bot.tools.browser.chromium")
        async with chromium.launched(
            self.offload, self.executable, port, over, sandbox=self.sandbox
        ) as engine:
            yield engine
