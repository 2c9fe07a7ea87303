"""Room for the answer: a server that has less than was asked for is asked for less.

What was found is kept for this model of this server (`bot.llm.server_traits`); the next call asks for no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from bot.llm.server_traits import ServerTraits
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

    ``size`` estimates the tokens of a prompt.
    """

    server: ServerTraits
    size: Callable[[Request], int]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `NoAnswerRoom` if there is too little room.

        If the prompt is what leaves too little, it raises `ContextOverflow`.
        """
        request, room = self._within(request), None
        for attempt in range(2, TRIES + 1):
            began = anyio.current_time()
            try:
                completion = await self.model.complete(request, on_event)
                break
            except NoAnswerRoom as error:
                fewer = await self._fewer(error, request.max_tokens)
                room = AnswerRoom(fewer, error.room.window)
                fields = model_retry_fields(error, attempt, 0, self.name, anyio.current_time() - began)
                log.warning("model.retry: with room for %d tokens: %s", fewer, error, extra=fields)
            await on_event(TextReset())
            request = replace(request, max_tokens=fewer)
        else:
            completion = await self.model.complete(request, on_event)
        if room is not None:
            await self.server.learn_room(room)
        return completion

    async def _fewer(self, error: NoAnswerRoom, most: int) -> int:
        """Return how many tokens to ask for after a refusal of *most*. Raises what `complete` does."""
        named = error.room.tokens
        fewer = named if named is not None and named < most else most // 2
        if fewer >= LEAST:
            return fewer
        if error.room.window is None:
            raise error
        await self.server.learn_room(error.room)
        provider, _, model = self.name.partition("/")
        raise ContextOverflow(str(error), provider=provider, model=model) from error

    def _within(self, request: Request) -> Request:
        """Return the request with no more room for its answer than is known to be there."""
        known, most = self.server.room, request.max_tokens
        if known.window is not None:
            most = min(most, max(LEAST, known.window - self.size(request)))
        elif known.tokens is not None:
            most = min(most, known.tokens)
        return request if most == request.max_tokens else replace(request, max_tokens=most)
