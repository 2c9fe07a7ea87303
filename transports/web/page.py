"""Makes the page from the settings, and the links with which people sign in at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from ipaddress import ip_network

import anyio.to_thread

from bot.budget.budgets import Policy
from bot.config.load import OFFLINE, resolve_secret, secrets_of
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings
from bot.config.transports import served
from bot.guards.redaction import Masker
from bot.host.extension import TransportHost, thread_commands
from bot.host.store_reader import open_reader, open_shared
from bot.llm.adapters.http_client import SharedHttp
from bot.ports.config_error import ConfigInvalid
from bot.routing.access import AccessControl
from bot.routing.commands import with_extensions
from bot.store.reader import WorkerRow
from threads.model import Author, ThreadId
from threads.store.json_file import States
from transports.base.transport import CONSOLE_USER
from transports.shared.checks import utc_now
from transports.web.address import Address
from transports.web.client import Options, WebTransport
from transports.web.look.views import Views
from transports.web.model_choice import ModelList
from transports.web.openid import OpenId
from transports.web.page_history import ThreadHistory
from transports.web.routes import barred
from transports.web.sessions import PERSON, Person, Sessions, WebState
from transports.web.settings import WebSettings
from transports.web.sign_in import ProxyHeader, SignIn
from transports.web.thread_list import NotesState
from transports.web.title_model import TitleModel


def page_settings(settings: Settings, port: int | None) -> WebSettings:
    """Return the settings of the page, the defaults where none is served, at this *port* if it is given."""
    named = served(settings).get("web")
    given = named if isinstance(named, WebSettings) else WebSettings()
    return given if port is None else given.model_copy(update={"port": port})


def make_page(host: TransportHost) -> WebTransport:
    """Return the page as a transport. At its start it tells its link, if somebody wants to know."""
    settings, given, environ, storage = host.current.settings, host.given, host.environ, host.storage
    access = AccessControl(host.current)
    views = Views(
        settings.name,
        partial(open_reader, settings, environ),
        host.status,
        host.events,
        Masker(secrets_of(settings, environ)),
        Policy.of(settings.budget),
        worker=storage.worker,
        transports=tuple(served(settings)),
        workers=partial(_workers, settings, environ),
        notes=lambda person: page.notes.of(person),  # noqa: PLW0108 - the page is made below
    )
    history = ThreadHistory(settings, environ)

    def forget_titles(thread: str) -> None:
        for titles in (history, views):
            titles.forget(thread)

    options = Options(
        address=address_of(given),
        name=settings.name,
        folder=given.files or settings.data / "web",
        most_file_bytes=settings.limits.attachment_mb * 1_000_000,
        commands=with_extensions(thread_commands(settings)),
        is_admin=access.is_admin,
        may_read=lambda person: access.may_use(Author(person), ThreadId("web", "", person, "")),
        tls=(str(given.tls_certificate), str(given.tls_key)) if given.tls_certificate else None,
        views=views.routes(),
        owner=Person(id=CONSOLE_USER) if host.on_open else None,
        on_open=host.on_open or (lambda _: None),
        list_models=ModelList(host.current, host.models, storage.states).of,
        demo=host.models[:1] == [OFFLINE],
        forget_titles=forget_titles,
        sign_in=sign_in_of(settings, given, environ),
    )
    page = WebTransport(
        options,
        history,
        partial(storage.states.open, "web", WebState()),
        lambda person: storage.states.open(f"web-threads-{person}", NotesState()),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        notices=storage.notices,
        files_are_apart=storage.notices is not None and given.files is None,
        title=TitleModel(host.agents, given.titles_model).title if given.titles else None,
    )
    storage.on_erase.append(page.erased)
    return page


def sign_in_of(settings: Settings, given: WebSettings, environ: Mapping[str, str]) -> SignIn | None:
    """Return how people sign in, None for links alone. Raises `ConfigInvalid` for a secret that cannot be read."""
    if (said := given.sign_in) is None:
        return None
    if said.header:
        return SignIn(ProxyHeader(said.header, [ip_network(proxy) for proxy in said.proxies]))

    secret = partial(resolve_secret, given.sign_in_secret, environ) if given.sign_in_secret else str
    secret()
    http = SharedHttp(settings.ca_file)
    return SignIn(openid=OpenId(said.issuer or "", said.client_id or "", said.claim, secret, http))


def _workers(settings: Settings, environ: Mapping[str, str]) -> Sequence[WorkerRow]:
    """Return the workers of a shared store, none of files. Raises OSError."""
    if (reader := open_shared(settings, environ)) is None:
        return ()
    with closing(reader):
        return reader.workers()


def address_of(given: WebSettings) -> Address:
    return Address(given.host, given.port, given.public_url or "", given.tls_certificate is not None)


async def make_link(states: States, settings: Settings, person: Person, port: int | None = None) -> str:
    """Return a new one-time link to the page of the running bot. Raises `ConfigInvalid` and OSError.

    Without a *port* the page is where it was served last. Workers that share a store have each their own, so theirs
    is in the settings.
    """
    if not PERSON.fullmatch(person.id):
        raise ConfigInvalid(
            f"{person.id!r}: a person's id is made of letters, digits and . _ @ -, 64 at most"
        )
    given = page_settings(settings, port)
    state = await states.open("web", WebState())
    if not state.value.key:
        raise ConfigInvalid("The page was never served from this data folder: start the bot first.")
    thread = ThreadId("web", "", person.id, "")
    may_use = AccessControl(CurrentSettings(settings)).may_use(Author(person.id), thread)
    if not may_use and person.id != state.value.owner:
        raise ConfigInvalid(f"{barred(person.id)} Or name somebody of access.users with --person.")
    url = state.value.url if port is None and settings.store.kind == "files" else ""
    if not url and given.port == 0:
        raise ConfigInvalid(
            "transports.web.port: a link has to name it; say --port with the one that is served"
        )
    return f"{url or address_of(given).url}/enter#{Sessions(state, utc_now).link(person)}"
