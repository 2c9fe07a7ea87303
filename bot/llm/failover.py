"""Failover within one turn: the next candidate when this one cannot answer, never silently.

| what happened                                      | then                                              |
|----------------------------------------------------|---------------------------------------------------|
| a candidate lacks what the request needs           | passed over, logged                               |
| its circuit is open, or its gate is stopped        | passed over, if another one can be asked          |
| rate_limited, timeout, unavailable, connection     | the next one; the answer says who gave it and why |
| auth, payment, model_not_found                     | the same                                          |
| bad_request, content_policy, context_overflow, ... | raised: another model is no remedy                |
| no candidate is left                               | `AllProvidersFailed`, with what each one said     |
| all are shut                                       | one that may come back by itself is waited for    |

With ``acknowledge`` "ask" a person decides before another model is used. A switch lasts for the turn: the next one
starts at the top again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bot.errors import AllProvidersFailed, CapabilityMissing, ProviderError
from bot.llm.model import Completion, Model, ModelInfo, Request
from threads import wording
from threads.errors import Code
from threads.model import Image, OnEvent, Option, Question, TextReset, Turn

log = logging.getLogger(__name__)

NEXT: frozenset[Code] = frozenset(
    {"rate_limited", "timeout", "unavailable", "connection", "auth", "payment", "model_not_found"}
)
"""Failures that another model may be spared."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer. ``unavailable`` tells why it cannot be asked now, or gives None."""

    info: ModelInfo
    model: Model
    unavailable: Callable[[], ProviderError | None]


class Failover:
    """A `bot.llm.model.Model` for one turn, made of candidates in the order in which they are asked."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        turn: Turn,
        *,
        acknowledge: Literal["notify", "ask"],
        may_answer: Callable[[str], bool],
        on_all_failed: Callable[[AllProvidersFailed], None],
        size: Callable[[Request], int],
    ) -> None:
        self._left = list(candidates)
        self._top = candidates[0].info.name
        self._size = size
        self._turn, self._acknowledge, self._may_answer = turn, acknowledge, may_answer
        self._on_all_failed = on_all_failed
        self._why = ""

    @property
    def info(self) -> ModelInfo:
        """The candidate that is asked next."""
        return self._left[0].info

    @property
    def name(self) -> str:
        return self.info.name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.llm.model.Model.complete`; raises `AllProvidersFailed` or `CapabilityMissing` too."""
        self._left = self._capable(request)
        chain: list[tuple[str, ProviderError]] = []
        await self._pass_over(chain)
        while True:
            candidate, *others = self._left
            last_resort = all(other.unavailable() for other in others)
            try:
                completion = await candidate.model.complete(
                    replace(request, last_resort=last_resort), on_event
                )
            except ProviderError as error:
                if error.code not in NEXT:
                    raise
                chain.append((candidate.info.name, error))
                await self._switch(chain, on_event, given_up=last_resort)
            else:
                if self._why and candidate.info.name != self._top:
                    self._turn.note(wording.switched(candidate.info.name, self._why))
                return completion

    def _capable(self, request: Request) -> list[Candidate]:
        """Return those that can do what the request needs. Raises `CapabilityMissing` of the first when none can."""
        able, faults = [], []
        for candidate in self._left:
            fault = missing(candidate.info, request) or self._too_small(candidate.info, request)
            if fault is None:
                able.append(candidate)
            else:
                log.warning("model passed over: %s", fault, extra={"code": fault.code})
                faults.append(fault)
        if not able:
            raise faults[0]
        return able

    def _too_small(self, info: ModelInfo, request: Request) -> CapabilityMissing | None:
        """Judge a fallback's window; the chosen model may speak for itself."""
        if info.context_window is None or info.name == self._top:
            return None
        size = self._size(request)
        if size <= info.context_window:
            return None
        words = f"{info.name} holds {info.context_window} tokens, and this conversation has about {size}"
        return CapabilityMissing("context_window_too_small", words, model=info.name)

    async def _pass_over(self, chain: list[tuple[str, ProviderError]]) -> None:
        """Leave out candidates that are shut, as long as one is open; if all are, keep the one worth waiting for."""
        shut = [(candidate, candidate.unavailable()) for candidate in self._left]
        first_open = next((at for at, (_, error) in enumerate(shut) if error is None), None)
        if first_open is None:
            passing = [candidate for candidate, error in shut if error and error.code in wording.PASSING]
            self._left = [(passing or self._left)[-1]]
            first_open = 0
            chain += [(c.info.name, error) for c, error in shut if error and c is not self._left[0]]
        elif first_open:
            chain += [(c.info.name, error) for c, error in shut[:first_open] if error]
            await self._agree(self._left[first_open], chain)
            self._left = self._left[first_open:]
        if chain:
            self._why = wording.because(chain[-1][0], chain[-1][1].code)

    async def _switch(
        self, chain: list[tuple[str, ProviderError]], on_event: OnEvent, *, given_up: bool
    ) -> None:
        """Turn to the next candidate that is open; raises `AllProvidersFailed` when there is none.

        A candidate that was spared its retries because another one seemed open gets them when none is after all.
        """
        same, *others = self._left
        open_ones = [other for other in others if other.unavailable() is None]
        await on_event(TextReset())
        if not open_ones and not given_up and chain[-1][1].code in wording.PASSING:
            self._left = [same]
            return
        if not open_ones:
            raise self._all_failed(chain) from chain[-1][1]
        await self._agree(open_ones[0], chain)
        self._left = others[others.index(open_ones[0]) :]
        model, error = chain[-1]
        self._why = wording.because(model, error.code)
        log.warning("failover from %s to %s: %s", model, self.name, error, extra={"code": error.code})

    async def _agree(self, candidate: Candidate, chain: list[tuple[str, ProviderError]]) -> None:
        """Let a person decide about the next candidate, if the settings want it."""
        if self._acknowledge == "notify":
            return
        model, error = chain[-1]
        question = Question(
            f"{wording.because(model, error.code)}. Shall I use {candidate.info.name} for this message?",
            (Option(f"Use {candidate.info.name}", approve=True), Option("No, stop here", approve=False)),
            self._may_answer,
            about="your word on another model",
        )
        answer = await self._turn.ask(question)
        if answer is None or not answer.approved:
            raise self._all_failed(chain) from error

    def _all_failed(self, chain: list[tuple[str, ProviderError]]) -> AllProvidersFailed:
        failed = AllProvidersFailed(chain[-1][1], chain)
        self._on_all_failed(failed)
        return failed


def missing(info: ModelInfo, request: Request) -> CapabilityMissing | None:
    """Return what the model lacks for this request, or None."""
    if not info.streaming:
        return CapabilityMissing("missing_streaming", f"{info.name} cannot stream its answers")
    if request.tools and not info.tools:
        return CapabilityMissing("missing_tool_calling", f"{info.name} cannot call tools")
    newest = request.messages[-1].blocks if request.messages else ()
    if not info.vision and any(isinstance(block, Image) for block in newest):
        return CapabilityMissing("missing_vision", f"{info.name} cannot see pictures")
    return None
