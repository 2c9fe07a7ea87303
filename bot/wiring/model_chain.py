"""Connects everything that a model call passes through: which models may answer, and in which order.

``MaskedModel(BudgetedModel(Failover([WrittenCallsModel(AnswerRoomModel(LearningModel(KeyRotation([
RetryingModel(GatedModel(MeteredModel(adapter)))…]``: secrets in the answer, the money of the turn, then its
candidates with what each can be asked for, then the keys of each. Each key has its retries,
its place in its own queue, and the price of every attempt. The outermost and the innermost model are observed: they
are a step and a call.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import partial

from bot import wording
from bot.agent.prompt.token_estimate import most_tokens, request_size, size_of, uncached_size
from bot.budget.accounts import Account, Accounts, SpendingLedger
from bot.budget.budgets import Key
from bot.config.load import OFFLINE as OFFLINE_MODEL
from bot.config.scopes import Effective
from bot.config.settings import ModelFacts, Provider, Settings
from bot.guards.redaction import Masker
from bot.host.agents import PlaceModels
from bot.host.model_settings import CHOOSE, candidates, offered, reasoning_faults
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.build import build_adapter, build_gate, is_local, prepare_adapter
from bot.llm.catalog import Catalog
from bot.llm.policies.answer_room import AnswerRoomModel
from bot.llm.policies.failover import Candidate, Failover, missing
from bot.llm.policies.gate import Gate, GatedModel
from bot.llm.policies.key_rotation import KeyedModel, KeyOfThread, KeyRotation
from bot.llm.policies.learning import LearningModel
from bot.llm.policies.masking import MaskedModel
from bot.llm.policies.metering import BudgetedModel, MeteredModel
from bot.llm.policies.retry import RetryingModel
from bot.llm.policies.structured_output import StructuredOutputModel
from bot.llm.policies.written_calls import WrittenCallsModel
from bot.llm.reasoning import nearest
from bot.llm.server_traits import ServerTraits
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.effort import EFFORTS, Effort
from bot.ports.errors import CapabilityMissing, ProviderError
from bot.ports.model import Model, ModelInfo, Request, ToolSpec, TurnModel, record_nothing
from bot.ports.status import CircuitStatus
from bot.routing.access import is_admin
from bot.store.learned_servers import LearnedServers
from bot.store.model_choice import ModelChoices
from bot.wiring.instrumentation import ObservedModel, ObservedTurnModel
from threads.errors import error_fields
from threads.model import Answer, File, Message, ThreadId, Turn

log = logging.getLogger(__name__)

OFFLINE = Provider(max_parallel=100_000)
"""The settings of a provider that has none, such as the offline one."""

MORE = "Whoever runs this bot connects another with `threadfast init`, or names more in `fallback_models`."

HOW = "Say /model NAME, /model high, or both: /model NAME high."

MOST_LISTED = 30
"""Models in a list for people."""


def _no_tokens(_: Request) -> int:
    """Return 0: rules read no tokens."""
    return 0


def effort_of(settings: Settings, info: ModelInfo, chosen: Effort | None, *, fallback: bool) -> Effort | None:
    """Return how much a model reasons: what its thread chose, else its own setting, else the general one.

    For a fallback its own setting comes first. What the model does not take becomes the nearest that it does.
    """
    own = settings.models.get(info.name, ModelFacts()).reasoning
    wanted = ((own or chosen) if fallback else (chosen or own)) or settings.reasoning
    return wanted and nearest(wanted, info.efforts)


@dataclass(frozen=True, slots=True)
class Terms:
    """What may differ from place to place: the settings there, what models cost, who pays, and the tools."""

    settings: Settings
    catalog: Catalog
    accounts: Accounts
    tools: tuple[ToolSpec, ...]


def terms_of(effective: Effective, ledger: SpendingLedger, tools: tuple[ToolSpec, ...]) -> Terms:
    settings = effective.settings
    accounts = Accounts.of(ledger, settings.budget, effective.day_limits)
    return Terms(settings, Catalog.of(settings), accounts, tools)


class ModelChain:
    """The `Models` and `ModelCommands` of one place. `under` makes those of another one."""

    def __init__(
        self,
        terms: Terms,
        environ: Mapping[str, str],
        *,
        http: SharedHttp,
        chosen: ModelChoices,
        random: Callable[[], float],
        now: Callable[[], datetime],
        observing: Observing,
        mask: Masker,
        learned: LearnedServers | None = None,
        sharers: Callable[[], int] = lambda: 1,
        read_files: Callable[[Turn, Sequence[File], PlaceModels], Awaitable[list[File]]] | None = None,
        on_grant: Callable[[Turn, Key, int, str], None] = lambda *_: None,
        decided: Callable[[Turn, Mapping[str, str], Answer], Awaitable[None]] = lambda _, *of: record_nothing(
            *of
        ),
    ) -> None:
        self.terms = terms
        self._environ, self.http, self._now, self._read_files = environ, http, now, read_files
        self._random, self._sharers, self.chosen = random, sharers, chosen
        self._observing, self._on_grant, self._decided = observing, on_grant, decided
        self._mask = mask
        self._gates: dict[tuple[str, int], Gate] = {}
        self._adapters: dict[tuple[str, int], Model] = {}
        self._keys: dict[str, KeyOfThread] = {}
        self._learned = learned or LearnedServers()

    @property
    def name(self) -> str:
        """The model of threads that chose none."""
        return self.terms.settings.model

    def under(self, terms: Terms) -> ModelChain:
        """Return a chain with other terms. Queues, circuit breakers, connections and choices are the same."""
        other = copy(self)
        other.terms = terms
        return other

    def without_choices(self) -> ModelChain:
        """Return a chain that always begins with the model of its settings, whatever a thread chose."""
        chain = copy(self)
        chain.chosen = self.chosen.ignored()
        return chain

    def _server(self, name: str) -> ServerTraits:
        return ServerTraits.of(name, self._settings, self._learned)

    def _info(self, name: str) -> ModelInfo:
        """Return a model's capabilities, as they are with its server."""
        return self._server(name).known(self.terms.catalog.info(name))

    def servers(self) -> list[str]:
        """Return a line for each model of the settings whose requests have other forms than usual."""
        told = ((name, self._server(name).describe()) for name in self._offered)
        return [f"{name}: {words}" for name, words in told if words]

    def check(self) -> None:
        """Raise `ConfigInvalid` if the default, a downgrade or a fallback cannot be used."""
        for name in candidates(self._settings, self.name):
            self._build_adapters(name)
        if faults := [*reasoning_faults(self._settings, self.terms.catalog)]:
            raise ConfigInvalid("\n".join(faults))
        if fault := self._lacks(self.name):
            raise ConfigInvalid(f"model: {fault}; {CHOOSE.format(self.name)}")

    async def prepare(self) -> None:
        """Do what the first call of each model in use would wait for: import its SDK, for a second or two."""
        for name in candidates(self._settings, self.name):
            self.catalog.prices(name)
            try:
                await prepare_adapter(self._adapter(name))
            except ProviderError as error:  # The first message is told.
                log.warning("model.not_prepared: %s: %s", name, error, extra=error_fields(error))

    async def for_turn(self, turn: Turn) -> TurnModel:
        """Return the thread's model with all its policies, for one turn."""
        thread = turn.incoming.thread
        account = await self._account(turn)
        if (chosen := self.chosen.of(thread)) and chosen != self._of(thread):
            turn.note(wording.not_usable(chosen))
        names = candidates(self._settings, self._of(thread))
        answering = [self._candidate(name, account, turn) for name in names]
        masked = MaskedModel(self._budgeted(answering, account, turn), self._mask)
        return ObservedTurnModel(masked, self._observing)

    @property
    def catalog(self) -> Catalog:
        return self.terms.catalog

    async def to_text(self, turn: Turn, files: Sequence[File]) -> list[File]:
        """Return files with the text of those that extensions read, by models of this place."""
        return await self._read_files(turn, files, self) if self._read_files else [*files]

    async def with_policies(self, turn: Turn, name: str, metered: Callable[[Account, int], Model]) -> Model:
        """See `bot.host.extension.PlaceModels`."""
        account, thread = await self._account(turn), turn.incoming.thread
        model, unavailable = self._over_keys(name, partial(metered, account), account, lambda _: 0, thread)
        return self._budgeted([Candidate(name, partial(self._info, name), model, unavailable)], account, turn)

    async def _account(self, turn: Turn) -> Account:
        """Return who pays for a turn. One that goes on after a restart begins with what it has spent."""
        accounts, incoming = self.terms.accounts, turn.incoming
        ids = str(incoming.thread), incoming.author.id, incoming.key
        return await accounts.open(*ids) if turn.attempt > 1 else accounts.account(*ids)

    def _budgeted(self, answering: Sequence[Candidate], account: Account, turn: Turn) -> BudgetedModel:
        asker, decided = turn.incoming.author.id, partial(self._decided, turn)
        failover = Failover(
            answering,
            turn,
            acknowledge=self._settings.failover.acknowledge,
            may_answer=lambda who: who == asker or self._is_admin(who),
            size=request_size,
            record_decision=decided,
        )
        on_grant = partial(self._on_grant, turn)
        return BudgetedModel(failover, account, turn, self._may_grant(asker), on_grant, decided)

    def is_chosen(self, thread: ThreadId) -> bool:
        """Return whether the people of a thread chose its model."""
        return self.chosen.of(thread) == self._of(thread)

    def describe_model(self, thread: ThreadId) -> str:
        chosen = self._of(thread)
        states = [gate.describe(chosen) for gate in self._gates_of(chosen)]
        state = "" if "" in states else states[0]
        effort = self._effort(self._info(chosen), thread)
        forms = self._server(chosen).describe()
        return f"Model: {chosen}{_how(effort)}{state and f' ({state})'}.{forms and f' Its server: {forms}.'}"

    def list_models(self, thread: ThreadId) -> str:
        chosen = self._of(thread)
        usable = [name for name in self._offered if name != chosen and not self._refused(name)]
        others = ", ".join(usable[:MOST_LISTED])
        how = (
            f"Others: {others}. /model NAME takes one of them here."
            if others
            else f"It is the only one. {MORE}"
        )
        efforts = self._info(chosen).efforts
        reasons = f" How much it reasons: /model {' | '.join(efforts)}." if efforts else ""
        return f"{self.describe_model(thread)} {how}{reasons}"

    async def choose_model(self, thread: ThreadId, words: str, conversation: Sequence[Message]) -> str:
        named = words.split()
        effort = next((one for one in EFFORTS if one == named[-1].lower()), None)
        match named[:-1] if effort else named:
            case []:
                name, stored = self._of(thread), self.chosen.of(thread)
            case [name]:
                name, stored = (self.name, None) if name.lower() == "default" else (name, name)
                if fault := self._not_offered(name) or self._unfit(thread, name):
                    return fault
            case _:
                return HOW
        if effort and (fault := self._effort_fault(name, effort)):
            return f"Nothing has changed: {fault}."
        self._must_fit(thread, name, conversation)
        await self.chosen.choose(thread, stored, effort)
        if stored or effort:
            return f"From the next message on, {name} answers in this thread{_how(effort)}."
        return f"This thread uses {name} again."

    def _not_offered(self, name: str) -> str:
        if name in self._offered:
            return ""
        close = get_close_matches(name, self._offered, n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]}?" if close else ""
        if len(self._offered) == 1:
            return f"I know no model of that name here: {self.name} is the only one. {MORE}"
        return f"I know no model of that name here.{hint} /model lists them."

    def _unfit(self, thread: ThreadId, name: str) -> str:
        """Return why the thread cannot have this model, or a blank."""
        if not self._usable(name):
            return f"{name} cannot be used: its key is not set. Whoever runs this bot needs to set it."
        fault = "" if name == self.name else self._lacks(name) or self._refused(name)
        return f"I stay with {self._of(thread)}: {fault}." if fault else ""

    def _effort_fault(self, name: str, effort: Effort) -> str:
        if self._server(name).refuses(effort):
            return f"the provider of {name} has refused that"
        takes = self._info(name).efforts
        return "" if effort in takes else wording.effort_not_taken(name, effort, takes)

    def circuits(self) -> list[CircuitStatus]:
        """Return the circuit breakers of all models that were called so far."""
        return [circuit for gate in self._gates.values() for circuit in gate.circuits()]

    async def describe_usage(self, thread: ThreadId, user: str) -> str:
        return await self.terms.accounts.overview(str(thread), user)

    @property
    def _settings(self) -> Settings:
        return self.terms.settings

    @property
    def _offered(self) -> list[str]:
        return offered(self._settings, self.name)

    def _is_admin(self, who: str) -> bool:
        return is_admin(self._settings.access, who)

    def _may_grant(self, asker: str) -> Callable[[str], bool]:
        allowed = self._settings.budget.asker_may_grant
        return lambda who: self._is_admin(who) or (allowed and who == asker)

    def _of(self, thread: ThreadId) -> str:
        """Return the thread's model: the one it chose, if that can be used."""
        chosen = self.chosen.of(thread)
        return chosen if chosen and chosen in self._offered and self._usable(chosen) else self.name

    def _usable(self, name: str) -> bool:
        try:
            self._build_adapters(name)
        except ConfigInvalid:
            return False
        return True

    def _lacks(self, name: str) -> str:
        fault = missing(self._info(name), Request("", (), self.terms.tools))
        return str(fault) if fault else ""

    def _refused(self, name: str) -> str:
        """Return a clause on why a model's account is refused, or a blank."""
        errors = [gate.refused_account() for gate in self._gates_of(name)]
        error = errors[0] if all(errors) else None
        return wording.because(name, error.code) if error else ""

    def _must_fit(self, thread: ThreadId, name: str, conversation: Sequence[Message]) -> None:
        """Raise `CapabilityMissing` if the conversation is longer than the model can read."""
        window, current = self._info(name).context_window, self._of(thread)
        size = size_of("", conversation, self.terms.tools) if conversation else 0
        if window is None or size <= window or name == current:
            return
        error = CapabilityMissing("context_window_too_small", f"{name} holds {window} tokens, not {size}")
        error.friendly = wording.too_long_for(name, size, window, current)
        raise error

    def _candidate(self, name: str, account: Account, turn: Turn) -> Candidate:
        thread, catalog, server = turn.incoming.thread, self.terms.catalog, self._server(name)
        info = catalog.info(name)
        most = _no_tokens if name == OFFLINE_MODEL else partial(most_tokens, model=name)

        def metered(place: int) -> Model:
            adapter = StructuredOutputModel(self._adapter(name, place))
            return MeteredModel(adapter, account, catalog, most, info.reasoning_tokens)

        size = partial(uncached_size, model=name)
        model, unavailable = self._over_keys(name, metered, account, size, thread)
        learning = LearningModel(model, server, partial(self._effort, info, thread), turn.note)
        asked = WrittenCallsModel(AnswerRoomModel(learning, server, request_size))
        return Candidate(name, partial(server.known, info), asked, unavailable)

    def _over_keys(
        self,
        name: str,
        metered: Callable[[int], Model],
        account: Account,
        size: Callable[[Request], int],
        thread: ThreadId,
    ) -> tuple[Model, Callable[[], ProviderError | None]]:
        """Return a model over all keys, each with its *metered* one, and what says why it cannot be asked now."""
        keys = [self._keyed(metered(place), place, account, size) for place in range(self._key_count(name))]
        if len(keys) == 1:
            return keys[0].model, keys[0].unavailable
        rotation = KeyRotation(keys, self._key_of(name), str(thread))
        return rotation, rotation.unavailable

    def _keyed(
        self, metered: Model, place: int, account: Account, size: Callable[[Request], int]
    ) -> KeyedModel:
        """Return the model behind one key of its provider, with its retries, its queue and its price."""
        name, gate = metered.name, self._gate(metered.name, place)
        gated = GatedModel(ObservedModel(metered, account, self._observing), gate, size)
        local = is_local(self._provider(name))
        model = RetryingModel(gated, self._settings.llm_retry, self._random, gate, local)
        return KeyedModel(place + 1, model, partial(gate.unavailable, name))

    def _effort(self, info: ModelInfo, thread: ThreadId) -> Effort | None:
        """Return how much a model reasons in a thread; None leaves it to the model."""
        chosen, fallback = self.chosen.effort_of(thread), info.name != self._of(thread)
        effort = effort_of(self._settings, info, chosen, fallback=fallback)
        return None if effort is None or self._server(info.name).refuses(effort) else effort

    def _gates_of(self, name: str) -> list[Gate]:
        return [self._gate(name, place) for place in range(self._key_count(name))]

    def _gate(self, name: str, place: int = 0) -> Gate:
        """Return the gate of a key of a model's provider."""
        key = name.partition("/")[0], place
        if key not in self._gates:
            self._gates[key] = build_gate(self._settings, self._provider(name), self._sharers, place=place)
        return self._gates[key]

    def _key_of(self, name: str) -> KeyOfThread:
        return self._keys.setdefault(name.partition("/")[0], KeyOfThread(self._key_count(name)))

    def _key_count(self, name: str) -> int:
        return len(self._provider(name).keys) or 1

    def _build_adapters(self, name: str) -> None:
        """Build the model for each key. Raises `ConfigInvalid`."""
        for place in range(self._key_count(name)):
            self._adapter(name, place)

    def _adapter(self, name: str, place: int = 0) -> Model:
        if (name, place) not in self._adapters:
            vision = self.terms.catalog.info(name).vision
            self._adapters[name, place] = build_adapter(
                name, self._settings, self._environ, http=self.http, now=self._now, vision=vision, key=place
            )
        return self._adapters[name, place]

    def _provider(self, name: str) -> Provider:
        """Return the settings of a model's provider."""
        return self._settings.providers.get(name.partition("/")[0], OFFLINE)


def _how(effort: Effort | None) -> str:
    return f", {wording.EFFORTS[effort]}" if effort else ""
