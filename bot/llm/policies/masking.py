"""Masks secrets in what a model writes, before anything stores, shows or does it.

| part of an answer            | what is masked                                                        |
|------------------------------|-----------------------------------------------------------------------|
| its text                     | all that looks like a secret, as in the post                          |
| the arguments of a tool call | the bot's own secrets; others may be what a person wants to be used   |
| reasoning                    | left out if it has a secret of the bot: it goes back whole or not     |

It is done once, when the answer comes, so the conversation stays the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import JsonValue

from bot.guards.redaction import Masker
from bot.ports.model import Completion, Request, TurnModelWrapper
from threads.model import Block, Message, OnEvent, Text, Thinking, ToolCall


@dataclass(frozen=True, slots=True)
class MaskedModel(TurnModelWrapper):
    mask: Masker

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        completion = await self.model.complete(request, on_event)
        message = masked(completion.message, self.mask)
        return completion if message is completion.message else replace(completion, message=message)


def masked(message: Message, mask: Masker) -> Message:
    """Return a model's message without secrets; the same object if it has none."""
    blocks = tuple(_masked(message, mask))
    return message if blocks == message.blocks else replace(message, blocks=blocks)


def _masked(message: Message, mask: Masker) -> Iterator[Block]:
    for block in message.blocks:
        match block:
            case Text(text):
                yield block if (hidden := mask(text)) == text else replace(block, text=hidden)
            case ToolCall(arguments=arguments, malformed=malformed):
                given = {mask.own(name): _value(value, mask) for name, value in arguments.items()}
                yield replace(block, arguments=given, malformed=mask.own(malformed))
            case Thinking(text=text, raw=raw) if mask.own(text) != text or _value(raw, mask) != raw:
                continue
            case _:
                yield block


def _value(value: JsonValue, mask: Masker) -> JsonValue:
    match value:
        case str():
            return mask.own(value)
        case list():
            return [_value(item, mask) for item in value]
        case dict():
            return {mask.own(name): _value(item, mask) for name, item in value.items()}
        case _:
            return value
