"""What was learned of each model of each server from its refusals, so that it costs a request once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from bot.ports.effort import Effort
from bot.ports.model import AnswerRoom
from threads.errors import StoreUnavailable
from threads.model import WallClock
from threads.store.json_file import JsonState, State

log = logging.getLogger(__name__)


KEPT_FOR = timedelta(days=30)
"""For how long it is believed. Servers are updated and get other switches, so each is asked again after that."""


class Learned(BaseModel):
    """What one model of a server takes: ``forms`` by part, ``window`` in tokens, and which ``efforts`` it refuses.

    ``room`` is what it has for an answer. ``at`` is when the first of it was learned; older files do not have it.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    forms: dict[str, str] = Field(default_factory=dict)
    window: int | None = None
    efforts: tuple[Effort, ...] = ()
    room: AnswerRoom = AnswerRoom()
    at: AwareDatetime | None = None


class ServersFile(JsonState):
    """``models`` maps the address of a server and the name of a model, with a blank between, to what was learned."""

    models: dict[str, Learned] = Field(default_factory=dict)


NOTHING = Learned.model_construct()  # without a validation: that would build the model at each start


class LearnedServers:
    """What was learned of all servers. Without a *state*, or as long as the disk refuses, it is kept in memory.

    *known* is what is in memory at first.
    """

    def __init__(
        self,
        state: State[ServersFile] | None = None,
        known: Mapping[str, Learned] | None = None,
        *,
        now: WallClock = lambda: datetime.now(UTC),
    ) -> None:
        self._state, self._now = state, now
        self._unsaved = dict(known or {})
        self._began = now()

    def of(self, key: str) -> Learned:
        """Return what is believed of a model. What has no time counts from the start of this process."""
        saved = self._state.value.models if self._state else {}
        known = self._unsaved.get(key) or saved.get(key)
        recent = known and self._now() - (known.at or self._began) < KEPT_FOR
        return known if known and recent else NOTHING

    async def learn(self, key: str, change: Callable[[Learned], Learned]) -> None:
        """Replace what is known of a model with what *change* makes of it."""
        old = self.of(key)
        new = self._unsaved[key] = change(old).model_copy(update={"at": old.at or self._now()})

        def put(old: ServersFile) -> ServersFile:
            return ServersFile(models={**old.models, key: new})

        if self._state:
            try:
                await self._state.change(put)
            except StoreUnavailable:
                log.warning("server.not_saved: what was learned of a server is kept in memory", exc_info=True)
            else:
                self._unsaved.pop(key, None)
