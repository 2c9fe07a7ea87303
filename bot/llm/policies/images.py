"""Pictures in a conversation: they are read from disk for a request, and never keep a model from answering.

| what happened                                  | then                                                        |
|------------------------------------------------|-------------------------------------------------------------|
| a picture is gone from the disk                | words stand in its place                                    |
| there are more than providers take             | the newest are shown, words stand in place of the others    |
| no candidate sees, and the message has one     | asked with words in their place; the answer says so         |
| a request is too long                          | words in place of all but the newest message's, for good    |
| the provider refuses a request with pictures   | the same; if that is answered, the words stay in their place |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bot.llm.adapters.wire_form import image_placeholder
from bot.ports import wording
from bot.ports.errors import CapabilityMissing, ThinkingRejected
from bot.ports.model import Completion, Request, TurnModelWrapper
from threads.errors import BotError, retry_fields
from threads.model import Block, Image, Message, OnEvent, TextReset, Turn

log = logging.getLogger(__name__)

MOST, MOST_BYTES = 20, 15_000_000
"""Pictures of one request, and their bytes together: what all providers take, at their full size."""


@dataclass(frozen=True, slots=True)
class VisionModel(TurnModelWrapper):
    """The model of a turn, which is shown the turn's pictures."""

    turn: Turn

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`."""
        if not _has_pictures(request.messages):
            return await self.model.complete(request, on_event)
        messages = await self._shown(request.messages)
        try:
            return await self.model.complete(replace(request, messages=messages), on_event)
        except BotError as error:
            if error.code == "context_overflow" and (fewer := _newest(request.messages)):
                self.turn.replace_messages(_newest(self.turn.messages) or self.turn.messages)
                log.info("model.retry: fewer pictures: %s", error, extra=retry_fields(error.code, 2, 0))
                await on_event(TextReset())
                return await self.complete(replace(request, messages=fewer), on_event)
            if error.code not in ("missing_vision", "bad_request") or isinstance(error, ThinkingRejected):
                raise
            refused = error
        name = self.name
        log.info("model.retry: without pictures: %s", refused, extra=retry_fields(refused.code, 2, 0))
        await on_event(TextReset())
        completion = await self.model.complete(replace(request, messages=_blind(request.messages)), on_event)
        if isinstance(refused, CapabilityMissing):
            self.turn.note(wording.not_seen(name))
        else:
            self.turn.note(wording.picture_refused(name))
            self.turn.replace_messages(_blind(self.turn.messages))
        return completion

    async def _shown(self, messages: Sequence[Message]) -> list[Message]:
        """Return the conversation with its pictures: the newest, as far as they can be had and sent."""
        left, room = MOST, MOST_BYTES
        shown = list(messages)
        for place, message in reversed(list(enumerate(messages))):
            if not _has_pictures([message]):
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
            shown[place] = replace(message, blocks=tuple(blocks))
        return shown


def _has_pictures(messages: Iterable[Message]) -> bool:
    return any(isinstance(block, Image) for message in messages for block in message.blocks)


def _newest(messages: Sequence[Message]) -> list[Message] | None:
    """Return the conversation with the pictures of its newest message that has any; None if only that has some."""
    places = [place for place, message in enumerate(messages) if _has_pictures([message])]
    if len(places) < 2:
        return None
    return [*_blind(messages[: places[-1]]), *messages[places[-1] :]]


def _blind(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with words in place of its pictures; messages without any are the same objects."""
    return [_without(message) if _has_pictures([message]) else message for message in messages]


def _without(message: Message) -> Message:
    return replace(
        message,
        blocks=tuple(
            image_placeholder(block) if isinstance(block, Image) else block for block in message.blocks
        ),
    )
