"""Connects everything that a model call passes through: which models may answer, and in which order.

``BudgetedModel(Failover([RetryingModel(GatedModel(MeteredModel(adapter))), ...]))``: the money of the turn, then its
candidates. Each candidate has its retries, its place in the provider's queue, and the price of every attempt. The
outermost and the innermost model are observed: they are a step and a model call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import partial

from bot.agent.prompt.token_estimate import most_tokens, request_size, size_of, uncached_size
from bot.agent.prompt.transcripts import ToText, Transcripts, no_transcripts
from bot.budget.accounts import Account, Accounts
from bot.budget.budgets import Key
from bot.config.settings import Provider, Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.adapters.openai_transcription import MAX_BYTES
from bot.llm.build import build_adapter, build_gate, build_transcription, is_local
from bot.llm.catalog import AudioRate, Catalog
from bot.llm.policies.audio_metering import MeteredTranscription
from bot.llm.policies.failover import Candidate, Failover, missing
from bot.llm.policies.gate import Gate, GatedModel
from bot.llm.policies.metering import BudgetedModel, MeteredModel
from bot.llm.policies.retry import RetryingModel
from bot.llm.policies.structured_output import StructuredOutputModel
from bot.observe.turn_events import Observing
from bot.ports import wording
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import CapabilityMissing
from bot.ports.model import Model, Request, ToolSpec, TurnModel, record_nothing
from bot.ports.status import CircuitStatus
from bot.store.model_choice import ModelChoices
from bot.wiring.instrumentation import ObservedModel, ObservedTurnModel
from threads.model import Answer, Message, ThreadId, Turn

OFFLINE = Provider(max_parallel=100_000)
"""The settings of a provider that has none, such as the offline one."""

MORE = "Whoever runs this bot connects another with `threadfast init`, or names more in `fallback_models`."

MOST_LISTED = 30
"""Models in a list for people."""


def candidates(settings: Settings, name: str) -> list[str]:
    """Return the model, its downgrades at the same provider, and the fallbacks, in the order of use."""
    provider, _, model = name.partition("/")
    downgrades = settings.providers.get(provider, OFFLINE).model_map.get(model, ())
    return list(
        dict.fromkeys([name, *(f"{provider}/{other}" for other in downgrades), *settings.fallback_models])
    )


def offered(settings: Settings, default: str) -> list[str]:
    """Return the models that a thread may choose: those in the settings, the default first."""
    return list(dict.fromkeys([*candidates(settings, default), *settings.models]))


class ModelChain:
    """The `Models` and `ModelCommands` of a process. ``default`` is ``provider/model``.

    Raises `ConfigInvalid` if the default, one of its downgrades or a fallback cannot be used.
    """

    def __init__(
        self,
        default: str,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        tools: tuple[ToolSpec, ...],
        http: SharedHttp,
        catalog: Catalog,
        accounts: Accounts,
        chosen: ModelChoices,
        random: Callable[[], float],
        now: Callable[[], datetime],
        observing: Observing,
        sharers: Callable[[], int] = lambda: 1,
        on_grant: Callable[[Turn, Key, int, str], None] = lambda *_: None,
        decided: Callable[[Turn, Mapping[str, str], Answer], Awaitable[None]] = lambda _, *of: record_nothing(
            *of
        ),
    ) -> None:
        self.name = default
        self._settings, self._environ, self._http, self._now = settings, environ, http, now
        self._tools, self._random, self._sharers = tools, random, sharers
        self._catalog, self._accounts, self._chosen = catalog, accounts, chosen
        self._observing, self._on_grant, self._decided = observing, on_grant, decided
        self._offered = offered(settings, default)
        self._gates: dict[str, Gate] = {}
        self._adapters: dict[str, Model] = {}
        for name in candidates(settings, default):
            self._adapter(name)
        if fault := self._lacks(default):
            raise ConfigInvalid(
                f"model: {fault}; choose another one, or correct models.{default} if that is wrong"
            )

    async def for_turn(self, turn: Turn) -> TurnModel:
        """Return the thread's model with all its policies, for one turn."""
        thread, asker = turn.incoming.thread, turn.incoming.author.id
        account = await self._accounts.open(str(thread), asker, turn.incoming.key)
        if (chosen := self._chosen.of(thread)) and chosen != self._of(thread):
            turn.note(wording.not_usable(chosen))
        names = candidates(self._settings, self._of(thread))
        budgeted = self._budgeted([self._candidate(name, account) for name in names], account, turn)
        return ObservedTurnModel(budgeted, self._observing)

    @property
    def to_text(self) -> ToText:
        """Return what transcribes recordings; it says that it cannot unless the settings have a model for it."""
        if not (given := self._settings.transcription):
            return no_transcripts
        adapter = build_transcription(
            given.model, self._settings, self._environ, http=self._http, now=self._now
        )
        rate = partial(self._catalog.audio_rate, given.model, given.usd_per_minute)
        return Transcripts(partial(self._transcription, adapter, rate), MAX_BYTES, given.show)

    async def _transcription(self, adapter: Model, rate: Callable[[], AudioRate | None], turn: Turn) -> Model:
        """Return the transcription model with all its policies, for one turn."""
        incoming = turn.incoming
        account = await self._accounts.open(str(incoming.thread), incoming.author.id, incoming.key)
        candidate = self._queued(MeteredTranscription(adapter, account, rate), account, lambda _: 0)
        return self._budgeted([candidate], account, turn)

    def _budgeted(self, answering: Sequence[Candidate], account: Account, turn: Turn) -> BudgetedModel:
        asker = turn.incoming.author.id
        failover = Failover(
            answering,
            turn,
            acknowledge=self._settings.failover.acknowledge,
            may_answer=lambda who: who == asker or self._is_admin(who),
            size=request_size,
            record_decision=partial(self._decided, turn),
        )
        return BudgetedModel(
            failover,
            account,
            turn,
            self._may_grant(asker),
            partial(self._on_grant, turn),
            partial(self._decided, turn),
        )

    def is_chosen(self, thread: ThreadId) -> bool:
        """Return whether the people of a thread chose its model."""
        return self._chosen.of(thread) == self._of(thread)

    def describe_model(self, thread: ThreadId) -> str:
        chosen = self._of(thread)
        state = self._gate(chosen.partition("/")[0]).describe(chosen)
        return f"Model: {chosen}{state and f' ({state})'}."

    def list_models(self, thread: ThreadId) -> str:
        chosen = self._of(thread)
        usable = [name for name in self._offered if name != chosen and not self._refused(name)]
        others = ", ".join(usable[:MOST_LISTED])
        how = (
            f"Others: {others}. /model NAME takes one of them here."
            if others
            else f"It is the only one. {MORE}"
        )
        return f"{self.describe_model(thread)} {how}"

    async def choose_model(self, thread: ThreadId, name: str, conversation: Sequence[Message]) -> str:
        if name.lower() == "default":
            self._must_fit(thread, self.name, conversation)
            await self._chosen.choose(thread, None)
            return f"This thread uses {self.name} again."
        if name not in self._offered:
            close = get_close_matches(name, self._offered, n=1, cutoff=0.4)
            hint = f" Did you mean {close[0]}?" if close else ""
            if len(self._offered) == 1:
                return f"I know no model of that name here: {self.name} is the only one. {MORE}"
            return f"I know no model of that name here.{hint} /model lists them."
        if not self._usable(name):
            return f"{name} cannot be used: its key is not set. Whoever runs this bot needs to set it."
        if fault := self._lacks(name) or self._refused(name):
            return f"I stay with {self._of(thread)}: {fault}."
        self._must_fit(thread, name, conversation)
        await self._chosen.choose(thread, name)
        return f"From the next message on, {name} answers in this thread."

    def circuits(self) -> list[CircuitStatus]:
        """Return the circuit breakers of all models that were called so far."""
        return [circuit for gate in self._gates.values() for circuit in gate.circuits()]

    async def describe_usage(self, thread: ThreadId, user: str) -> str:
        return await self._accounts.overview(str(thread), user)

    def _is_admin(self, who: str) -> bool:
        return who in self._settings.access.admins

    def _may_grant(self, asker: str) -> Callable[[str], bool]:
        allowed = self._settings.budget.asker_may_grant
        return lambda who: self._is_admin(who) or (allowed and who == asker)

    def _of(self, thread: ThreadId) -> str:
        """Return the thread's model: the one it chose, if that can be used."""
        chosen = self._chosen.of(thread)
        return chosen if chosen and chosen in self._offered and self._usable(chosen) else self.name

    def _usable(self, name: str) -> bool:
        try:
            self._adapter(name)
        except ConfigInvalid:
            return False
        return True

    def _lacks(self, name: str) -> str:
        fault = missing(self._catalog.info(name), Request("", (), self._tools))
        return str(fault) if fault else ""

    def _refused(self, name: str) -> str:
        """Return a clause on why a model's account is refused, or a blank."""
        error = self._gate(name.partition("/")[0]).refused_account()
        return wording.because(name, error.code) if error else ""

    def _must_fit(self, thread: ThreadId, name: str, conversation: Sequence[Message]) -> None:
        """Raise `CapabilityMissing` if the conversation is longer than the model can read."""
        window, current = self._catalog.info(name).context_window, self._of(thread)
        size = size_of("", conversation, self._tools) if conversation else 0
        if window is None or size <= window or name == current:
            return
        error = CapabilityMissing("context_window_too_small", f"{name} holds {window} tokens, not {size}")
        error.friendly = wording.too_long_for(name, size, window, current)
        raise error

    def _candidate(self, name: str, account: Account) -> Candidate:
        metered = MeteredModel(self._adapter(name), account, self._catalog, partial(most_tokens, model=name))
        return self._queued(metered, account, partial(uncached_size, model=name))

    def _queued(self, metered: Model, account: Account, size: Callable[[Request], int]) -> Candidate:
        """Return a model with its retries, and its place in its provider's queue."""
        name = metered.name
        provider = name.partition("/")[0]
        gate = self._gate(provider)
        attempt = ObservedModel(metered, account, self._observing)
        local = is_local(self._provider(provider))
        gated = GatedModel(attempt, gate, size)
        model = RetryingModel(gated, self._settings.llm_retry, self._random, gate, local)
        return Candidate(self._catalog.info(name), model, lambda: gate.unavailable(name))

    def _gate(self, provider: str) -> Gate:
        if provider not in self._gates:
            self._gates[provider] = build_gate(self._settings, self._provider(provider), self._sharers)
        return self._gates[provider]

    def _adapter(self, name: str) -> Model:
        if name not in self._adapters:
            vision = self._catalog.info(name).vision
            adapter = build_adapter(
                name, self._settings, self._environ, http=self._http, now=self._now, vision=vision
            )
            self._adapters[name] = StructuredOutputModel(adapter)
        return self._adapters[name]

    def _provider(self, name: str) -> Provider:
        return self._settings.providers.get(name, OFFLINE)
