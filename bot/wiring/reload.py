"""Takes up a changed settings.json while the bot runs: on SIGHUP, and when the file changes.

| the file                                          | then                                                      |
|---------------------------------------------------|-----------------------------------------------------------|
| is valid                                          | its live keys count from the next turn on                 |
| changes other keys too                            | these count at the next start, and the log names them     |
| has a fault, or names a model that cannot be used | nothing changes; log, `/status` and operators are told    |

`bot.config.changes` says which keys are live. A running turn ends with the settings that it began with.

A file written in place, a file that replaces another one, and a link that points elsewhere are all noticed. The file
is read once it has stayed the same between two looks, because an editor may still be writing.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from bot import wording
from bot.config.changes import changes
from bot.config.load import SettingsFile
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings
from bot.observe.systemd_notify import Notify
from bot.ports.config_error import ConfigInvalid
from threads.store.disk import Offload

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at the file."""

MOST_NAMED = 8
"""Keys that a log line names."""

Check = Callable[[Settings], Awaitable[Sequence[str]]]
"""Returns what of these settings counts at the next start only. Raises `ConfigInvalid` if they cannot be used."""

Signature = tuple[int, ...]
"""Changes whenever the file does. Empty if there is none."""


@dataclass(slots=True)
class Reload:
    """The settings of a running bot, and the file that they come from.

    ``complete`` adds to the file's settings what the start added. With a ``notify`` SIGHUP reloads,
    unless `hang_up_reloads` says no.
    """

    current: CurrentSettings
    file: SettingsFile
    environ: Mapping[str, str]
    complete: Callable[[Settings], Settings]
    notify: Notify | None = None
    _faults: list[str] = field(default_factory=list, init=False)
    _later: list[str] = field(default_factory=list, init=False)
    _reading: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    @property
    def trouble(self) -> str:
        """A clause on why the file does not count, blank if it does."""
        return wording.SETTINGS_REJECTED if self._faults else ""

    def start(self, tasks: TaskGroup, offload: Offload, check: Check, report: Callable[[str], None]) -> None:
        """Reload from now on. *report* tells the operators of a file that does not count."""

        async def take_up(*, asked: bool = False) -> None:
            async with self._reading:
                await self._take_up(offload, check, report, asked=asked)

        tasks.start_soon(self._watch, offload, take_up)
        if self.notify and hang_up_reloads():
            tasks.start_soon(self._listen, self.notify, partial(take_up, asked=True))

    async def _watch(self, offload: Offload, take_up: Callable[[], Awaitable[None]]) -> None:
        """Take the file up when it has changed and has come to rest."""
        taken: Signature | None = None  # The file may have changed since the start has read it.
        before: Signature | None = None
        while True:
            seen = await offload(self.file.signature)
            if seen == before and seen != taken:
                taken = seen
                await take_up()
            before = seen
            await anyio.sleep(LOOK_S)

    async def _listen(self, notify: Notify, take_up: Callable[[], Awaitable[None]]) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            async for _ in signals:
                with notify.reloading():
                    await take_up()

    async def _take_up(
        self, offload: Offload, check: Check, report: Callable[[str], None], *, asked: bool
    ) -> None:
        """Take up the whole file, or nothing of it. If a person *asked*, the log says so even if nothing changed."""
        try:
            loaded = await offload(self.file.load, self.environ)
            new = changes(self.current.settings, self.complete(loaded))
            later = [*new.restart, *await check(new.settings)]
        except ConfigInvalid as error:
            faults = self.file.faults(error)
            if asked or faults != self._faults:
                log.warning("settings.rejected: the ones before go on: %s", "; ".join(faults))
            if faults != self._faults:
                report(wording.settings_rejected(faults))
            self._faults = faults
            return
        if new.live:
            self.current.replace(new.settings)
        if asked or new.live or later != self._later or self._faults:
            log.info(
                "settings.reloaded: changed now: %s; at the next start: %s",
                _named(new.live),
                _named(later),
                extra={"changed": list(new.live), "restart": later},
            )
        self._faults, self._later = [], later


def hang_up_reloads() -> bool:
    """Return whether SIGHUP is a wish to reload. In a terminal it means that the terminal is gone."""
    return sys.stdin is None or not sys.stdin.isatty()


def _named(paths: Sequence[str]) -> str:
    """Return these paths in one clause."""
    more = len(paths) - MOST_NAMED
    return (", ".join(paths[:MOST_NAMED]) or "nothing") + (f" and {more} more" if more > 0 else "")
