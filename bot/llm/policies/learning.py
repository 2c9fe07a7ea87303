"""What a server does not take is left out: it is asked once more, and not so again for 30 days.

| a server refuses                         | then                                                              |
|------------------------------------------|-------------------------------------------------------------------|
| a parameter, or the role of instructions | asked again without it, or in the other form                      |
| the chosen effort                        | asked again without it; a note says so                            |
| tools, and no other model can be asked   | the same                                                          |
| tools, and another model can be asked    | raised, from the next call on without asking it                   |
| pictures                                 | raised; from then on the model counts as one without vision       |
| a conversation longer than it reads      | raised; from then on its window is known, if the refusal named it |

All of that is kept for this model of this server (`bot.llm.server_traits`); a form only if it was answered. Each
request is paid for as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import anyio

from bot import wording
from bot.llm.server_traits import ServerTraits, in_forms_of
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
"""Parts that one call tries in other forms; a server that refuses more is broken."""


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
        tried: dict[str, str] = {}
        while True:
            asked = self._asked(request, tried)
            began = anyio.current_time()
            try:
                completion = await self.model.complete(asked, on_event)
            except ProviderError as error:
                if len(tried) == MOST or not await self._learn(error, asked, tried):
                    raise
                fields = model_retry_fields(error, len(tried) + 1, 0, self.name, anyio.current_time() - began)
                log.warning("model.retry: in another form: %s: %s", self.name, error, extra=fields)
            else:
                await self.server.learn_forms(tried)
                return completion
            await on_event(TextReset())

    def _asked(self, request: Request, tried: Mapping[str, str]) -> Request:
        """Return the request in the forms that are known, and those to try."""
        effort, forms = self.effort(), {**self.server.forms, **tried}
        if forms.get("tools") == "none" and request.tools and _another_can(request):
            raise ToolsUnsupported("known from an earlier refusal")
        reasoning = None if effort and self.server.refuses(effort) else effort
        asked = request if reasoning == request.reasoning else replace(request, reasoning=reasoning)
        return in_forms_of(asked, forms)

    async def _learn(self, error: ProviderError, asked: Request, tried: dict[str, str]) -> bool:
        """Learn from a failure; return whether to ask again, perhaps in a form that is added to *tried*."""
        refusal = None
        match error:
            case ContextOverflow(window=int(tokens)):
                await self.server.learn_window(tokens)
            case VisionUnsupported() if self.server.form_after(NO_IMAGES, tried):
                await self.server.learn_forms({NO_IMAGES.part: NO_IMAGES.instead})
            case ToolsUnsupported() if asked.tools and self.server.form_after(NO_TOOLS, tried):
                if _another_can(asked):
                    await self.server.learn_forms({NO_TOOLS.part: NO_TOOLS.instead})
                else:
                    self.note(wording.without_tools(self.name))
                    refusal = NO_TOOLS
            case ReasoningUnsupported() if asked.reasoning is not None:
                await self.server.learn_effort(asked.reasoning)
                self.note(wording.effort_refused(self.name, asked.reasoning))
                return True
            case PartRefused():
                refusal = error.refusal
        form = self.server.form_after(refusal, tried) if refusal else ""
        if refusal and form:
            tried[refusal.part] = form
        return bool(form)


def _another_can(request: Request) -> bool:
    """Return whether another model can be asked in place of this one."""
    return not request.last_resort and not request.best_effort
