"""What a server does not take is left out: it is asked once more, and never so again.

| a server refuses                         | then                                                              |
|------------------------------------------|-------------------------------------------------------------------|
| a parameter, or the role of instructions | asked again without it, or in the other form                      |
| the chosen effort                        | asked again without it; a note says so                            |
| tools, and no other model can be asked   | the same                                                          |
| tools, and another model can be asked    | raised, from the next call on without asking it                   |
| pictures                                 | raised; from then on the model counts as one without vision       |
| a conversation longer than it reads      | raised; from then on its window is known, if the refusal named it |

All of that is kept for this model of this server (`bot.llm.server_traits`). Each request is paid for as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from bot.llm.server_traits import ServerTraits, in_forms_of
from bot.ports import wording
from bot.ports.effort import Effort
from bot.ports.errors import (
    ContextOverflow,
    PartRefused,
    ProviderError,
    ReasoningUnsupported,
    Refusal,
    ToolsUnsupported,
    VisionUnsupported,
    model_retry_fields,
)
from bot.ports.model import Completion, ModelWrapper, Request
from threads.model import OnEvent, TextReset

log = logging.getLogger(__name__)

NO_TOOLS, NO_IMAGES = Refusal("tools"), Refusal("images")

MOST = 8
"""Requests of one call in further forms; a server that refuses more is broken."""


@dataclass(frozen=True, slots=True)
class LearningModel(ModelWrapper):
    """A `Model` that is asked in the forms that its server takes, and with an effort.

    ``effort`` returns it; None leaves that to the model. All calls of a turn are asked alike, so that they share
    their cached prefix. ``note`` tells the person of the turn.
    """

    server: ServerTraits
    effort: Callable[[], Effort | None]
    note: Callable[[str], None]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        for attempt in range(2, MOST + 2):
            effort, forms = self.effort(), self.server.forms
            if forms.get("tools") == "none" and request.tools and _another_can(request):
                raise ToolsUnsupported("known from an earlier refusal")
            began = anyio.current_time()
            try:
                return await self.model.complete(
                    in_forms_of(replace(request, reasoning=effort), forms), on_event
                )
            except ProviderError as error:
                if attempt > MOST or not await self._learn(error, request, effort):
                    raise
                seconds = anyio.current_time() - began
                fields = model_retry_fields(error, attempt, 0, self.name, seconds)
                log.warning("model.retry: in another form: %s: %s", self.name, error, extra=fields)
            await on_event(TextReset())
        raise AssertionError("the last attempt returns or raises")

    async def _learn(self, error: ProviderError, request: Request, effort: Effort | None) -> bool:
        """Learn from a refusal; return whether the request is worth another try."""
        match error:
            case ContextOverflow(window=int(tokens)):
                await self.server.learn_window(tokens)
            case VisionUnsupported():
                await self.server.learn_form(NO_IMAGES)
            case ToolsUnsupported() if request.tools:
                learned = await self.server.learn_form(NO_TOOLS)
                if learned and not _another_can(request):
                    self.note(wording.without_tools(self.name))
                    return True
            case ReasoningUnsupported() if effort is not None:
                await self.server.learn_effort(effort)
                self.note(wording.effort_refused(self.name, effort))
                return True
            case PartRefused(refusal=Refusal() as refusal):
                return await self.server.learn_form(refusal)
        return False


def _another_can(request: Request) -> bool:
    """Return whether another model can be asked in place of this one."""
    return not request.last_resort and not request.best_effort
