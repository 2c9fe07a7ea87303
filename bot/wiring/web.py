"""`threadfast web`: the page in the browser over the whole bot, alone or beside the platforms of `run`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from operator import attrgetter

import anyio.to_thread
import click
from cachetools import LRUCache

from bot.budget.budgets import Policy
from bot.config.load import SettingsFile, secrets_of
from bot.config.scopes import CurrentSettings
from bot.config.settings import Settings, Transports
from bot.config.settings import Web as WebSettings
from bot.guards.redaction import Masker
from bot.host.extension import thread_commands
from bot.host.storage import Resources, Storage
from bot.host.store_reader import open_reader
from bot.observe.turn_events import Observing
from bot.page.views import Views
from bot.ports.config_error import ConfigInvalid
from bot.reports.line_reader import Damage
from bot.reports.thread import entries, tool_calls
from bot.routing.access import AccessControl
from bot.routing.commands import with_extensions
from bot.store.reader import Reader, Thread
from bot.tools.labels import tool_finished, tool_started
from bot.wiring.app import utc_now
from bot.wiring.chat import completed, say_model, to_person, with_model, with_owner
from bot.wiring.run import PageSources, run_transports
from bot.wiring.store import make_storage
from threads.log import Entry
from threads.model import Author, ThreadId, ToolFinished, ToolStarted
from threads.store.disk import PosixDisk
from transports.console import CONSOLE_USER
from transports.shared.buttons import is_control
from transports.web.address import Address
from transports.web.client import Options, Web
from transports.web.events import Past
from transports.web.routes import barred
from transports.web.sessions import PERSON, Person, Sessions, WebState

TITLE = 80
"""Characters of a thread's first message that its list shows."""

FIRST_ENTRIES = 60
"""Entries at the beginning of a log that are searched for a title."""

MOST_TITLES = 5_000


async def run_web(
    settings: Settings,
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    *,
    port: int | None,
    opens: bool,
) -> None:
    """Serve the page to whoever started the program, until Ctrl-C. Changes of *file* are taken up.

    Raises as `bot.wiring.run.run_transports`.
    """
    settings, model, reason = await with_model(settings, environ)
    say_model(model, reason, settings.data, to_person)

    def complete(changed: Settings) -> Settings:
        return _page_alone(completed(settings, model, changed), port)

    await run_transports(complete(settings), environ, file, partial(_tell, opens=opens), complete)


def _page_alone(settings: Settings, port: int | None) -> Settings:
    """Return the settings for the page and nothing else, whose person is an admin."""
    observe = settings.observe
    if "log_level" not in observe.model_fields_set:  # a person reads the terminal
        observe = observe.model_copy(update={"log_level": "warning"})
    transports = Transports(web=_given(settings, port))
    return with_owner(settings.model_copy(update={"transports": transports, "observe": observe}))


def _given(settings: Settings, port: int | None) -> WebSettings:
    given = settings.transports.web or WebSettings()
    return given if port is None else given.model_copy(update={"port": port})


def _tell(link: str, *, opens: bool) -> None:
    print(f"Open {link}\nThe link works once, for 10 minutes. Ctrl-C stops the bot.", flush=True)  # noqa: T201
    if opens:
        click.launch(link)


def make_web(
    current: CurrentSettings,
    environ: Mapping[str, str],
    storage: Storage,
    page: PageSources,
) -> Web:
    """Return the page as a transport. At its start it tells its link, if somebody wants to know."""
    settings, access = current.settings, AccessControl(current)
    given = settings.transports.web or WebSettings()
    views = Views(
        settings.name,
        partial(open_reader, settings, environ),
        page.status,
        page.events,
        Masker(secrets_of(settings, environ)),
        Policy.of(settings.budget),
        worker=storage.worker,
    )
    options = Options(
        address=address_of(given),
        name=settings.name,
        folder=given.files or settings.data / "web",
        most_file_bytes=settings.limits.attachment_mb * 1_000_000,
        commands=with_extensions({one.usage: one.meaning for one in thread_commands(settings)}),
        is_admin=access.is_admin,
        may_read=lambda person: access.may_use(Author(person), ThreadId("web", "", person, "")),
        tls=(str(given.tls_certificate), str(given.tls_key)) if given.tls_certificate else None,
        views=views.routes(),
        owner=Person(id=CONSOLE_USER) if page.on_open else None,
        on_open=page.on_open or (lambda _: None),
    )
    return Web(
        options,
        ThreadHistory(settings, environ),
        partial(storage.states.open, "web", WebState()),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        notices=storage.notices,
        files_are_apart=storage.notices is not None and given.files is None,
    )


