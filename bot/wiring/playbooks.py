"""Connects playbooks: the agent and the money of each stage, and the schedule by which a parked run comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from bot.agent.loop import Agent
from bot.budget.budgets import Key
from bot.budget.money import dollars
from bot.config.scopes import Effective, Place
from bot.config.settings import Settings
from bot.host.storage import Resources
from bot.llm.policies.structured_output import FittingModels
from bot.playbooks.commands import PlayCommands
from bot.playbooks.definition import Stage
from bot.playbooks.folder import Library
from bot.playbooks.player import Player, Spending
from bot.playbooks.run_state import Failure, Run, RunsFile
from bot.playbooks.runs import Runs
from bot.playbooks.stage import StageFailed, StageParts
from bot.playbooks.stage_turn import StageTurn
from bot.playbooks.wording import due
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ToolError
from bot.ports.model import TurnModel
from bot.routing.access import AccessControl
from bot.schedules.store import Schedule, Schedules
from bot.wiring.agents import Agents
from bot.wiring.model_chain import ModelChain
from threads.model import File, Incoming, ThreadId, Turn
from threads.store.json_file import States

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Playbooks:
    """The playbooks of a bot: its ``commands``, and the ``player`` of turns that play."""

    commands: PlayCommands
    player: Player


async def open_playbooks(
    agents: Agents, access: AccessControl, resources: Resources, states: States, now_settings: Settings
) -> Playbooks:
    """Open the runs on disk. Raises `threads.errors.NewerSchema` and OSError."""
    tool_set = agents.tool_set
    library = Library.of(now_settings)
    runs = Runs(await states.open("playbooks", RunsFile()), resources.now)
    returns = _Returns(tool_set.returns)
    parts = StageParts(_StageAgents(agents), runs, resources.work, access.is_admin)
    money = _Money(agents)
    keep_files = agents.store.keep_workspace
    player = Player(
        library, parts, money.spending, returns.add, returns.cancel, keep_files, resources.offload
    )
    minutes = now_settings.schedule.min_interval_minutes
    commands = PlayCommands(
        library, runs, tool_set.schedules, returns.cancel, resources.offload, access.is_admin, minutes
    )
    return Playbooks(commands, player)


@dataclass(frozen=True, slots=True)
class _StageAgents:
    """The agents of stages, see `bot.playbooks.stage.StageAgents`."""

    agents: Agents

    async def usual(self, incoming: Incoming) -> Agent:
        return await self.agents.agent_for(self._place(incoming))

    async def of_stage(self, turn: StageTurn, run: Run, stage: Stage) -> Agent:
        effective, tools = self._place(turn.incoming), stage.act.tools
        agent = await self.agents.agent_for(effective, tools)
        chain = self.agents.chain_for(_for_stage(effective, run, stage), tools)
        if stage.act.model:
            chain = chain.without_choices()
            try:
                chain.check()
            except ConfigInvalid as error:
                log.warning("playbook.model: %s cannot be used: %s", stage.act.model, error)
                why = f"The model {stage.act.model} cannot be used here."
                raise StageFailed(Failure(type="provider", message=why, recoverable=False)) from error
        empty = replace(agent.empty, output_schema=stage.assert_.schema_)
        paid = _PaidByTurn(chain)
        messages = replace(agent.user_messages, to_text=paid.to_text)
        return replace(agent, models=FittingModels(paid), user_messages=messages, empty=empty, footer=False)

    def _place(self, incoming: Incoming) -> Effective:
        return self.agents.current.at(Place.of(incoming))


def _for_stage(effective: Effective, run: Run, stage: Stage) -> Effective:
    """Return the settings of a place with the model and the money of a stage, which is never more than there."""
    settings, changes = effective.settings, dict[str, object]()
    if stage.act.model:
        changes["model"] = stage.act.model
    if (most := run.most_usd) is not None:
        budget = settings.budget
        limits = budget.limit_usd
        if budget.mode != "hard":  # soft limits refuse nothing, and those of a stage do
            limits = limits.model_copy(update=dict.fromkeys(type(limits).model_fields))
        turn = most if limits.turn is None else min(most, limits.turn)
        limits = limits.model_copy(update={"turn": turn})
        changes["budget"] = budget.model_copy(update={"mode": "hard", "limit_usd": limits})
    return replace(effective, settings=settings.model_copy(update=changes)) if changes else effective


@dataclass(frozen=True, slots=True)
class _PaidByTurn:
    """A `bot.ports.model.Models` whose calls are paid by the turn that plays: all stages share one account."""

    chain: ModelChain

    @property
    def name(self) -> str:
        return self.chain.name

    async def for_turn(self, turn: Turn) -> TurnModel:
        return await self.chain.for_turn(_paying(turn))

    async def to_text(self, turn: Turn, files: Sequence[File]) -> list[File]:
        return await self.chain.to_text(_paying(turn), files)


def _paying(turn: Turn) -> Turn:
    return turn.paying if isinstance(turn, StageTurn) else turn


@dataclass(frozen=True, slots=True)
class _Money:
    agents: Agents

    async def spending(self, key: str) -> Spending:
        """Return what the turn of a message has spent, calls that a crash cut off included."""
        of_turn: Key = ("turn", key)
        await self.agents.ledger.read([of_turn])
        total = self.agents.ledger.budgets.total(of_turn)
        return Spending(dollars(total.used), dollars(total.granted))


@dataclass(frozen=True, slots=True)
class _Returns:
    """The schedules by which parked runs come back."""

    schedules: Schedules

    async def add(self, run: Run) -> datetime | None:
        """Let a parked run come back, and return when; None if there are too many schedules."""
        at = due(self.schedules.now(), run.current.retry.later_s)
        schedule = Schedule(
            thread=run.thread,
            author=run.asker,
            text=f"/play retry {run.stage}",
            next_at=at,
            source=_source(run),
            play=True,
        )
        try:
            return (await self.schedules.add(schedule)).next_at
        except ToolError as error:
            log.warning("playbook.no_return: %s", error, extra={"thread_id": run.thread})
            return None

    async def cancel(self, run: Run) -> None:
        for schedule in self.schedules.all:
            if schedule.source == _source(run):
                await self.schedules.cancel(ThreadId.parse(run.thread), schedule.id)


def _source(run: Run) -> str:
    """Return what identifies one return of a run."""
    return f"{run.id} return {run.returns}"
