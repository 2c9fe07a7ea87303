"""The turns of `/play`: the agent and the money of each stage, and the schedule by which a parked run comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from bot.agent.loop import Agent
from bot.budget.accounts import SpendingLedger
from bot.budget.budgets import Key
from bot.budget.money import dollars
from bot.config.settings import Settings
from bot.extensions.playbooks.commands import PlayCommands
from bot.extensions.playbooks.definition import Stage
from bot.extensions.playbooks.folder import Library
from bot.extensions.playbooks.player import Player, Spending
from bot.extensions.playbooks.run_state import Failure, Run, RunsFile
from bot.extensions.playbooks.runs import Runs
from bot.extensions.playbooks.stage import StageFailed, StageParts
from bot.extensions.playbooks.stage_turn import StageTurn
from bot.extensions.playbooks.wording import due
from bot.host.agents import Agents, PaidModels
from bot.host.extension import Host, Unfinished
from bot.llm.policies.structured_output import FittingModels
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ToolError
from bot.ports.model import TurnModel
from bot.schedules.store import RETURN, Schedule, Schedules
from threads.journal.records import PendingMessage
from threads.model import File, ThreadId, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plays(PlayCommands):
    """The turns of `/play`, see `bot.host.extension.OwnTurns`, and what is answered at once."""

    host: Host

    async def run(self, turn: Turn, agents: Agents) -> str:
        """Play the run that a message asks for, with the models and the tools of these agents."""
        host, returns = self.host, _Returns(self.host.schedules)
        parts = StageParts(agents.usual, partial(agent_of_stage, agents), self.runs, host.work, host.is_admin)
        spending, keep = partial(spending_of, host.ledger), host.keep_workspace
        player = Player(self.playbooks, parts, spending, returns.add, returns.cancel, keep, host.offload)
        return await player.run(turn)

    def unfinished(self, pending: PendingMessage) -> Unfinished | None:
        """Return how far the run of a message came before a restart."""
        return self.runs.unfinished(pending, self.host.settings.recovery.max_age_s)


async def open_plays(host: Host) -> Plays:
    """Open the runs on disk. Raises `threads.errors.NewerSchema` and OSError."""
    runs = Runs(await host.states.open("playbooks", RunsFile()), host.now)
    schedules = host.schedules if "schedule" in host.enabled else None
    forget, minutes = _Returns(host.schedules).cancel, host.settings.schedule.min_interval_minutes
    return Plays(
        Library.of(host.settings), runs, schedules, forget, host.offload, host.is_admin, minutes, host
    )


async def agent_of_stage(agents: Agents, turn: StageTurn, run: Run, stage: Stage) -> Agent:
    """Return the agent with the model, tools, schema and money of a stage. Raises `StageFailed`."""
    incoming, act = turn.incoming, stage.act
    agent = await agents.usual(incoming, act.tools)
    change = partial(_for_stage, run=run, stage=stage)
    try:
        models = agents.models_under(change, incoming, act.tools, chosen=not act.model)
    except ConfigInvalid as error:
        log.warning("playbook.model: %s cannot be used: %s", act.model, error)
        why = f"The model {act.model} cannot be used here."
        raise StageFailed(Failure(type="provider", message=why, recoverable=False)) from error
    empty = replace(agent.empty, output_schema=stage.assert_.schema_)
    paid = _PaidByTurn(models)
    messages = replace(agent.user_messages, to_text=paid.to_text)
    return replace(agent, models=FittingModels(paid), user_messages=messages, empty=empty, footer=False)


def _for_stage(settings: Settings, run: Run, stage: Stage) -> Settings:
    """Return the settings of a place with the model and the money of a stage, which is never more than there."""
    changes = dict[str, object]()
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
    return settings.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class _PaidByTurn:
    """A `bot.ports.model.Models` whose calls are paid by the turn that plays: all stages share one account."""

    models: PaidModels

    @property
    def name(self) -> str:
        return self.models.name

    async def for_turn(self, turn: Turn) -> TurnModel:
        return await self.models.for_turn(_paying(turn))

    async def to_text(self, turn: Turn, files: Sequence[File]) -> list[File]:
        return await self.models.to_text(_paying(turn), files)


def _paying(turn: Turn) -> Turn:
    return turn.paying if isinstance(turn, StageTurn) else turn


async def spending_of(ledger: SpendingLedger, key: str) -> Spending:
    """Return what the turn of a message has spent, calls that a crash cut off included."""
    of_turn: Key = ("turn", key)
    await ledger.read([of_turn])
    total = ledger.budgets.total(of_turn)
    return Spending(dollars(total.used), dollars(total.granted))


@dataclass(frozen=True, slots=True)
class _Returns:
    """The schedules by which parked runs come back."""

    schedules: Schedules

    async def add(self, run: Run) -> datetime | None:
        """Let a parked run come back, and return when; None if there are too many schedules."""
        schedule = Schedule(
            thread=run.thread,
            author=run.asker,
            text=f"/play retry {run.stage}",
            next_at=due(self.schedules.now(), run.current.retry.later_s),
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
    return f"{run.id}{RETURN}{run.returns}"
