"""Images in a conversation: they are read from disk for each request, and never prevent an answer.

| what happened                                  | then                                                         |
|------------------------------------------------|--------------------------------------------------------------|
| the file of an image is missing                | a line of text takes its place                               |
| there are more than providers accept           | the newest are sent, text takes the place of the others      |
| no candidate has vision                        | text takes their place; a note says so                       |
| a request is too long                          | text replaces all but the newest message's, permanently      |
| the provider refuses a request with images     | text takes their place, permanently if that is answered      |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter

import anyio

from bot import wording
from bot.llm.adapters.wire_form import image_placeholder
from bot.ports.errors import CapabilityMissing, ThinkingRejected, model_retry_fields
from bot.ports.model import Completion, Request, TurnModelWrapper
from threads.errors import BotError
from threads.model import Block, Image, Message, OnEvent, TextReset, Turn, known

log = logging.getLogger(__name__)

MOST, MOST_BYTES = 20, 15_000_000
"""Images of one request, and their bytes together: all providers accept that."""


@dataclass(frozen=True, slots=True)
class VisionModel(TurnModelWrapper):
    """The model of a turn, with the turn's images."""

    turn: Turn

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        if not known(self.turn.messages, _pictured):  # so the request has none either
            return await self.model.complete(request, on_event)
        messages = await self._with_images(request.messages)
        began = anyio.current_time()
        try:
            return await self.model.complete(replace(request, messages=messages), on_event)
        except BotError as error:
            if error.code == "context_overflow" and (fewer := _newest(request.messages)):
                self.turn.replace_messages(_newest(self.turn.messages) or self.turn.messages)
                log.warning("model.retry: fewer pictures: %s", error, extra=self._retry(error, began))
                await on_event(TextReset())
                return await self.complete(replace(request, messages=fewer), on_event)
            if error.code not in ("missing_vision", "bad_request") or isinstance(error, ThinkingRejected):
                raise
            refused = error
        name = self.name
        log.warning("model.retry: without pictures: %s", refused, extra=self._retry(refused, began))
        await on_event(TextReset())
        completion = await self.model.complete(replace(request, messages=_blind(request.messages)), on_event)
        if isinstance(refused, CapabilityMissing):
            self.turn.note(wording.not_seen(name))
        else:
            self.turn.note(wording.picture_refused(name))
            self.turn.replace_messages(_blind(self.turn.messages))
        return completion

    def _retry(self, error: BotError, began: float) -> dict[str, object]:
        return model_retry_fields(error, 2, 0, self.name, anyio.current_time() - began)

    async def _with_images(self, messages: Sequence[Message]) -> list[Message]:
        """Return the conversation with its newest images, as far as they exist and may be sent."""
        left, room = MOST, MOST_BYTES
        result = list(messages)
        for place, message in reversed(list(enumerate(messages))):
            if not _has_images([message]):
                continue
            blocks: list[Block] = list(message.blocks)
            for at, block in enumerate(blocks):
                if isinstance(block, Image):
                    image = await self.turn.picture(block) if left else block
                    if 0 < len(image.data) <= room:
                        left, room = left - 1, room - len(image.data)
                        blocks[at] = image
                    else:
                        blocks[at] = image_placeholder(image)
            result[place] = replace(message, blocks=tuple(blocks))
        return result


def _pictured(before: bool | None, new: Sequence[Message]) -> bool:
    return before or _has_images(new)


def _has_images(messages: Sequence[Message]) -> bool:
    return Image in map(type, chain.from_iterable(map(attrgetter("blocks"), messages)))  # no loop of Python's


def _newest(messages: Sequence[Message]) -> list[Message] | None:
    """Return the conversation with the images of one message only, the newest; None if no other has images."""
    places = [place for place, message in enumerate(messages) if _has_images([message])]
    if len(places) < 2:
        return None
    return [*_blind(messages[: places[-1]]), *messages[places[-1] :]]


def _blind(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with text in place of its images; other messages are the same objects."""
    return [_without(message) if _has_images([message]) else message for message in messages]


def _without(message: Message) -> Message:
    return replace(
        message,
        blocks=tuple(
            image_placeholder(block) if isinstance(block, Image) else block for block in message.blocks
        ),
    )
