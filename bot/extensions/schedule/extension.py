"""The tools `schedule`, `schedules` and `unschedule`, and `/schedule` in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from bot.config.settings import Tools
from bot.host.extension import Extension, Host, Running, ThreadCommand

COMMAND = ThreadCommand(
    "schedule",
    "/schedule [cancel ID]",
    "list the schedules of this thread, or cancel one",
    off="Nothing can be scheduled here: that is off. Whoever runs this bot turns it on by adding `schedule` to "
    "`tools.enabled` in settings.json, beside those that are there (without the key: "
    f"{', '.join(Tools.model_fields['enabled'].default)}).",
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "schedule" not in host.enabled:
        yield None
        return
    from bot.extensions.schedule.commands import obey  # noqa: PLC0415 - off by default
    from bot.extensions.schedule.tools import CancelSchedule, ListSchedules, SetSchedule  # noqa: PLC0415

    schedules = host.schedules
    sets = SetSchedule(schedules, host.offload, host.settings.schedule.min_interval_minutes)
    tools = sets, ListSchedules(schedules), CancelSchedule(schedules)
    yield Running(tools={"schedule": tools}, obey={"schedule": partial(obey, schedules)})


extension = Extension(
    "schedule",
    "lets people have messages sent to a thread later, once or regularly",
    page="docs/operations.md",
    thread_commands=(COMMAND,),
    open=_open,
)
