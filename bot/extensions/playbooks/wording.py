"""What people and the model read about a run. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from bot.extensions.playbooks.definition import Playbook
from bot.extensions.playbooks.run_state import Run
from threads.invisible_text import escaped
from threads.model import StagesChanged, StageShown

LONGEST_SHOWN, LONGEST_REASON = 2_000, 300
"""Characters of a result in a question, and of a reason in the outcome."""

ONLY_ASKER = "Only the person who started the playbook, or an admin, can do that."
NOT_HERE = "No playbook is under way here. /play lists them."
NO_PLAYBOOKS = (
    "There are no playbooks yet. Whoever runs this bot adds one with `threadfast playbooks add`, "
    "or writes it to the folder `playbooks` of the data folder."
)
HOW = "/play NAME, with more words if it needs them, starts one."
CONTROLS = "/play retry [STAGE], /play skip or /play stop"
NO_SCHEDULES = (
    "Nothing can be scheduled here. Whoever runs this bot adds `schedule` to `tools.enabled` for that."
)
TOO_MANY = "Too many playbooks are under way. Try again when one of them is over."


def listing(playbooks: Sequence[Playbook], problems: Sequence[str]) -> str:
    """Return the playbooks with their descriptions, one a line."""
    lines = [f"{playbook.name}: {' '.join(playbook.description.split())}" for playbook in playbooks]
    lines = [*lines, HOW] if lines else [NO_PLAYBOOKS]
    return "\n".join([*lines, *(f"Not usable: {problem}" for problem in problems)])


def stages_of(run: Run, *, playing: bool = True) -> StagesChanged:
    """Return the event that shows the stages of a run. *playing*: one of them runs now."""
    current = run.stage if playing and run.state == "running" else ""
    names = [stage.name for stage in run.playbook.stages]
    shown = (
        StageShown(name, "running" if name == current else run.signs.get(name, "waiting")) for name in names
    )
    return StagesChanged(run.playbook.name, tuple(shown))


def reason_lines(run: Run) -> str:
    """Return why stages failed, were skipped or are parked, one a line."""
    shown = ("failed", "skipped", "parked")
    stages = (stage.name for stage in run.playbook.stages if run.signs.get(stage.name) in shown)
    reasons = ((name, " ".join(run.reasons[name].split())) for name in stages if name in run.reasons)
    return "\n".join(f"{name}: {why[:LONGEST_REASON]}" for name, why in reasons)


def outcome(run: Run, until: datetime | None = None) -> str:
    """Return the last word on a run. A parked one goes on by itself at *until*."""
    heading = {"done": "done", "parked": "waits", "failed": "ended", "running": "not over"}[run.state]
    spent = f", ${run.spent_usd:.4f}" if run.spent_usd else ""
    parts = [f"**{run.playbook.name}**: {heading}{spent}\n{stages_of(run, playing=False).lines}"]
    parts += filter(None, [reason_lines(run)])
    if run.state == "parked":
        when = f"I try it again at {until:%Y-%m-%d %H:%M} UTC. " if until else ""
        parts.append(f"{when}{CONTROLS} decide before that." if until else f"{CONTROLS} decide what follows.")
    elif run.state == "failed":
        parts.append(_not_done(run))
    else:
        parts += [shown_result(result.value) for result in [*run.results.values()][-1:]]
    return "\n\n".join(parts)


def _not_done(run: Run) -> str:
    missing = [
        stage.name for stage in run.playbook.stages if run.signs.get(stage.name) not in ("passed", "skipped")
    ]
    return f"Not done: {', '.join(missing)}. /play retry [STAGE] or /play skip go on from here."


def shown_result(value: JsonValue) -> str:
    """Return a result for people: text as it is, a value as JSON."""
    if isinstance(value, str):
        return value
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"


def status(run: Run, *, playing: bool) -> str:
    """Return how a run stands."""
    if playing:
        state = f"in stage {run.stage}, attempt {run.attempt} of {run.current.retry.attempts}"
    elif run.state == "running":
        state = f"stopped in stage {run.stage}; {CONTROLS} decide what follows"
    else:
        state = {"done": "done", "parked": f"waits in stage {run.stage}", "failed": "ended"}[run.state]
    parts = [f"{run.playbook.name}: {state}.\n{stages_of(run, playing=playing).lines}", reason_lines(run)]
    return "\n\n".join(filter(None, parts))


def going_on(run: Run) -> str:
    return f"({run.playbook.name} went on in stage {run.stage}.)"


def failure_told(run: Run) -> str:
    """Return for the model how the attempt or the stage before failed, blank if none did."""
    if run.failure is None:
        return ""
    whose = "Your last attempt" if run.failed == run.stage else f"The stage {run.failed}"
    lines = [f"{whose} failed ({run.failure.type}): {run.failure.message} {run.failure.suggestion}".rstrip()]
    lines += [f"- {error.tool} failed ({error.type}): {error.message}" for error in run.errors]
    return "\n".join(lines)


def question(text: str, result: JsonValue) -> str:
    """Return a question to a person, with the result that it is about; all of it is visible."""
    about = escaped(shown_result(result).strip())
    cut = f"{about[:LONGEST_SHOWN]}… ({len(about) - LONGEST_SHOWN} more characters)"
    return f"{text}\n\n{about if len(about) <= LONGEST_SHOWN else cut}" if about else text


def due(now: datetime, seconds: float) -> datetime:
    """Return the time after so many seconds, to the second."""
    return (now + timedelta(seconds=seconds)).replace(microsecond=0)


def no_stage(run: Run, stage: str) -> str:
    names = ", ".join(one.name for one in run.playbook.stages)
    return f"{run.playbook.name} has no stage {stage[:40]}. Its stages: {names}."
