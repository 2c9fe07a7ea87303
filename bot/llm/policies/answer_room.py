"""Room for the answer: a server that has less than was asked for is asked for less.

A limit of the model, and its window, are remembered, so that the next call asks for no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace

import anyio

from bot.ports.errors import ContextOverflow, NoAnswerRoom, model_retry_fields
from bot.ports.model import AnswerRoom, Completion, ModelWrapper, Request
from threads.model import OnEvent, TextReset

log = logging.getLogger(__name__)

LEAST = 256
"""Tokens of an answer that are worth asking for; with less room the conversation has to become shorter."""

TRIES = 5
"""How often a call is made at most, the first time included."""


@dataclass(frozen=True, slots=True)
class AnswerRoomModel(ModelWrapper):
    """A `Model` that is asked for an answer as long as its server allows.

    ``learned`` is what the refusals of each model have said. ``size`` estimates the tokens of a prompt.
    """

    learned: MutableMapping[str, AnswerRoom]
    size: Callable[[Request], int]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `NoAnswerRoom` if there is too little room.

        If the prompt is what leaves too little, it raises `ContextOverflow`.
        """
        request = self._within(request)
        provider, _, model = self.name.partition("/")
        for attempt in range(2, TRIES + 1):
            began = anyio.current_time()
            try:
                return await self.model.complete(request, on_event)
            except NoAnswerRoom as error:
                self.learned[self.name] = error.room
                fewer = request.max_tokens // 2
                if error.room.tokens is not None and error.room.tokens < request.max_tokens:
                    fewer = error.room.tokens
                if fewer < LEAST and error.room.window is not None:
                    raise ContextOverflow(str(error), provider=provider, model=model) from error
                if fewer < LEAST:
                    raise
                fields = model_retry_fields(error, attempt, 0, self.name, anyio.current_time() - began)
                log.warning("model.retry: with room for %d tokens: %s", fewer, error, extra=fields)
            await on_event(TextReset())
            request = replace(request, max_tokens=fewer)
        return await self.model.complete(request, on_event)

    def _within(self, request: Request) -> Request:
        """Return the request with no more room for its answer than is known to be there."""
        known, most = self.learned.get(self.name, AnswerRoom()), request.max_tokens
        if known.window is not None:
            most = min(most, max(LEAST, known.window - self.size(request)))
        elif known.tokens is not None:
            most = min(most, known.tokens)
        return replace(request, max_tokens=most)
