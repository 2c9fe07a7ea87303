"""Failover within one turn: the next candidate when this one cannot answer, never silently.

| what happened                                      | then                                              |
|----------------------------------------------------|---------------------------------------------------|
| a candidate lacks a capability of the request      | skipped                                           |
| its price is unknown, under a hard budget          | the same                                          |
| its circuit is open, or its gate is stopped        | skipped, if another one can be asked              |
| rate_limited, timeout, unavailable, connection     | the next one; the answer names it and says why    |
| auth, payment, model_not_found                     | the same                                          |
| bad_request of a fallback                          | the same: only the fallback refused it            |
| bad_request, content_policy, context_overflow, ... | raised: another model would not help              |
| no candidate is left                               | `AllProvidersFailed`, with the error of each      |
| all are unavailable                                | waits for the first that recovers by itself       |
| a best-effort call fails                           | raised; no failover, and no note                  |

An answer of another model than the chosen one says so, and why. With ``acknowledge`` "ask" a person decides first;
where nobody can be asked, the answer is no, with a word. A switch is logged when the other model is called. It lasts
for the turn; the next turn starts with the chosen model again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from bot import wording
from bot.ports.errors import AllProvidersFailed, CapabilityMissing, ModelDeclined, PriceUnknown, ProviderError
from bot.ports.model import Completion, Model, ModelInfo, RecordDecision, Request, record_nothing
from threads.errors import BotError, error_fields
from threads.model import Image, OnEvent, Option, Question, TextReset, Turn

log = logging.getLogger(__name__)

NEXT: frozenset[str] = frozenset(
    {
        *("rate_limited", "timeout", "unavailable", "connection"),
        *("auth", "payment", "model_not_found", "missing_tool_calling", "missing_vision"),
    }
)
"""Failures after which another model is asked."""

Chain = list[tuple[str, ProviderError]]
"""The models that failed or were skipped, in order, with their errors."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer. ``known`` returns its capabilities, of which more is learned while it is asked.

    ``unavailable`` returns why it cannot be asked now, or None.
    """

    name: str
    known: Callable[[], ModelInfo]
    model: Model
    unavailable: Callable[[], ProviderError | None]

    @property
    def info(self) -> ModelInfo:
        return self.known()


class Failover:
    """A `bot.ports.model.KnownModel` for one turn, with candidates in the order in which they are asked."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        turn: Turn,
        *,
        acknowledge: Literal["notify", "ask"],
        may_answer: Callable[[str], bool],
        size: Callable[[Request], int],
        record_decision: RecordDecision = record_nothing,
    ) -> None:
        self._left = list(candidates)
        self._top = candidates[0].name
        self._turn, self._acknowledge, self._may_answer = turn, acknowledge, may_answer
        self._size, self._record_decision = size, record_decision
        self._why: dict[str, tuple[str, BotError]] = {}
        """Why a model does not answer: a clause for people, and the error."""
        self._agreed = {self._top}
        self._switches: list[Callable[[], None]] = []
        """What to log once another model than the chosen one is called."""

    @property
    def info(self) -> ModelInfo:
        """The capabilities of the next candidate."""
        return self._left[0].info

    @property
    def name(self) -> str:
        return self._left[0].name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `AllProvidersFailed` or `CapabilityMissing` too."""
        self._left = self._capable(request)
        chain = self._skip_unavailable()
        while True:
            candidate, *others = self._left
            await self._agree(chain)
            self._log_switches()
            last_resort = not request.best_effort and all(other.unavailable() for other in others)
            if request.last_resort != last_resort:
                request = replace(request, last_resort=last_resort)
            try:
                completion = await candidate.model.complete(request, on_event)
            except ProviderError as error:
                goes_on = error.code in NEXT or (chain and error.code == "bad_request")
                if request.best_effort or not goes_on:
                    raise
                chain.append((candidate.name, error))
                await on_event(TextReset())
                self._switch(chain, given_up=last_resort)
            except PriceUnknown as error:
                self._drop(candidate, f"what {candidate.name} costs is not known", error)
            else:
                if candidate.name != self._top:
                    self._turn.note(wording.switched(candidate.name, self._because))
                return completion

    def _capable(self, request: Request) -> list[Candidate]:
        """Return the capable candidates. Raises `CapabilityMissing` of the first one if there are none."""
        able, faults = [], []
        for candidate in self._left:
            fault = missing(candidate.info, request) or self._too_small(candidate.info, request)
            if fault is None:
                able.append(candidate)
            else:
                self._switches.append(partial(_passed_over, candidate.name, fault))
                faults.append(fault)
                if not able:
                    self._why[candidate.name] = (str(fault), fault)
        if not able:
            raise faults[0]
        return able

    def _too_small(self, info: ModelInfo, request: Request) -> CapabilityMissing | None:
        """Return an error if a fallback's window is too small; the chosen model reports that itself."""
        if info.context_window is None or info.name == self._top:
            return None
        if (size := self._size(request)) <= info.context_window:
            return None
        words = f"{info.name} holds {info.context_window} tokens, and this conversation has about {size}"
        return CapabilityMissing("context_window_too_small", words, model=info.name)

    def _skip_unavailable(self) -> Chain:
        """Drop unavailable candidates before the first available one; if there is none, keep one to wait for."""
        states = [(candidate, candidate.unavailable()) for candidate in self._left]
        first_open = next((at for at, (_, error) in enumerate(states) if error is None), None)
        if first_open is None:
            passing = [pair for pair in states if pair[1] and pair[1].code in wording.PASSING]
            first, _ = min(passing or states, key=_wait_of)
            passed, self._left = [pair for pair in states if pair[0] is not first], [first]
        else:
            passed, self._left = states[:first_open], self._left[first_open:]
        chain = [(candidate.name, error) for candidate, error in passed if error is not None]
        for model, error in chain:
            self._switches.append(partial(_passed_over, model, error))
            self._why[model] = (wording.because(model, error.code), error)
        return chain

    def _switch(self, chain: Chain, *, given_up: bool) -> None:
        """Switch to the next available candidate; raises `AllProvidersFailed` if there is none.

        A candidate that did not retry because another one seemed available retries if none is.
        """
        same, *others = self._left
        model, error = chain[-1]
        place = next((at for at, other in enumerate(others) if other.unavailable() is None), None)
        if place is None and not given_up and error.code in wording.PASSING:
            self._left = [same]
            return
        if place is None:
            # A fallback that refused the request does not explain why the chosen model could not answer.
            last = next((error for _, error in reversed(chain) if error.code in NEXT), error)
            raise AllProvidersFailed(last, chain) from error
        self._why[model] = (wording.because(model, error.code), error)
        self._left = others[place:]
        self._switches.append(partial(_failed_over, model, self.name, error))

    def _drop(self, candidate: Candidate, why: str, error: BotError) -> None:
        """Drop a candidate; raises *error* if it is the last one."""
        if len(self._left) == 1:
            raise error
        self._switches.append(partial(_passed_over, candidate.name, error))
        self._why[candidate.name] = (why, error)
        self._left = self._left[1:]

    async def _agree(self, chain: Chain) -> None:
        """Ask a person, if the settings say so, about a model that was not chosen; once a turn."""
        if self._acknowledge == "notify" or self.name in self._agreed:
            return
        question = Question(
            f"{self._because}. Shall I use {self.name} for this message?",
            (Option(f"Use {self.name}", approve=True), Option("No, stop here", approve=False)),
            self._may_answer,
            about="your word on another model",
            keep=partial(self._record_decision, {"about": f"{self.name} in place of {self._top}"}),
        )
        answer = await self._turn.ask(question)
        if answer is None or not answer.approved:
            cause = [*self._why.values()][-1][1]
            declined = ModelDeclined(chain[-1][1], chain) if chain else cause
            if answer is None:
                declined.friendly = wording.nobody_to_agree(self._because, self.name)
            raise declined from cause
        self._agreed.add(self.name)

    def _log_switches(self) -> None:
        """Log how another model came up, now that it is called."""
        if self.name != self._top:
            for tell in self._switches:
                tell()
            self._switches.clear()

    @property
    def _because(self) -> str:
        return " and ".join(clause for clause, _ in self._why.values())


def _passed_over(model: str, error: BotError) -> None:
    log.warning("model.passed_over: %s: %s", model, error, extra=error_fields(error))


def _failed_over(model: str, to: str, error: BotError) -> None:
    fields = {**error_fields(error), "model": to, "from_model": model}
    log.warning("model.failover: from %s to %s: %s", model, to, error, extra=fields)


def _wait_of(pair: tuple[Candidate, ProviderError | None]) -> float:
    """Return the seconds until an unavailable candidate can be asked."""
    return (pair[1] and pair[1].retry_after) or 0.0


def missing(info: ModelInfo, request: Request) -> CapabilityMissing | None:
    """Return the capability that the model lacks for this request, or None."""
    if not info.streaming:
        return CapabilityMissing("missing_streaming", f"{info.name} cannot stream its answers")
    if request.tools and not info.tools:
        return CapabilityMissing("missing_tool_calling", f"{info.name} cannot call tools")
    newest = request.messages[-1].blocks if request.messages else ()
    if not info.vision and any(isinstance(block, Image) for block in newest):
        return CapabilityMissing("missing_vision", f"{info.name} cannot see pictures")
    return None