def address_of(given: WebSettings) -> Address:
    return Address(given.host, given.port, given.public_url or "", given.tls_certificate is not None)


async def make_link(
    settings: Settings, environ: Mapping[str, str], person: Person, port: int | None = None
) -> str:
    """Return a new one-time link to the page of the running bot. Raises `ConfigInvalid` and OSError.

    Without a *port* the page is where it was served last. Workers that share a store have each their own, so theirs
    is in the settings.
    """
    if not PERSON.fullmatch(person.id):
        raise ConfigInvalid(
            f"{person.id!r}: a person's id is made of letters, digits and . _ @ -, 64 at most"
        )
    given = _given(settings, port)
    resources = Resources(
        PosixDisk(), anyio.to_thread.run_sync, anyio.to_thread.run_sync, utc_now, Masker([]), Observing()
    )
    storage = make_storage(settings, environ, resources, anyio.to_thread.run_sync)
    state = await storage.states.open("web", WebState())
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


class ThreadHistory:
    """The threads and logs of the page: a `transports.web.talk.History` over the store of the settings."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ = settings, environ
        self._mask = Masker(secrets_of(settings, environ))
        self._titles: LRUCache[str, str] = LRUCache(MOST_TITLES)
        self._reading = threading.Lock()

    async def threads(self, person: str, most: int) -> Sequence[tuple[str, str, float]]:
        return await anyio.to_thread.run_sync(self._threads, person, most)

    async def past(self, thread: ThreadId, most: int, before: int | None = None) -> Past:
        return await anyio.to_thread.run_sync(self._past, str(thread), most, before)

    def _threads(self, person: str, most: int) -> list[tuple[str, str, float]]:
        start = f"web::{person}:"
        with self._reading, closing(open_reader(self._settings, self._environ)) as reader:
            found = [thread for thread in reader.threads("web") if thread.name.startswith(start)][:most]

            def title(thread: Thread) -> str:
                if thread.name not in self._titles:
                    begin = islice(entries(reader, thread, Damage()), FIRST_ENTRIES)
                    said = [one for one in begin if one.kind == "message" and not is_control(one.text)]
                    if not said:
                        return ""
                    first = min(said, key=attrgetter("at"))  # a log has messages by when they ended
                    self._titles[thread.name] = " ".join(first.text.split())[:TITLE]
                return self._titles[thread.name]

            return [(one.name.removeprefix(start), title(one), one.changed_at) for one in found]

    def _past(self, name: str, most: int, before: int | None) -> Past:
        with self._reading, closing(open_reader(self._settings, self._environ)) as reader:
            thread = next((one for one in reader.find(name) if one.name == name), None)
            if thread is None:
                return Past()
            count = reader.count(thread)
            end = count if before is None else min(before, count)
            first = max(0, end - most)
            messages = list[list[Entry]]()
            for entry in entries(reader, thread, Damage(), last=count - first):
                if entry.kind == "message" or not messages:
                    messages.append([])
                messages[-1].append(entry)
            shown = messages[max(0, len(messages) - (count - first)) :][: end - first]
            return Past(shown, self._tools(reader, thread, shown), first)

    def _tools(
        self, reader: Reader, thread: Thread, messages: Sequence[Sequence[Entry]]
    ) -> dict[str, list[ToolStarted | ToolFinished]]:
        """Return the events of the tools by the message whose turn used them."""
        joined = {end.message_id: end.by for *_, end in messages if end.outcome == "merged"}
        found: dict[str, list[ToolStarted | ToolFinished]] = {}
        for source, made in tool_calls(reader, thread).items():
            about = source.partition(".")[0]  # a stage of a playbook has its name after the message's id
            events = found.setdefault(joined.get(about) or about, [])
            for one in made:
                events.append(tool_started(one.call, self._mask))
                if one.result:
                    events.append(tool_finished(one.call, one.result, self._mask))
        return found
