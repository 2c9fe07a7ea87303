"""After a restore: what was forgotten since the backup is forgotten once more, before anybody is served."""

from __future__ import annotations

import logging

from bot.extensions.retention.forget import StillOpen, forget
from bot.extensions.retention.forgotten import came_back
from bot.extensions.retention.whom import Whom
from bot.host.extension import Host
from bot.store.restored_answers import restored
from threads.model import ThreadId

log = logging.getLogger(__name__)


async def forget_again(host: Host) -> None:
    """Forget whom a restore brought back. One with something open is left, and told of. Raises OSError."""
    data = host.settings.data
    came = await host.work(restored, data)
    for name in await came_back(host.disk, data, host.work, came):
        whom = Whom.named(name)
        for schedule in [one for one in host.schedules.all if whom.is_in(one.model_dump(mode="json"))]:
            await host.schedules.cancel(ThreadId.parse(schedule.thread), schedule.id)
        try:
            await forget(data, whom, host.disk, host.now, is_open_elsewhere=True)
            log.info("retention.forgot_again: a restore had brought %s back", name)
        except StillOpen as error:
            log.error("retention.came_back: stop the bot and run `threadfast forget` for %s: %s", name, error)  # noqa: TRY400
