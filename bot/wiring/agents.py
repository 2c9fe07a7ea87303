"""Makes the agent of each turn from the settings that hold for it.

    where and who -> `Effective` (bot.config.scopes) -> models, tools, rules, limits, prompt -> `Agent`

A turn keeps the agent that it began with. Turns with the same settings share one, so that nothing is built for each
message and prompts stay the same bytes. Connections, queues, circuit breakers and accounts are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cachetools import LRUCache, TTLCache
from pydantic import JsonValue

from bot.agent.loop import Agent
from bot.agent.prompt.compaction import new_cooldown
from bot.agent.prompt.instructions import Instructions
from bot.agent.prompt.user_message import UserMessages, no_memory
from bot.budget.accounts import SpendingLedger
from bot.config.scopes import CurrentSettings, Effective, Place
from bot.config.settings import Settings
from bot.host.agents import ChangeOf
from bot.host.extension import OwnTurns
from bot.llm.policies.structured_output import FittingModels
from bot.ports.config_error import ConfigInvalid
from bot.ports.model import Request
from bot.wiring.model_chain import ModelChain, terms_of
from bot.wiring.tool_set import ToolSet
from threads.model import Incoming, OnEvent, ThreadId, Turn
from threads.ports import Store
from threads.store.data_folder import Spill

MOST_AGENTS = 256
"""Agents that are remembered, each for settings of its own."""

SchemaOf = Callable[[Incoming], "dict[str, JsonValue] | None"]
"""Returns the JSON Schema for the answer to a message, or None. With a schema the answer is JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class Agents:
    """The agents of one bot. ``chain`` is a model chain of any place: its connections are those of all.

    ``mask_events`` wraps a turn's listener in one that masks secrets.
    """

    current: CurrentSettings
    chain: ModelChain
    tool_set: ToolSet
    instructions: Instructions
    store: Store
    ledger: SpendingLedger
    mask_events: Callable[[OnEvent], OnEvent]
    schema_of: SchemaOf | None = None
    _agents: LRUCache[tuple[Effective, frozenset[str] | None], Agent] = field(
        default_factory=partial(LRUCache, MOST_AGENTS), init=False
    )
    _summaries: TTLCache[ThreadId, bool] = field(default_factory=new_cooldown, init=False)

    async def run(self, turn: Turn) -> str:
        """Answer a turn, with the settings that hold where it began."""
        if answer := await self.tool_set.prepare(turn):
            return answer
        agent = await self.usual(turn.incoming)
        if self.schema_of and (schema := self.schema_of(turn.incoming)) is not None:
            agent = replace(agent, empty=replace(agent.empty, output_schema=schema))
        return await agent.run(turn)

    async def agent_for(self, effective: Effective, tools: Collection[str] | None = None) -> Agent:
        """Return the agent for these settings, of the *tools* with these names only if they are given.

        `Effective.override` puts a model, tools, a budget or limits on top of what holds in a place.
        """
        key = effective, None if tools is None else frozenset(tools)
        if key not in self._agents:
            self._agents[key] = self._make(effective, tools)
        settings = effective.settings
        system = await self.instructions.prompt(settings.system, settings.tools.enabled)
        return replace(self._agents[key], system=system)

    def check(self, settings: Settings) -> None:
        """Raise `ConfigInvalid` if a model that the settings name, for everybody or in a scope, cannot be used."""
        everywhere = Effective(settings)
        self.chain_for(everywhere).check()
        faults = []
        for name, scope in settings.scopes.items():
            try:
                self.chain_for(everywhere.override(scope, name)).check()
            except ConfigInvalid as error:
                faults.append(f"scopes.{name}: {error}")
        if faults:
            raise ConfigInvalid("\n".join(faults))

    @property
    def own_turns(self) -> Mapping[str, OwnTurns]:
        """Return the turns that extensions answer themselves, by the command."""
        return self.tool_set.own_turns

    async def usual(self, incoming: Incoming, tools: Collection[str] | None = None) -> Agent:
        """Return the agent of a message's place and author."""
        return await self.agent_for(self.current.at(Place.of(incoming)), tools)

    def models_under(
        self, change: ChangeOf, incoming: Incoming, tools: Collection[str] | None, *, chosen: bool
    ) -> ModelChain:
        """Return the models for a message under changed settings; see `bot.host.agents.Agents`."""
        effective = self.current.at(Place.of(incoming))
        chain = self.chain_for(replace(effective, settings=change(effective.settings)), tools)
        if not chosen:
            chain = chain.without_choices()
            chain.check()
        return chain

    def models(self, incoming: Incoming) -> ModelChain:
        """Return the models of a message's place and author."""
        return self.chain_for(self.current.at(Place.of(incoming)))

    def chain_for(self, effective: Effective, tools: Collection[str] | None = None) -> ModelChain:
        """Return the models under these settings. Their calls carry the specs of the *tools*."""
        toolbox = self.tool_set.toolbox(effective.settings.tools, tools)
        return self.chain.under(terms_of(effective, self.ledger, toolbox.specs))

    def _make(self, effective: Effective, tools: Collection[str] | None) -> Agent:
        settings, chain = effective.settings, self.chain_for(effective, tools)
        memory = self.tool_set.memory
        return Agent(
            FittingModels(chain) if self.schema_of else chain,
            self.tool_set.toolbox(settings.tools, tools),
            "",
            self.store.workspace,
            self._spill,
            max_steps=settings.limits.max_steps,
            empty=Request("", (), max_tokens=settings.max_tokens, temperature=settings.temperature),
            compaction=settings.compaction,
            footer=settings.budget.footer,
            user_messages=UserMessages(
                memory.read if memory and "memory" in settings.tools.enabled else no_memory,
                chain.to_text,
                chain.is_chosen,
                self.tool_set.extend,
                next((name for name in effective.decided.values() if name.startswith("user:")), ""),
            ),
            mask_events=self.mask_events,
            summaries=self._summaries,
        )

    def _spill(self, thread: ThreadId) -> Spill:
        async def save(name: str, text: str, *, outside: bool) -> str:
            workspace = await self.store.workspace(thread)
            return await self.tool_set.spill(workspace, name, text, outside=outside)

        return save
