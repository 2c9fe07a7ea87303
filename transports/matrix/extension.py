"""Matrix as an extension: accounts that the settings name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import Extension, TransportHost, TransportKind
from bot.ports.config_error import ConfigInvalid
from threads.model import Author
from transports.matrix.settings import MISSING, SETTINGS, MatrixSettings

if TYPE_CHECKING:
    from bot.host.checks import Context, Findings
    from bot.host.setup import PlatformSetup
    from transports.matrix.client import Matrix
    from transports.matrix.values import Room

ONE_MACHINE = (
    'Matrix needs the store "files", as the keys of encrypted rooms are on one machine: leave it out.'
)


def _open(host: TransportHost) -> Matrix:
    if MISSING:
        raise ConfigInvalid(f"transports.{host.name}: {MISSING}")
    import anyio.to_thread

    from bot.config.load import resolve_secret
    from bot.routing.access import AccessControl
    from threads.store.disk import PosixDisk
    from transports.matrix.client import Matrix, Options
    from transports.matrix.intake import SyncState
    from transports.shared.checks import utc_now

    settings, access = host.current.settings, AccessControl(host.current)

    def may_invite(person: str, room: Room) -> bool:
        return access.may_use(Author(person), room.thread())

    token = resolve_secret(host.given.token, host.environ)
    links = frozenset(settings.links.allow)
    options = Options(host.given, token, settings.recovery.max_age_s, links, may_invite)
    offload = anyio.to_thread.run_sync
    transport = Matrix(options, settings.data, disk=PosixDisk(), offload=offload, now=utc_now, name=host.name)
    transport.open_state = partial(host.storage.states.open, f"{host.name}-sync", SyncState())
    transport.count_unread = host.count_unread
    return transport


def _check(context: Context, name: str) -> Findings:
    if MISSING:
        raise ConfigInvalid(f"transports.{name}: {MISSING}")
    from bot.config.load import resolve_secret
    from transports.matrix.checks import check_matrix

    given = served(context.settings)[name]
    assert isinstance(given, MatrixSettings)
    return check_matrix(given.homeserver, resolve_secret(given.token, context.environ), context.post_in)


def _setup() -> PlatformSetup:
    from transports.matrix.setup import SETUP

    return SETUP


def _faults(settings: Settings) -> Iterable[str]:
    names = [name for name, given in served(settings).items() if isinstance(given, MatrixSettings)]
    if names and MISSING:
        yield f"transports.{names[0]}: {MISSING}"
    if names and settings.store.kind != "files":
        yield f"store.kind: {ONE_MACHINE}"


KIND = TransportKind(SETTINGS, _open, _check, needs="MATRIX_TOKEN", setup=_setup)
ABOUT = "serves accounts on Matrix, also in encrypted rooms"
extension = Extension("matrix", ABOUT, transports={"matrix": KIND}, faults=_faults)
