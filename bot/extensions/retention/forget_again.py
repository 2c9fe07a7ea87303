"""After a restore: what was forgotten since the backup is forgotten once more, before anybody is served."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial

from bot.extensions.retention.forget import StillOpen, forget
from bot.extensions.retention.forget_shared import forget_shared
from bot.extensions.retention.forgotten import ForgottenFile, came_back, missing_from, note, open_list
from bot.extensions.retention.whom import Whom
from bot.host.extension import Host
from bot.host.store_reader import open_shared
from bot.store.restored_answers import restored
from threads.model import ThreadId
from threads.store.json_file import State

log = logging.getLogger(__name__)


async def forget_again(host: Host) -> None:
    """Forget whom a restore of the data folder brought back. Raises OSError."""
    data = host.settings.data
    names = await came_back(host.disk, data, host.work, await host.work(restored, data))
    take = partial(forget, data, disk=host.disk, now=host.now, is_open_elsewhere=True)
    await _forget_all(host, names, take)


async def forget_again_together(host: Host, listed: State[ForgottenFile]) -> None:
    """Forget whom a restore of the store of many workers brought back. Raises OSError and `StoreUnavailable`."""

    def take(whom: Whom) -> None:
        if reader := open_shared(host.settings, host.environ):
            with closing(reader):
                forget_shared(reader, whom, host.now)

    receipts = await missing_from(listed, await open_list(host.disk, host.settings.data, host.work))
    await _forget_all(host, receipts, lambda whom: host.work(take, whom))
    if receipts:
        await note(listed, receipts)


async def _forget_all(host: Host, names: Iterable[str], take: Callable[[Whom], Awaitable[object]]) -> None:
    """Forget them. One with something open is left, and told of."""
    for name in names:
        whom = Whom.named(name)
        for schedule in [one for one in host.schedules.all if whom.is_in(one.model_dump(mode="json"))]:
            await host.schedules.cancel(ThreadId.parse(schedule.thread), schedule.id)
        try:
            await take(whom)
            log.info("retention.forgot_again: a restore had brought %s back", name)
        except StillOpen as error:
            log.error("retention.came_back: stop the bot and run `threadfast forget` for %s: %s", name, error)  # noqa: TRY400
