"""`threadfast run`: serves the transports in the settings until the process ends."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

from bot.config.load import SettingsFile, check_start, secrets_of
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import TransportHost, extensions_of, transport_kinds
from bot.host.model_settings import offered, used
from bot.host.storage import Storage
from bot.llm.detect_model import with_model
from bot.observe.event_stream import EventStream
from bot.observe.logs import configure_logging, log_format_for
from bot.observe.shutdown import Stop
from bot.observe.supervision import supervised
from bot.observe.systemd_notify import Notify
from bot.observe.turn_events import Observing
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import Status
from bot.wiring.agents import Agents
from bot.wiring.app import serve
from bot.wiring.chat import completed
from bot.wiring.reload import Reload
from bot.wiring.verify_models import verify_all
from transports.base.transport import Transport

log = logging.getLogger(__name__)


async def run_transports(
    settings: Settings,
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    on_open: Callable[[str], None] | None = None,
    complete: Callable[[Settings], Settings] | None = None,
) -> None:
    """Serve until cancelled or stopped by a signal; see `bot.observe.shutdown`. Changes of *file* are taken up.

    *on_open* is called with a link to the page for whoever started the program. *complete* adds to the settings of a
    changed file what was added to *settings*, by default a model that was found.
    Raises `ConfigInvalid` if a person has to fix something, and as `serve`.
    """
    stop, notify = Stop(settings.recovery.drain_s), Notify.from_environ(os.environ)
    await stop.run(partial(serve_until_stopped, settings, environ, stop, notify, file, on_open, complete))


async def serve_until_stopped(
    settings: Settings,
    environ: Mapping[str, str],
    stop: Stop,
    notify: Notify,
    file: SettingsFile | None = None,
    on_open: Callable[[str], None] | None = None,
    complete: Callable[[Settings], Settings] | None = None,
) -> None:
    faulthandler.enable()  # systemd's watchdog ends a stuck process with SIGABRT; the log then has its stack
    settings, model, reason = await with_model(settings, environ)
    named = settings.model_copy(update={"model": model})
    if faults := check_start(named, environ, transports=True):
        raise ConfigInvalid("\n".join(faults))
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = settings.observe
    form = log_format_for(sys.stderr, given.log_format if "log_format" in given.model_fields_set else None)
    configure_logging(given.log_level, form, sys.stderr, secrets=secrets_of(settings, environ))
    if not served(settings):
        raise ConfigInvalid(_nothing_named())
    log.info("model.chosen: %s (%s)", model, reason)
    if settings.verify_providers:
        await verify_all(used(named), settings, environ)
    events, published, answering = EventStream(), list[Callable[[], Status]](), list[Agents]()

    def status() -> Status | None:
        """Return the status of this process; None until it is observed."""
        return published[-1]() if published else None

    watch = partial(
        supervised, observe=given, stop=stop, notify=notify, events=events, publish=published.append
    )
    async with AsyncExitStack() as stack:
        observers = [one.observers for one in extensions_of(settings) if one.observers]
        opened = [await stack.enter_async_context(observe(settings)) for observe in observers]
        sinks = [sink for sink in opened if sink]
        observing = Observing(events, *sinks)
        others = {path: page for sink in sinks for path, page in sink.pages.items()}
        current = CurrentSettings(settings)
        host = partial(
            TransportHost,
            current=current,
            environ=environ,
            status=status,
            events=events,
            on_open=on_open,
            agents=lambda: answering[-1] if answering else None,
        )
        complete = complete or partial(completed, settings, model)
        await serve(
            settings,
            environ,
            model=model,
            make_transports=partial(_transports, host, settings, model, observing.unread),
            on_agents=answering.append,
            watch=partial(watch, others=others),
            observing=observing,
            on_audit=events.audited,
            reload=Reload(current, file, environ, complete, notify) if file else None,
        )


def _nothing_named() -> str:
    kinds = transport_kinds().items()
    named = (
        f'"{name}": {{}}{f" (with {kind.needs} in the environment)" if kind.needs else ""}'
        for name, kind in kinds
    )
    return f"transports: none is named; add {', or '.join(named)}; or talk to it here with: threadfast chat"


def _transports(
    host: partial[TransportHost],
    settings: Settings,
    model: str,
    count_unread: Callable[[str, str], None],
    storage: Storage,
) -> Sequence[Transport]:
    kinds = transport_kinds(settings)
    host = partial(host, storage=storage, models=offered(settings, model))
    return [
        kinds[given.kind].open(host(name=name, given=given, count_unread=partial(count_unread, name)))
        for name, given in served(settings).items()
    ]
