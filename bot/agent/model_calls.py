"""The model calls of one turn: the history is repaired and made to fit the window, and tokens are counted.

| when                                                | then                                                  |
|-----------------------------------------------------|-------------------------------------------------------|
| the conversation is close to the window             | it is compacted first                                 |
| it does not fit even so                             | once more, and only this turn is kept as it is        |
| it does not fit even then                           | it is not sent; the person is told how to go on       |
| the provider says that it is too long               | it is compacted and sent again; then as above         |
| the provider refuses reasoning that is sent back    | sent once more without reasoning                      |
| the answer is empty                                 | the model is asked once more, then `EmptyAnswer`      |
| the provider counts far fewer tokens than were sent | a note says so: some local servers cut silently       |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import anyio

from bot import wording
from bot.agent.prompt.compaction import Compaction, strip_thinking, too_large
from bot.agent.prompt.oversized_message import alone, fits, too_long
from bot.agent.prompt.repair import repair
from bot.agent.prompt.token_estimate import request_size, size_of
from bot.ports.errors import ContextOverflow, EmptyAnswer, ThinkingRejected, model_retry_fields
from bot.ports.model import Completion, Request, TurnModel
from threads.model import Message, OnEvent, Text, TextReset, Turn

log = logging.getLogger(__name__)

EMPTY = Message("user", (Text("Your answer was empty. Please answer, or go on with what you were doing."),))

CUT_BY = 2000
"""Tokens of tolerance: a count below half of the estimate by more than this means that the prompt was cut."""


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """``request`` makes a request of its messages; ``threshold`` is the share of the window that may be used."""

    turn: Turn
    model: TurnModel
    compaction: Compaction
    request: Callable[..., Request]
    threshold: float
    tell: OnEvent

    async def ask(self, tool_choice: Literal["auto", "none"] = "auto") -> Completion:
        """Return the model's answer to the conversation. Raises `threads.errors.BotError`s."""
        request, window = self._request(tool_choice), self.model.info.context_window
        if too_large(request_size(request), window, self.threshold, request.max_tokens):
            await self._make_room(window)
            request = self._request(tool_choice)
        began = anyio.current_time()
        try:
            return await self._complete(request)
        except (ContextOverflow, ThinkingRejected, EmptyAnswer) as error:
            return await self._ask_again(tool_choice, error, anyio.current_time() - began)

    async def _ask_again(
        self,
        tool_choice: Literal["auto", "none"],
        error: ContextOverflow | ThinkingRejected | EmptyAnswer,
        seconds: float,
    ) -> Completion:
        """Change what the model could not answer, and ask once more. It failed after so many *seconds*."""
        fields = model_retry_fields(error, 2, 0, self.model.name, seconds)
        match error:
            case ContextOverflow():
                return await self._shorter(tool_choice, error, fields)
            case ThinkingRejected():
                log.warning("model.reasoning_refused: left out: %s", error, extra=fields)
                self.turn.replace_messages(strip_thinking(self.turn.messages))
            case EmptyAnswer():
                log.warning("model.retry: an empty answer", extra=fields)
                await self.tell(TextReset())
                self.turn.add(EMPTY)
            case _:
                assert_never(error)
        return await self._complete(self._request(tool_choice))

    async def compact(self, *, needed: bool = True) -> bool:
        """Make the conversation shorter, and note it above the answer; returns False if that is not possible."""
        window = self.model.info.context_window
        request = self._request("auto")
        if note := await self.compaction.run(self.turn, request, self.model, window=window, needed=needed):
            self.turn.note(note)
        return bool(note)

    async def _make_room(self, window: int | None) -> None:
        """Compact a conversation that is close to the window. Raises `ContextOverflow` if it does not fit even so."""
        if fits(alone(self._request("auto"), self.turn.incoming), window):
            await self.compact(needed=not fits(self._request("auto"), window))
            if not fits(self._request("auto"), window):
                await self._compact_more()
        if not fits(self._request("auto"), window):
            raise self._too_long()

    async def _shorter(
        self, tool_choice: Literal["auto", "none"], error: ContextOverflow, fields: Mapping[str, object]
    ) -> Completion:
        """Send a shorter conversation after the provider said that it is too long."""
        for compact in (self.compact, self._compact_more):
            if await compact():
                log.warning("model.retry: shorter: %s", error, extra=fields)
                try:
                    return await self._complete(self._request(tool_choice))
                except ContextOverflow as again:
                    error = again
        raise self._too_long() from error

    async def _compact_more(self) -> bool:
        """Compact all but this turn, which is the least that has to stay."""
        self.compaction.keep_recent_tokens = 0
        return await self.compact()

    def _too_long(self) -> ContextOverflow:
        """Return the error. A message that nothing was done for yet is removed, so that the thread can go on."""
        turn, window = self.turn, self.model.info.context_window
        error = too_long(self._request("auto"), turn.incoming, window, compacts=self.compaction.enabled)
        if turn.messages[-1].role == "user" and turn.messages[-1].source == turn.incoming.id:
            turn.replace_messages(turn.messages[:-1])
        return error

    def _request(self, tool_choice: Literal["auto", "none"]) -> Request:
        if (repaired := repair(self.turn.messages)) is not self.turn.messages:
            self.turn.replace_messages(repaired)
        return self.request(messages=tuple(self.turn.messages), tool_choice=tool_choice)

    async def _complete(self, request: Request) -> Completion:
        completion = await self.model.complete(request, self.tell)
        if completion.stop not in ("tool_calls", "pause") and not completion.message.text.strip():
            raise EmptyAnswer(f"an empty answer, stop reason {completion.stop}")
        usage = completion.usage
        if usage.prompt and (size := size_of("", request.messages, ())) > 2 * usage.prompt + CUT_BY:
            self.turn.note(wording.cut_by_the_model(usage.prompt, size))
        if not usage.prompt:
            return completion
        message = replace(completion.message, tokens=usage.prompt + usage.output)
        return Completion(message, usage, completion.stop)
