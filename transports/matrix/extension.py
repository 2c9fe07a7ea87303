"""Matrix as an extension: accounts that the settings name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import Extension, TransportHost, TransportKind
from threads.model import Author
from transports.matrix.settings import SETTINGS, MatrixSettings

if TYPE_CHECKING:
    from bot.host.checks import Context, Findings
    from bot.host.setup import PlatformSetup
    from transports.matrix.client import Matrix, Options
    from transports.matrix.values import Room


def _options(settings: Settings, given: MatrixSettings, environ: Mapping[str, str]) -> Options:
    from bot.config.load import resolve_secret
    from transports.matrix.client import Options

    return Options(
        homeserver=given.homeserver,
        token=resolve_secret(given.token, environ),
        streaming=given.streaming,
        reactions=given.reactions,
        typing=given.typing,
        feedback=given.feedback,
        bots=frozenset(given.bots),
        max_age_s=settings.recovery.max_age_s,
    )


def _open(host: TransportHost) -> Matrix:
    import anyio.to_thread

    from threads.store.disk import PosixDisk
    from transports.matrix.client import Matrix
    from transports.matrix.intake import SyncState
    from transports.shared.checks import utc_now

    options = _options(host.current.settings, host.given, host.environ)
    transport = Matrix(
        replace(options, may_invite=partial(_may_invite, host)),
        host.current.settings.data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        name=host.name,
    )
    transport.open_state = partial(host.storage.states.open, f"{host.name}-sync", SyncState())
    transport.count_unread = host.count_unread
    return transport


def _may_invite(host: TransportHost, person: str, room: Room) -> bool:
    from bot.routing.access import AccessControl

    return AccessControl(host.current).may_use(Author(person), room.thread())


def _check(context: Context, name: str) -> Findings:
    from transports.matrix.checks import check_matrix

    given = served(context.settings)[name]
    assert isinstance(given, MatrixSettings)
    post_in = context.post_in if context.post_in.startswith("!") else ""  # another is a channel elsewhere
    return check_matrix(_options(context.settings, given, context.environ), post_in=post_in)


def _setup() -> PlatformSetup:
    from transports.matrix.setup import SETUP

    return SETUP


def _faults(settings: Settings) -> Iterable[str]:
    names = [name for name, given in served(settings).items() if isinstance(given, MatrixSettings)]
    if names and settings.store.kind != "files":
        yield (
            f'transports.{names[0]}: Matrix needs the store "files" for now, since the keys of encrypted rooms are '
            "on one machine: leave store.kind out."
        )


extension = Extension(
    "matrix",
    "serves accounts on Matrix, also in encrypted rooms",
    transports={
        "matrix": TransportKind(
            SETTINGS,
            _open,
            _check,
            about=lambda name, given: f"{name} at {given.homeserver}",
            needs="MATRIX_TOKEN",
            setup=_setup,
        )
    },
    faults=_faults,
)
