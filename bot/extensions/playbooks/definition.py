"""The shape of a playbook: its stages, what each is given, does and must show, and where it goes next.

Only single values are checked here; `bot.extensions.playbooks.parsing` checks what spans several of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from bot.config.settings import ModelName, Name, Section, Usd, setting
from bot.ports.tool import ErrorType

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
END = "end"
"""The target after which the playbook is done."""

RESERVED = ("at", "list", "retry", "skip", "status", "stop")
"""Words of `/play` that no playbook can have as its name."""

MOST_STAGES, MOST_VISITS, MOST_ATTEMPTS, MOST_RETURNS = 30, 20, 10, 20
DAY_S = 24 * 3600.0

FailureType = Literal[ErrorType, "assertion", "declined", "budget", "provider"]
"""Why a stage failed: an error of a tool by its type, a check that did not hold, a person's no, money, the model.

A stage or a command that took too long is a ``timeout``.
"""

Resolution = Literal["skip", "retry-later", "abort"]

Identifier = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
Path = Annotated[str, Field(min_length=1, max_length=500)]
Words = Annotated[str, Field(min_length=1, max_length=20_000)]
StageSeconds = Annotated[float, Field(gt=0, le=DAY_S)]


class Setup(Section):
    """What a stage is given beside its prompt. How an earlier stage or attempt failed is always added."""

    words: bool = setting(True, "The words after the name in `/play NAME words`.")
    results: tuple[Identifier, ...] = Field(
        default=(), max_length=MOST_STAGES, description="The stages whose results it reads."
    )
    files: tuple[Path, ...] = Field(
        default=(), max_length=20, description="Files of the thread's workspace that it reads."
    )


class Act(Section):
    """What a stage does: one run of the agent."""

    prompt: Words = Field(description="What the model is asked to do.")
    model: ModelName | None = setting(None, "Null is the thread's model.")
    tools: tuple[Name, ...] | None = Field(
        default=None, max_length=100, description="The tools that it may use; null is all, [] is none."
    )
    usd: Usd | None = setting(None, "Most that one visit may cost. Null is no limit of its own.")
    timeout_s: StageSeconds = setting(600.0, "Most seconds that one attempt may take.")


class Check(Section):
    """One thing that must hold after a stage. Give exactly one of `command`, `file` and `person`."""

    command: str | None = Field(
        default=None,
        min_length=1,
        max_length=10_000,
        description="A shell command in the workspace, in the sandbox, by the same rules as the model's.",
    )
    exit_code: int = Field(default=0, ge=0, le=255, description="The exit code that the command must have.")
    file: Path | None = setting(None, "A file that must be in the workspace.")
    person: Words | None = setting(None, "A question that a person must answer with yes.")
    by: Literal["asker", "admin", "anyone"] = setting(
        "asker", "Who may answer: who started the playbook or an admin, an admin, or anyone."
    )
    within_s: StageSeconds = setting(3600.0, "Seconds until no answer is a no.")


class Assert(Section):
    """What the result of a stage must meet."""

    schema_: dict[str, JsonValue] | None = Field(
        default=None,
        alias="schema",
        description="The JSON Schema of the result. Without it the result is text.",
    )
    checks: tuple[Check, ...] = Field(default=(), max_length=20, description="Made in this order.")


class Cases(Section):
    """The next stage by a value of the result."""

    field: Name = Field(description="The field, such as `severity` or `plan.kind`.")
    cases: dict[str, Identifier] = Field(
        min_length=1, max_length=50, description="The next stage by the value; another goes to `success`."
    )


class Next(Section):
    """Where to go. A target is a stage or `end`."""

    success: Identifier | None = setting(None, "Null is the following stage, or the end.")
    value: Cases | None = setting(None, "By a value of the result, before `success`.")
    failure: Identifier | None = setting(None, "Null is the stage's `unrecoverable`.")
    on_error: dict[FailureType, Identifier] = Field(
        default_factory=dict, description="By the type of the failure, before `failure`."
    )

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield each target with the path of its key."""
        if self.success:
            yield "success", self.success
        if self.value:
            yield from ((f"value.cases.{value}", target) for value, target in self.value.cases.items())
        if self.failure:
            yield "failure", self.failure
        yield from ((f"on_error.{kind}", target) for kind, target in self.on_error.items())


class Retry(Section):
    """How a failed stage is tried again. A person's no and the end of the money are never tried again."""

    attempts: int = Field(
        default=1, ge=1, le=MOST_ATTEMPTS, description="Attempts of one visit, the first included."
    )
    backoff_s: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="Seconds before the second attempt; doubled for each further one.",
    )
    start: Literal["setup", "act"] = Field(
        default="act",
        alias="from",
        description="`act` goes on in the conversation; `setup` takes the failed attempt out of it and begins anew.",
    )
    later_s: Annotated[float, Field(ge=60, le=7 * DAY_S)] = setting(
        900.0, "With `retry-later`: seconds until it is tried again."
    )
    later: int = Field(default=3, ge=1, le=MOST_RETURNS, description="With `retry-later`: how often.")


class Stage(Section):
    """One stage of a playbook."""

    name: Identifier
    setup: Setup = Field(default_factory=Setup)
    act: Act
    assert_: Assert = Field(default_factory=Assert, alias="assert")
    next: Next = Field(default_factory=Next)
    retry: Retry = Field(default_factory=Retry)
    visits: int | None = Field(
        default=None,
        ge=1,
        le=MOST_VISITS,
        description="How often a run may come here. Null is once; needed where stages lead in a circle.",
    )
    unrecoverable: Resolution = setting(
        "abort", "What follows a failure without a target: go on without it, stop and try it later, or end."
    )

    @property
    def most_visits(self) -> int:
        return self.visits or 1


class Bounds(Section):
    """The bounds of a whole run."""

    usd: Usd | None = setting(None, "Most that a run may cost. Null leaves the usual limits.")
    time_s: Annotated[float, Field(gt=0, le=7 * DAY_S)] = setting(
        3600.0, "Most seconds that a run works. Waiting for a person does not count."
    )


class Playbook(Section):
    """A playbook: `playbooks/NAME.yaml` in the data folder, or `NAME.md` with the prompts below its front matter."""

    model_config = ConfigDict(title="Threadfast playbook")

    name: Identifier
    description: Annotated[str, Field(min_length=1, max_length=1_000)]
    limits: Bounds = Field(default_factory=Bounds)
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=MOST_STAGES)]

    def stage(self, name: str) -> Stage | None:
        """Return the stage of this name, or None."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def following(self, name: str) -> str:
        """Return the name of the stage after this one, or `END`."""
        names = [*(stage.name for stage in self.stages), END]
        return names[names.index(name) + 1]


def json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema of a playbook; the same for the same version of the program."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Playbook.model_json_schema(by_alias=True),
    }
