"""Jobs: the tool `start_job`, and `/jobs` in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.config.scopes import enabled_anywhere
from bot.extensions.jobs.settings import JOBS, SLOTS
from bot.host.extension import Extension, Host, Running, ThreadCommand
from threads.background import background_tasks

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

COMMAND = ThreadCommand(
    "jobs",
    "/jobs [stop ID | report ID]",
    "list the work in the background, stop it, or show its report again",
    off="Nothing is done in the background here: that is off. Whoever runs this bot turns it on by adding `jobs` to "
    "`tools.enabled` in settings.json.",
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "jobs" not in host.enabled:
        yield None
        return

    from bot.extensions.jobs.jobs import Jobs  # noqa: PLC0415
    from bot.extensions.jobs.records import JobsFile, JobStore, Slot  # noqa: PLC0415
    from bot.extensions.jobs.tool import StartJob  # noqa: PLC0415

    slots = [await host.states.open(f"job-{slot}", Slot()) for slot in range(SLOTS)]
    state = await host.states.open("jobs", JobsFile())
    async with background_tasks() as tasks:
        alone = host.settings.store.kind == "files"
        jobs = Jobs(JobStore(state, slots, host.now), host.agents, host.keep_workspace, tasks, alone)
        state.on_change = jobs.stop_those_that_are_over
        tasks.start_soon(jobs.serve)
        tools, obey = {"jobs": [StartJob(jobs, JOBS.of(host.settings))]}, {"jobs": jobs.obey}
        yield Running(tools=tools, obey=obey, turns={"jobs": jobs}, receiving=jobs.receiving)


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.jobs.checks import check_jobs  # noqa: PLC0415
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("jobs", check_jobs)] if "jobs" in enabled_anywhere(context.settings) else []


extension = Extension(
    "jobs",
    "works in the background, and reports into the thread when that is done",
    page="docs/operations.md",
    settings=(JOBS,),
    thread_commands=(COMMAND,),
    open=_open,
    checks=_checks,
)
