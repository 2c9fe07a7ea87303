"""What follows in a run: pure functions from a run and an event to the run after it.

| a run is       | event                                               | then                                    |
|----------------|-----------------------------------------------------|-----------------------------------------|
| running        | an attempt passes                                   | running in the next stage, or done      |
| running        | it fails, and an attempt is left                    | running: the next attempt, after a pause |
| running        | it fails, and a target takes the failure            | running there                           |
| running        | it fails, no target has a visit left: `skip`        | running in the following stage          |
| running        | the same: `retry-later`, and a return is left       | parked                                  |
| running        | the same: `abort`, or nothing of that is possible   | failed                                  |
| running        | its time is used up                                 | failed                                  |
| running        | the process dies                                    | running: the same attempt goes on       |
| running        | a person says `retry STAGE` or `skip`               | running there                           |
| parked, failed | a person says so, or a parked run's time comes | running there                           |
| parked         | a person says `stop`                                | failed                                  |

A person's no and the end of the money are never tried again in the same visit. Each way on needs a visit of its
target, and each visit has a bounded number of attempts, so a run always ends. Only people give more visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from pydantic import JsonValue

from bot.extensions.playbooks.definition import END, Stage
from bot.extensions.playbooks.run_state import MOST_ERRORS, Failure, Result, Run, Sign

T = TypeVar("T")

FINAL = ("declined", "budget")
"""Failures that another attempt cannot change."""

OUT_OF_TIME = Failure(type="timeout", message="The time of the playbook is used up.", recoverable=False)
NO_VISIT = Failure(
    type="assertion", message="The next stage was visited as often as it may be.", recoverable=False
)


def passed(run: Run, result: Result, errors: tuple[Failure, ...] = ()) -> Run:
    """Return the run after an attempt whose result holds. *errors* are those of its tools that it did not mend.

    An error that the stage has a target for counts as a failure, even if the model has an answer all the same.
    """
    stage = run.current
    if failure := next((error for error in errors if error.type in stage.next.on_error), None):
        return failed(run, failure, errors)
    run = run.model_copy(update={"results": {**run.results, stage.name: result}})
    target = _case(stage, result.value) or stage.next.success or run.playbook.following(stage.name)
    return _leave(run, "passed", target) if _may_enter(run, target) else _unrecoverable(run, NO_VISIT, ())


def failed(run: Run, failure: Failure, errors: tuple[Failure, ...] = ()) -> Run:
    """Return the run after an attempt that failed. *errors* are those of its tools."""
    stage, errors = run.current, errors[-MOST_ERRORS:]
    if failure.type not in FINAL and run.attempt < stage.retry.attempts:
        told = {"failure": failure, "errors": errors, "failed": stage.name}
        return run.model_copy(update={**told, "attempt": run.attempt + 1})
    for target in _failure_targets(stage, failure):
        if _may_enter(run, target):
            return _leave(run, "failed", target, failure, errors)
    return _unrecoverable(run, failure, errors)


def out_of_time(run: Run) -> Run:
    """Return the run after all of its time is used up."""
    return _end(run, "failed", OUT_OF_TIME, ())


def pause_s(run: Run) -> float:
    """Return the seconds before the attempt that comes now."""
    retry = run.current.retry
    return min(retry.backoff_s * 2.0 ** (run.attempt - 2), 3600.0) if run.attempt > 1 else 0.0


def retried(run: Run, stage: str = "") -> Run:
    """Return the run in this stage, or again in its own.

    A person who chooses another stage gives each stage that has used up its visits one more.
    """
    if not stage or stage == run.stage:
        again = {"state": "running", "attempt": 1, "redirect": "", "entries": run.entries + 1}
        return run.model_copy(update={**again, "signs": _without(run.signs, run.stage)})
    most = {one.name: one.most_visits for one in run.playbook.stages}
    visits = {name: min(count, most[name] - 1) for name, count in run.visits.items()}
    signs = _without(run.signs, run.stage) if run.signs.get(run.stage) == "parked" else run.signs
    free = {"visits": visits, "signs": signs, "state": "running", "redirect": ""}
    return _enter(run.model_copy(update=free), stage)


def skipped(run: Run) -> Run:
    """Return the run in the stage that follows its own. A person may give that one more visit."""
    target = run.playbook.following(run.stage)
    run = run.model_copy(
        update={"state": "running", "signs": {**run.signs, run.stage: "skipped"}, "redirect": ""}
    )
    return _done(run) if target == END else retried(run, target)


def stopped(run: Run) -> Run:
    """Return the run after a person stopped it."""
    sign: Mapping[str, Sign] = {run.stage: "failed"} if run.stage != END else {}
    return run.model_copy(update={"state": "failed", "signs": {**run.signs, **sign}})


def _case(stage: Stage, value: JsonValue) -> str | None:
    """Return the target for a value of the result, or None."""
    if stage.next.value is None:
        return None
    for part in stage.next.value.field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return stage.next.value.cases.get(_word(value))


def _word(value: JsonValue) -> str:
    """Return a value as the key of a case has it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _failure_targets(stage: Stage, failure: Failure) -> Iterator[str]:
    if target := stage.next.on_error.get(failure.type):
        yield target
    if stage.next.failure:
        yield stage.next.failure


def _may_enter(run: Run, target: str) -> bool:
    stage = run.playbook.stage(target)
    return stage is None or run.visits.get(target, 0) < stage.most_visits


def _unrecoverable(run: Run, failure: Failure, errors: tuple[Failure, ...]) -> Run:
    stage, following = run.current, run.playbook.following(run.stage)
    if stage.unrecoverable == "skip" and _may_enter(run, following):
        return _leave(run, "skipped", following, failure, errors)
    if stage.unrecoverable == "retry-later" and run.returns < stage.retry.later:
        return _end(run.model_copy(update={"returns": run.returns + 1}), "parked", failure, errors)
    return _end(run, "failed", failure, errors)


def _end(run: Run, sign: Sign, failure: Failure, errors: tuple[Failure, ...]) -> Run:
    """Return the run parked or failed in its stage."""
    run = _signed(run, sign, failure, errors)
    return run.model_copy(update={"state": "parked" if sign == "parked" else "failed"})


def _leave(
    run: Run, sign: Sign, target: str, failure: Failure | None = None, errors: tuple[Failure, ...] = ()
) -> Run:
    """Return the run in the next stage, which knows how this one failed."""
    run = _signed(run, sign, failure, errors)
    return _done(run) if target == END else _enter(run, target)


def _signed(run: Run, sign: Sign, failure: Failure | None, errors: tuple[Failure, ...]) -> Run:
    """Return the run with the sign of its stage, and how that failed."""
    stage, reasons = run.stage, _without(run.reasons, run.stage)
    if failure:
        reasons[stage] = failure.message
    told = {"failed": stage if failure else "", "failure": failure, "errors": errors}
    return run.model_copy(update={**told, "signs": {**run.signs, stage: sign}, "reasons": reasons})


def _enter(run: Run, target: str) -> Run:
    visits = {**run.visits, target: run.visits.get(target, 0) + 1}
    entered = {"stage": target, "visits": visits, "entries": run.entries + 1, "attempt": 1}
    return run.model_copy(update={**entered, "signs": _without(run.signs, target)})


def _done(run: Run) -> Run:
    return run.model_copy(update={"stage": END, "state": "done"})


def _without(of_stages: Mapping[str, T], stage: str) -> dict[str, T]:
    return {name: value for name, value in of_stages.items() if name != stage}
