"""The real model layer under a simulated life: two or three paid models behind gates, retries, failover and budgets.

Only the providers are made up. What they bill is written down the moment a call reaches them, at its dearest, and
put right only when the bot has been told how the call ended: a process that dies has to pay for all that was out.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from bot.agent.prompt.compaction import INSTRUCTION
from bot.budget.accounts import Accounts
from bot.budget.ledger import Ledger
from bot.config.extensions import settings_model
from bot.config.settings import Settings
from bot.guards.redaction import Masker
from bot.llm.catalog import Catalog
from bot.llm.policies.structured_output import StructuredOutputModel
from bot.observe.turn_events import Observing
from bot.ports import errors
from bot.ports.errors import ContextOverflow, ModelTimeout, ProviderError
from bot.ports.model import Completion, Model, Request, ToolSpec, TurnModel, Usage
from bot.store.model_choice import ModelChoices
from bot.wiring.model_chain import ModelChain, Terms
from threads.model import Incoming, OnEvent, Text, ToolCall, ToolResult, Turn

from .fate import Died, Fate
from .model import SimModel, open_marks
from .plan import Plan
from .plays import PlayWatch
from .record import Bill, Record

ADMIN, STRANGER = "U9", "U8"
PROMPT_MICROS, ANSWER_MICROS = 10, 50
"""What a token costs, in micro-dollars: the same at every provider, or the judge would need a price list."""
PASSING = (
    errors.RateLimited,
    errors.ModelTimeout,
    errors.ModelUnavailable,
    errors.UnknownFailure,
    errors.ModelConnection,
)
LASTING = (
    errors.Unauthorized,
    errors.PaymentRequired,
    errors.ModelNotFound,
    errors.BadRequest,
    errors.ThinkingRejected,
    errors.ContentPolicy,
    errors.ContextOverflow,
    errors.OutputInvalid,
)


@dataclass(frozen=True, slots=True)
class Stack:
    """What a seed decides about models, money and people.

    ``dear`` providers count a token for every byte, and think as long as they may. ``deadly`` is how often the process
    dies while a model answers: what it then has not written down is what it may spend twice.
    """

    settings: Settings
    windows: dict[str, int | None]
    dear: bool
    new_file_above: int
    silent: float
    deadly: float


def draw_stack(rng: random.Random, record: Record, *, plays: bool = False) -> Stack:
    """Decide, and enter the limits into *record*. Where playbooks are played, most have money for several stages."""
    dear = rng.random() < 0.85
    models = ["near/one", "far/two", *(["near/lite"] if rng.random() < 0.3 else [])]
    sizes = (None, 2_600, 4_000) if dear else (None, 200, 500)
    windows = {name: rng.choice(sizes) for name in models}
    hard, asker = rng.random() < 0.75, rng.random() < 0.4
    more = rng.choice((1, 10, 10)) if plays else 1
    limits = {
        scope: rng.choice((None, None, small * more, small * more, large * more))
        for scope, small, large in (
            ("turn", 0.03, 0.1),
            ("thread", 0.04, 0.1),
            ("user_day", 0.05, 0.2),
            ("day", 0.05, 0.2),
            ("month", 0.06, 0.3),
        )
    }
    if hard:
        record.limits = {scope: round(usd * 1_000_000) for scope, usd in limits.items() if usd is not None}
    record.admins, record.asker_may_grant = {ADMIN}, asker
    providers = {
        name: {
            "max_parallel": rng.choice((1, 2, 4, 256)),
            "requests_per_minute": rng.choice((None, None, 60)),
            "tokens_per_minute": rng.choice((None, None, 60_000)),
        }
        for name in ("near", "far")
    }
    if "near/lite" in models:
        providers["near"]["model_map"] = {"one": ("lite",)}
    given = {
        "model": "near/one",
        "fallback_models": ("far/two",),
        "max_tokens": 200,
        "providers": providers,
        "prices": {name: {"input": PROMPT_MICROS, "output": ANSWER_MICROS} for name in models},
        "models": {name: {"context_window": size} for name, size in windows.items()},
        "breaker": {"failure_threshold": rng.choice((1, 1, 2)), "max_wait_s": rng.choice((5.0, 120.0))},
        "failover": {"acknowledge": rng.choice(("notify", "notify", "notify", "ask"))},
        "budget": {
            "mode": "hard" if hard else "soft",
            "limit_usd": limits,
            "asker_may_grant": asker,
            "footer": rng.random() < 0.2,
        },
        "compaction": {"keep_recent_tokens": 40},
        "access": {"admins": (ADMIN,)},
    }
    return Stack(
        settings_model().model_validate(given, strict=False),
        windows,
        dear,
        rng.choice((3_000, 2_000_000)),
        rng.choice((0.1, 0.4)),
        rng.choice((0.0, 0.0, 0.1, 0.3)),
    )


class SimModelChain(ModelChain):
    """The real wiring, with simulated providers in the place of adapters."""

    def __init__(
        self,
        stack: Stack,
        plan: Plan,
        fate: Fate,
        record: Record,
        *,
        ledger: Ledger,
        chosen: ModelChoices,
        tools: tuple[ToolSpec, ...],
        now: Callable[[], datetime],
        watch: PlayWatch | None,
    ) -> None:
        self._stack, self._world, self._record, self._ledger = stack, (plan, fate, record), record, ledger
        self._watch = watch
        self._paid: list[PaidModel] = []
        self._calm = [False]  # shared with chains of other terms
        self._out: Counter[str] = Counter()
        self._turns: dict[str, Incoming] = {}
        settings = stack.settings
        super().__init__(
            Terms(
                settings,
                Catalog(settings.models, settings.prices),
                Accounts.of(ledger, settings.budget),
                tools,
            ),
            {},
            http=None,
            chosen=chosen,
            random=fate.rng.random,
            now=now,
            observing=Observing(),
            mask=Masker(),
        )

    @property
    def calm(self) -> bool:
        return self._calm[0]

    @calm.setter
    def calm(self, calm: bool) -> None:
        self._calm[0] = calm
        for model in self._paid:
            model.calm = calm

    async def for_turn(self, turn: Turn) -> TurnModel:
        incoming = turn.incoming
        self._turns[str(incoming.thread)] = incoming
        self._record.tops.setdefault(incoming.key, set()).add(self._of(incoming.thread))
        return await super().for_turn(turn)

    def left_over(self) -> Iterator[str]:
        """Return what is still held when nothing is running any more."""
        for provider, gate in self._gates.items():
            for lane in gate.queue.lanes:
                if lane.out or lane.queue:
                    yield f"gate of {lane.model}: {lane.out} out, {len(lane.queue)} waiting when all is done"
                if lane.breaker.probing or lane.tried:
                    yield f"gate {provider}: a probe of {lane.model} that nobody makes"
        if self._ledger.budgets.open:
            yield f"ledger: {len(self._ledger.budgets.open)} reservations when all is done"

    def _adapter(self, name: str, place: int = 0) -> Model:
        if (name, place) not in self._adapters:
            parallel = self._provider(name).max_parallel
            model = PaidModel(name, self._stack, *self._world, self._turns, self._out, parallel, self._watch)
            model.calm = self.calm
            self._paid.append(model)
            self._adapters[name, place] = StructuredOutputModel(model)
        return self._adapters[name, place]


class PaidModel(SimModel):
    """A model that counts tokens and bills them, has a window, and knows every kind of failure."""

    passing, lasting = PASSING, LASTING
    begins = 0.5

    def __init__(
        self,
        name: str,
        stack: Stack,
        plan: Plan,
        fate: Fate,
        record: Record,
        turns: dict[str, Incoming],
        out: Counter[str],
        parallel: int,
        watch: PlayWatch | None,
    ) -> None:
        super().__init__(plan, fate, record)
        self.name, self._window, self._dear = name, stack.windows[name], stack.dear
        self._deadly = stack.deadly
        self._turns, self._out, self._parallel = turns, out, parallel
        self._provider, self._watch = name.partition("/")[0], watch

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        if self._fate.dead:
            raise Died
        self._out[self._provider] += 1
        if self._out[self._provider] > self._parallel:
            self._record.violations.append(f"{self._provider}: more than {self._parallel} calls at once")
        prompt = count(request, dear=self._dear)
        bill = self._bill(request, Usage(prompt, request.max_tokens))
        try:
            if self._window is not None and prompt > self._window:
                raise ContextOverflow("secret payload")  # noqa: TRY301 - billed as any other failure
            if not self.calm and self._rng.random() < self._deadly:
                self._fate.die()
            completion = await super().complete(request, on_event)
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            used = error.usage if isinstance(error, ProviderError) else None
            cut = not isinstance(error, ProviderError) or (error.retryable and used)
            if used is None and (cut or isinstance(error, ModelTimeout)):
                used = Usage(prompt)
            if used is not None:
                hidden = self._rng.randrange(request.max_tokens - used.output) if cut else 0
                used = replace(used, hidden=hidden)
                request.meter(used)
            bill.micros = cost(used or Usage())
            raise
        finally:
            self._out[self._provider] -= 1
        bill.micros = cost(completion.usage)
        if request.messages[-1] == INSTRUCTION:
            self._record.summaries += 1
        return completion

    def _error(
        self, kinds: tuple[type[ProviderError], ...], request: Request, *, began: bool
    ) -> ProviderError:
        retry_after = self._rng.choice((None, None, 0.5, 10.0, 60.0, 300.0))
        error = self._rng.choice(kinds)("secret payload", retry_after=retry_after)
        if began or isinstance(error, errors.ContentPolicy | errors.OutputInvalid):
            error.usage = Usage(count(request, dear=self._dear), self._rng.randrange(1, request.max_tokens))
        return error

    def _usage(self, request: Request, answer: str) -> Usage:
        length = len(answer.encode("utf-8", "surrogatepass")) // 4 + 1
        thought = request.max_tokens if self._dear else length
        return Usage(count(request, dear=self._dear), min(thought, request.max_tokens))

    def _words(self, request: Request) -> str:
        marks = " ".join(open_marks(request))
        return (
            f"what is open: {marks}" if request.messages[-1] == INSTRUCTION else f"{self.name} says {marks}"
        )

    def _text(self, request: Request) -> str:
        if request.output_schema is not None and self._rng.random() < 0.8:
            return self._rng.choice(('{"level": "high"}', '{"level": "high"}', '{"level": "low"}'))
        return super()._text(request)

    def _bill(self, request: Request, most: Usage) -> Bill:
        incoming, now = self._turns[request.cache_key], self._fate.clock()
        visit = self._watch.before_call(request, incoming, now) if self._watch else ""
        bill = Bill(now, request.cache_key, incoming.author.id, incoming.key, cost(most), visit)
        self._record.bills.append(bill)
        return bill


def cost(usage: Usage) -> int:
    return PROMPT_MICROS * usage.prompt + ANSWER_MICROS * (usage.output + usage.hidden)


def count(request: Request, *, dear: bool) -> int:
    """Return how many tokens the provider makes of a prompt: a dear one as many as any could."""
    texts = [request.system]
    texts += [f"{t.name}{t.description}{json.dumps(t.parameters)}" for t in request.tools]
    for message in request.messages:
        for block in message.blocks:
            match block:
                case Text(text):
                    texts.append(text)
                case ToolCall():
                    texts.append(f"{block.id}{block.name}{json.dumps(block.arguments, ensure_ascii=False)}")
                case ToolResult():
                    texts.append(f"{block.call_id}{block.content}")
    lengths = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
    return 900 + sum(lengths) + 30 * len(lengths) if dear else sum(length // 4 + 3 for length in lengths)
