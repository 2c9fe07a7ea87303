"""The wrappers for budgets: `MeteredModel` around every call, `BudgetedModel` around a turn's model.

What a call is charged for:

| it ended with                                    | charge                                                |
| an answer, or a failure that the provider counted | what the provider counted                            |
| a failure before the provider accepted it        | nothing                                               |
| an interruption, by the provider or by us        | the prompt, and an upper bound of the output by then  |
| the end of the process                           | the prompt, and `TOKENS_PER_SECOND` to the next start |

A prompt that was not counted is charged at its upper bound and the highest price. `stream` computes the upper bound
of the output, hidden thinking included. An interrupted call is never charged more than its reservation, unless the
provider itself has counted more.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bot.budget.accounts import Account, ReservedCall
from bot.budget.budgets import MOST_GRANTED_USD, TOKENS_PER_SECOND, Key, OverLimit, Pace, parse_grant
from bot.budget.money import MICRO, micros, usd
from bot.llm.catalog import Catalog, Rate, most, price_fix
from bot.ports.errors import PriceUnknown, ProviderError
from bot.ports.model import (
    Completion,
    KnownModel,
    ModelInfo,
    ModelWrapper,
    RecordDecision,
    Request,
    Usage,
    record_nothing,
)
from threads.errors import error_fields
from threads.model import Answer, OnEvent, Option, Question, Turn, UsageCounted
from threads.wording import code_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MeteredModel(ModelWrapper):
    """A `Model` that reserves each call before it goes out and commits it when it ends, also after a failure.

    ``most_tokens`` is an upper bound of a request's prompt, in tokens: a hard limit is as hard as this bound.
    Reasoning is paid for like the answer. Providers count it as part of ``max_tokens``; ``reasoning_tokens`` is the
    most that this one counts beyond.
    """

    account: Account
    catalog: Catalog
    most_tokens: Callable[[Request], int]
    reasoning_tokens: int = 0

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        if (rate := self.catalog.rate(self.name)) is None and self.account.policy.binding:
            raise PriceUnknown(f"the price of {self.name} is not known. {price_fix(self.name)}")
        prompt = self.most_tokens(request)
        most_output = request.max_tokens + self.reasoning_tokens
        dearest = micros(most(rate, prompt, most_output)) if rate else 0
        at_once = micros(most(rate, prompt, self.reasoning_tokens)) if rate and dearest else 0
        # Listed prices of an answer do not depend on its length.
        a_second = (dearest - at_once) * TOKENS_PER_SECOND / max(1, request.max_tokens)
        opened = await self.account.reserve(self.name, dearest, Pace(at_once, math.ceil(a_second)))
        reported: Usage | None = None

        def meter(usage: Usage) -> None:
            nonlocal reported
            reported = usage
            request.meter(usage)

        try:
            completion = await self.model.complete(replace(request, meter=meter), on_event)
        except BaseException as error:
            usage = reported or (error.usage if isinstance(error, ProviderError) else None)
            longest = usage.output + usage.hidden + self.reasoning_tokens if usage else 0
            code = code_of(error) if isinstance(error, Exception) else "turn_stopped"
            self._commit(opened, rate, usage, prompt if usage else 0, longest, code)
            raise
        longest = completion.usage.output or most_output  # some servers count nothing
        self._commit(opened, rate, completion.usage, prompt, longest, "ok")
        return completion

    def _commit(
        self,
        opened: ReservedCall,
        rate: Rate | None,
        usage: Usage | None,
        prompt: int,
        longest: int,
        code: str,
    ) -> None:
        """Charge a call; *prompt* and *longest* are the tokens to charge if they were not counted."""
        usage = usage or Usage()
        if usage.prompt:
            cost = rate and rate(usage if usage.output == longest else replace(usage, output=longest))
        else:
            cost = rate and most(rate, prompt, longest)
            usage = replace(usage, input=prompt)
        self.account.commit(opened, usage, None if cost is None else micros(cost), code)


@dataclass(frozen=True, slots=True)
class BudgetedModel(ModelWrapper):
    """The model of one turn. It asks a person when a call would pass a hard limit. The outermost wrapper.

    ``may_grant`` says who may decide. ``on_grant`` is called with each raised limit, the amount and the person, and
    ``record_decision`` with each refusal. Warnings of a limit are noted once, above the answer.
    """

    model: KnownModel
    account: Account
    turn: Turn
    may_grant: Callable[[str], bool]
    on_grant: Callable[[Key, int, str], None] = lambda *_: None
    record_decision: RecordDecision = record_nothing

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    @property
    def usage(self) -> Usage:
        return self.account.usage

    @property
    def spent_usd(self) -> float | None:
        return self.account.spent_usd

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """Answer, and ask for more whenever a limit is reached; raises `BudgetExceeded` if nobody grants it."""
        while True:
            try:
                completion = await self.model.complete(request, on_event)
            except OverLimit as error:
                await self._more(error)
            else:
                await on_event(self._counted())
                return completion
            finally:
                for warning in await self.account.warnings():
                    self.turn.note(warning)

    def _counted(self) -> UsageCounted:
        usage = self.usage
        cached = usage.cache_read / usage.prompt if usage.prompt else 0.0
        return UsageCounted(self.model.name, usage.prompt + usage.output, cached, self.spent_usd)

    async def _more(self, error: OverLimit) -> None:
        """Ask a person to raise the limits; raise *error* if nobody does."""
        missing = max(shortage.missing for shortage in error.shortages)
        offer = min(math.ceil(missing / MICRO), MOST_GRANTED_USD) * MICRO
        spent = "; ".join(self.account.spent(shortage.key) for shortage in error.shortages)
        most = usd(micros(error.needed_usd))
        text = (
            f"The next step may cost up to {most}, and that is more than I may spend: {spent}. "
            "This is the most it can cost, set aside before it; what is not used is given back."
        )
        fields = {**error_fields(error), "scope": ", ".join(error.scopes), "needed_usd": error.needed_usd}
        log.info("budget.paused: %s", error, extra=fields)
        question = _question(text, offer, self.may_grant)
        answer = await self.turn.ask(replace(question, keep=partial(self._refused, error)))
        if answer is None or not answer.approved:
            raise error
        amount = (parse_grant(answer.words) if answer.words.strip() else None) or offer
        for shortage in error.shortages:
            await self.account.grant(shortage.key, amount, answer.by)
            self.on_grant(shortage.key, amount, answer.by)

    async def _refused(self, error: OverLimit, answer: Answer) -> None:
        if not answer.approved:
            scopes = ", ".join(error.scopes)
            await self.record_decision(
                {"about": f"up to {usd(micros(error.needed_usd))}", "scopes": scopes}, answer
            )


def _question(text: str, offer: int, may_grant: Callable[[str], bool]) -> Question:
    more = Option(f"Continue with {usd(offer)} more", approve=True, words=usd(offer)[1:])
    return Question(
        text,
        (more, Option("Cancel", approve=False)),
        may_grant,
        about="a decision on spending",
        fault=_amount_fault,
    )


def _amount_fault(words: str) -> str:
    if not words.strip() or parse_grant(words) is not None:
        return ""
    return f"I need an amount in dollars above 0 and up to {MOST_GRANTED_USD}, such as `/approve 1.50`."
