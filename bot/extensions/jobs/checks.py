"""Checks the limits of jobs for `threadfast doctor`."""

from __future__ import annotations

from bot.extensions.jobs.settings import JOBS
from bot.host.checks import Context, Findings
from transports.shared.checks import Finding


async def check_jobs(context: Context) -> Findings:
    jobs, budget = JOBS.of(context.settings), context.settings.budget
    each = f"${jobs.usd:.2f}, {jobs.minutes} min and {jobs.max_steps} steps"
    most, turn = f"{jobs.at_once} at once, each at most {each}", budget.limit_usd.turn
    if budget.mode == "hard" and turn is not None and turn < jobs.usd:
        meaning = "A job ends when it has spent as much as a turn may."
        fix = "Raise `budget.limit_usd.turn`, or lower `jobs.usd`."
        yield Finding("jobs", "warn", f"{most}; a turn may spend ${turn:.2f}", meaning, fix)
    else:
        yield Finding("jobs", "ok", most)
