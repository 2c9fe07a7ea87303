"""What is on disk of a run: a copy of its playbook, where it is, and what it has shown so far."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
)
from pydantic_core import to_json

from bot.extensions.playbooks.definition import END, FailureType, Playbook, Stage
from threads.model import Author
from threads.store.json_file import JsonState

log = logging.getLogger(__name__)

LONGEST_MESSAGE, LONGEST_RESULT, LONGEST_RESULTS = 500, 20_000, 60_000
"""Characters of one failure's message, of one result, and of all results of a run."""

MOST_ERRORS, MOST_ANSWERS = 10, 100
"""Errors of tools, and answers of people, that are stored."""

RunState = Literal["running", "parked", "failed", "done"]
Sign = Literal["passed", "failed", "skipped", "parked"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class Failure(Record):
    """Why an attempt failed, or an error of a tool in it. ``message`` is for people and the model."""

    type: FailureType
    message: str
    recoverable: bool = True
    suggestion: str = ""
    tool: str = ""


class Result(Record):
    """What a stage has shown: text, or the value of its schema. ``outside``: the model had read text from outside."""

    value: JsonValue
    outside: bool = False


class Run(Record):
    """One run of a playbook in a thread.

    ``message_id`` is the message whose turn plays it, or has played it last. ``state`` is "running" also if that turn
    ended without an end of the run: it was stopped, or it failed.

    ``visits`` count against the bound of each stage, ``entries`` count all of them. ``attempt`` counts in this visit
    of ``stage``, from 1. ``reasons`` say for people why stages failed, were skipped or are parked. ``failure`` and
    ``errors`` are those of the attempt before, or of the stage ``failed`` that led here.

    ``before_usd`` was spent in earlier turns. When the stage was entered, ``entered_usd`` had been spent in all, and
    ``entered_granted_usd`` granted in this turn. ``worked_s`` counts to the last border, at ``border_at`` (UTC, ISO
    8601). A person is asked until ``asking_until``. ``returns`` counts how often it was parked.

    ``redirect`` is what a person chose while a stage runs: "skip STAGE" or "retry STAGE". ``holder`` grows with each
    turn that takes the run up, the last time at ``taken_at``.
    """

    id: str
    thread: str
    message_id: str
    asker: Author
    words: str
    playbook: Annotated[
        Playbook, PlainSerializer(lambda playbook: playbook.model_dump(mode="json", by_alias=True))
    ]
    digest: str
    state: RunState = "running"
    stage: str
    attempt: int = 1
    visits: dict[str, int] = Field(default_factory=dict)
    entries: int = 0
    signs: dict[str, Sign] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    results: dict[str, Result] = Field(default_factory=dict)
    answers: dict[str, bool] = Field(default_factory=dict)
    failed: str = ""
    failure: Failure | None = None
    errors: tuple[Failure, ...] = ()
    before_usd: float = 0.0
    entered_usd: float = 0.0
    entered_granted_usd: float = 0.0
    spent_usd: float = 0.0
    worked_s: float = 0.0
    returns: int = 0
    redirect: str = ""
    border_at: str = ""
    asking_until: str = ""
    holder: int = 0
    taken_at: str = ""

    @property
    def current(self) -> Stage:
        """The stage that it is in. Only while there is one."""
        stage = self.playbook.stage(self.stage)
        assert stage is not None
        return stage

    @property
    def visit_id(self) -> str:
        """The stage, the entry and the attempt, such as ``gather.1.2``. No other attempt of the run has it."""
        return f"{self.stage}.{self.entries}.{self.attempt}"

    @property
    def most_usd(self) -> float | None:
        """What the turn that plays it may spend by its own limits until the stage is over; None without one."""
        limits = []
        if self.playbook.limits.usd is not None:
            limits.append(self.playbook.limits.usd - self.before_usd)
        if self.current.act.usd is not None:
            entered = self.entered_usd - self.before_usd - self.entered_granted_usd
            limits.append(entered + self.current.act.usd)
        return max(0.0, min(limits)) if limits else None

    @property
    def left_s(self) -> float:
        """Seconds that it may still work."""
        return max(0.0, self.playbook.limits.time_s - self.worked_s)

    @property
    def over(self) -> bool:
        return self.state in ("failed", "done") or self.stage == END


def _readable(runs: object) -> object:
    """Return the runs without those that another version wrote and this one cannot read."""
    if not isinstance(runs, dict):
        return runs
    readable = {}
    for thread, run in runs.items():
        try:
            readable[thread] = run if isinstance(run, Run) else Run.model_validate_json(to_json(run))
        except ValidationError as error:
            log.warning("playbook.unreadable: a run is dropped: %s", error.errors()[0]["msg"])
    return readable


class RunsFile(JsonState):
    """``runs`` has the last run of each thread."""

    runs: Annotated[dict[str, Run], BeforeValidator(_readable)] = Field(default_factory=dict)
