"""How much a candidate reasons: what was chosen goes into each request, or nothing if the model refuses it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from bot.ports.effort import Effort
from bot.ports.errors import ReasoningUnsupported
from bot.ports.model import Completion, ModelWrapper, Request
from threads.model import OnEvent, TextReset

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EffortModel(ModelWrapper):
    """A `Model` that is asked with an effort. ``effort`` returns it; None leaves that to the model.

    All calls of a turn are asked alike, so that they share their cached prefix. ``on_refused`` is called if the model
    does not take the effort. The request is then sent once more without.
    """

    effort: Callable[[], Effort | None]
    on_refused: Callable[[Effort], None]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        effort = self.effort()
        try:
            return await self.model.complete(replace(request, reasoning=effort), on_event)
        except ReasoningUnsupported as error:
            if effort is None:
                raise
            log.warning(
                "model.effort_refused: %s: %s",
                self.name,
                error,
                extra={"code": error.code, "model": self.name},
            )
            self.on_refused(effort)
        await on_event(TextReset())
        return await self.model.complete(replace(request, reasoning=None), on_event)
