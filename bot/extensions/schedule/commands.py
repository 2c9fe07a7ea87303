"""`/schedule` in a thread."""

from __future__ import annotations

from bot.schedules.store import Schedules
from bot.wording import IN_ITS_THREAD
from threads.model import Incoming, ThreadId
from threads.scheduled_messages import shortened

NO_SCHEDULES = 'Nothing is scheduled here. Ask me to, for example "remind me on Monday at 9 to call Ann".'
HINT = "/schedule cancel ID cancels one."


async def obey(schedules: Schedules, words: str, incoming: Incoming) -> str:
    """Run ``/schedule [cancel ID]`` and return the reply. Raises `StoreUnavailable`."""
    thread = incoming.thread
    match words.split():
        case _ if not thread.root:
            return IN_ITS_THREAD
        case [] | ["list"]:
            return listing(schedules, thread)
        case ["cancel", schedule_id]:
            if cancelled := await schedules.cancel(thread, schedule_id.lower()):
                return f"Cancelled: {shortened(cancelled.text)}"
            return f"There is no such schedule here.\n{HINT}"
        case _:
            return HINT


def listing(schedules: Schedules, thread: ThreadId) -> str:
    """Return the thread's schedules, one a line."""
    found = schedules.in_thread(thread)
    lines = [f"{schedule.id}: {schedules.describe(schedule)}" for schedule in found]
    return "\n".join([*lines, HINT]) if found else NO_SCHEDULES
