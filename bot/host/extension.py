"""The door: everything that an extension may bring to the program, and everything that it is given.

An extension is a folder with a module that has an `Extension` called ``extension``. Those of the program stand in
`bot.config.built_in_extensions`. Another package names its own as an entry point in `threadfast.extensions`.

| it brings                     | by                                   | used by                                |
|-------------------------------|--------------------------------------|----------------------------------------|
| its part of settings.json     | ``settings``                         | `check`, every start, `schema`         |
| a command, turns in threads   | ``thread_commands``, `Running`       | people in a thread                     |
| a chat platform               | ``transports``                       | `run`, `init`, `doctor`, `check`       |
| models                        | ``models``                           | `providers.NAME.kind`                  |
| tools                         | `Running.tools`, `Host.offer`        | the model, under the policy of tools   |
| text for the system prompt, the model | `Running.instructions`, `.prepare`, `.extend` | each turn             |
| a word on tool calls          | `Running.review`                     | calls that no rule denies              |
| what a file says              | ``documents``, `Running.to_text`     | each turn with files, tools            |
| a sink of turn events, pages  | ``observers``                        | a running bot, the port of its health  |
| what commands can send it     | `Running.posts`                      | the socket of the data folder          |
| what status says of it        | `Running.facts`, `.troubles`, `.off` | status, health, `/status`, the page    |
| work in the background        | ``open``: the block around the bot   | a running bot                          |
| commands, JSON Schemas        | ``commands``, a row in `BUILT_IN`    | the command line, `threadfast schema`  |
| a store for many workers      | ``stores``                           | a bot, and all commands that look      |
| checks                        | ``checks``, ``faults``, ``warnings`` | `threadfast doctor`, `check`           |
| its page of the manual        | ``page``                             | `threadfast extensions list`           |

All is optional. Every command imports the modules of extensions: what is slow to import stands in functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bot.config.extensions import installed, installed_for, missing_words
from bot.config.parts import SettingsPart
from bot.config.settings import Settings
from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from bot.budget.accounts import SpendingLedger
    from bot.config.scopes import CurrentSettings
    from bot.config.transports import TransportSettings
    from bot.guards.egress import Egress
    from bot.guards.redaction import Masker
    from bot.host.agents import Agents, MakeModel, PlaceModels
    from bot.host.checks import Check, Context, Findings
    from bot.host.setup import PlatformSetup
    from bot.host.storage import Resources, Storage
    from bot.observe.audit import Note
    from bot.observe.event_stream import EventStream
    from bot.observe.live_parts import Posts
    from bot.observe.turn_events import Sink as Observer
    from bot.ports.status import Status
    from bot.ports.tool import Tool, ToolContext
    from bot.schedules.store import Schedules
    from bot.store.reader import SharedReader
    from bot.tools.approvals import Review
    from bot.tools.files.write import Writer
    from bot.tools.recovery import SignIn
    from bot.tools.web.tool import WebFetch
    from threads.journal.records import PendingMessage
    from threads.model import File, Incoming, Message, Outgoing, Sink, Spoken, ThreadId, Turn, WallClock
    from threads.store.disk import Disk, Offload
    from threads.store.json_file import States
    from threads.store.thread_files import Documents
    from transports.base.transport import Transport


@dataclass(frozen=True, slots=True)
class ThreadCommand:
    """A command that people type in a thread: ``/name``. ``usage`` and ``meaning`` are its line in `/help`.

    ``off`` is the reply while the extension is not open, ``is_turn`` whether these words need a turn of the thread.
    """

    name: str
    usage: str
    meaning: str
    off: str
    is_turn: Callable[[str], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class Host:
    """What a running bot gives an extension.

    ``offload`` runs short blocking jobs that people wait for, ``work`` longer ones of tools. ``states`` keeps small
    values over a restart, ``workspace`` returns a thread's folder. ``writer`` stores files within the quota. ``post``
    posts to any channel that is served; it may raise `threads.errors.PostFailed`. ``transports`` are for all but
    posts. ``learn`` masks more secrets. ``web_fetch`` may be off. ``enabled`` are the names in `tools.enabled`.
    ``offer`` replaces the tools of a group, from the next turn on. ``is_admin`` takes a person's id. ``schedules``
    send messages later, ``ledger`` counts costs, ``note`` audits. ``keep_workspace`` makes files as durable as their
    thread. ``agents`` answer turns, once it serves. ``erase`` erases parts of a thread, if idle.
    """

    settings: Settings
    environ: Mapping[str, str]
    enabled: frozenset[str]
    disk: Disk
    offload: Offload
    work: Offload
    now: WallClock
    mask: Masker
    learn: Callable[[Collection[str]], None]
    states: States
    workspace: Callable[[ThreadId], Awaitable[Path]]
    documents: Documents
    writer: Writer
    egress: Egress
    web_fetch: WebFetch | None
    post: Callable[[Outgoing], Awaitable[str]]
    transports: Sequence[Transport]
    offer: Callable[[str, Sequence[Tool]], None]
    is_admin: Callable[[str], bool]
    schedules: Schedules
    ledger: SpendingLedger
    keep_workspace: Callable[[ThreadId], Awaitable[None]]
    note: Note
    agents: Callable[[], Agents | None]
    erase: Callable[[ThreadId, Collection[str], Callable[[], Awaitable[None]]], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """How far an extension came in a turn before a restart.

    The turn may take ``time_s`` seconds. It asks people as the message ``asks_as``. If it ``continues``, the restart
    is no attempt: it waits for a person, or came further than at the start before.
    """

    time_s: float
    asks_as: str
    continues: bool


class OwnTurns(Protocol):
    """The turns of a thread command that an extension answers in the model's place, within limits of its own.

    ``is_turn`` returns whether these words need a turn now, ``stops`` whether they mean `/stop`. ``run`` answers a
    turn as `threads.model.Run` does. ``unfinished`` knows its turns after a restart. ``forget`` drops what is kept of
    a thread, because its conversation begins anew; it may raise `threads.errors.StoreUnavailable`.
    """

    def is_turn(self, thread: ThreadId, words: str) -> bool: ...

    def stops(self, thread: ThreadId, words: str) -> bool: ...

    async def run(self, turn: Turn, agents: Agents) -> str: ...

    def unfinished(self, pending: PendingMessage) -> Unfinished | None: ...

    async def forget(self, thread: ThreadId) -> None: ...


@dataclass(frozen=True, slots=True)
class Running:
    """What an extension brings to a running bot.

    ``tools`` are its tools by group: a name in `tools.enabled`, or for tools of its own making (``GROUP__NAME``) the
    name of where they come from. Those that are ``off`` cannot work here, for a reason. ``obey`` carries out a thread
    command: it gets the words after it, returns the reply, and may raise `threads.errors.StoreUnavailable`. ``turns``
    has the turns that a command is answered with; such a command is about a thread, and its ``is_turn`` does not
    count. ``prepare`` runs before a turn; text that it returns is the whole answer. ``extend`` adds to a person's
    message before the model sees it. ``instructions`` return text for the system prompt of those who have the tools
    of a group; they run in a thread. ``to_text`` gives a message's file its text. ``receiving`` wraps the sink of all
    events. No line that ``is_forgotten`` is read again. ``sign_in`` returns how an asker signs in, by the group of a
    tool. ``posts`` takes what is sent to the socket, by path.
    """

    tools: Mapping[str, Sequence[Tool]] = field(default_factory=dict)
    off: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    obey: Mapping[str, Callable[[str, Incoming], Awaitable[str]]] = field(default_factory=dict)
    turns: Mapping[str, OwnTurns] = field(default_factory=dict)
    troubles: Callable[[], str] = lambda: ""
    instructions: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    prepare: Callable[[Turn], Awaitable[str]] | None = None
    extend: Callable[[Incoming, Message], Awaitable[Message]] | None = None
    to_text: Callable[[Turn, File, PlaceModels], Awaitable[File]] | None = None
    receiving: Callable[[Sink], Sink] | None = None
    is_forgotten: Callable[[ThreadId, Spoken], bool] | None = None
    sign_in: Callable[[str, ToolContext], SignIn | None] | None = None
    review: Review | None = None
    posts: Posts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransportHost:
    """What a transport is made of. ``name`` is what the settings call it, and ``given`` its part of them.

    A thread may choose one of ``models``. ``count_unread`` counts by kind what people see and the bot cannot read.
    ``on_open``, if somebody started the program by hand, gets a link. ``agents`` answer turns, once it is served.
    """

    name: str
    given: Any
    current: CurrentSettings
    environ: Mapping[str, str]
    storage: Storage
    models: Sequence[str]
    count_unread: Callable[[str], None]
    status: Callable[[], Status | None]
    events: EventStream
    on_open: Callable[[str], None] | None = None
    agents: Callable[[], Agents | None] = lambda: None


@dataclass(frozen=True, slots=True)
class TransportKind:
    """A chat platform. The settings may name it several times, each with its own part of them.

    ``open`` makes a transport; it raises `ConfigInvalid` for a secret that cannot be read. ``checks`` looks at the
    transport of a name for `doctor`, and may raise the same. ``about`` says in a few words what is served by its name
    and settings, and ``needs`` what has to be in the environment. ``setup`` is how `threadfast init` sets one up.
    """

    settings: TransportSettings
    open: Callable[[TransportHost], Transport]
    checks: Callable[[Context, str], Findings]
    about: Callable[[str, Any], str] = lambda name, _: name
    needs: str = ""
    setup: Callable[[], PlatformSetup] | None = None


@dataclass(frozen=True, slots=True)
class StoreKind:
    """Where everything is kept in place of files: one store that many workers share.

    ``open`` makes it for a bot, ``read`` for commands that look, ``states`` small values. All raise `ConfigInvalid`.
    """

    open: Callable[[Settings, Mapping[str, str], Resources], Storage]
    read: Callable[[Settings, Mapping[str, str]], SharedReader]
    states: Callable[[Settings, Mapping[str, str]], AbstractAsyncContextManager[States]]


@dataclass(frozen=True, slots=True)
class Extension:
    """One extension. ``about`` says in one line what it is for; ``page`` is its page of the manual.

    ``transports`` are chat platforms by kind, ``models`` makes models by the kind of their provider, ``stores`` are
    by `store.kind`. ``commands`` are of the program; built-in extensions have theirs in `BUILT_IN`. ``documents``
    makes what reads files of others, for the whole bot: the last one counts. ``open`` is a block around a running
    bot; it yields None where the settings ask for nothing. ``observers`` is the same for a sink of events. ``checks``
    are for `threadfast doctor`, ``faults`` and ``warnings`` for `check`, ``groups`` where tools of its own come from.
    """

    name: str
    about: str
    page: str = ""
    settings: Sequence[SettingsPart[Any]] = ()
    transports: Mapping[str, TransportKind] = field(default_factory=dict)
    models: Mapping[str, MakeModel] = field(default_factory=dict)
    commands: Sequence[click.Command] = ()
    thread_commands: Sequence[ThreadCommand] = ()
    documents: Callable[[Offload], Documents] | None = None
    open: Callable[[Host], AbstractAsyncContextManager[Running | None]] | None = None
    observers: Callable[[Settings], AbstractAsyncContextManager[Observer | None]] | None = None
    stores: Mapping[str, StoreKind] = field(default_factory=dict)
    checks: Callable[[Context], Sequence[Check]] = lambda _: ()
    faults: Callable[[Settings], Iterable[str]] = lambda _: ()
    groups: Callable[[Settings], Sequence[str]] = lambda _: ()
    warnings: Callable[[Settings], Iterable[str]] = lambda _: ()


def extensions_of(settings: Settings | None) -> Sequence[Extension]:
    """Return the extensions that serve these settings, without settings those of the program."""
    here = installed_for(settings) if settings else installed()
    return [one for one in here.extensions.values() if isinstance(one, Extension)]


def transport_kinds(settings: Settings | None = None) -> Mapping[str, TransportKind]:
    """Return the chat platforms by name: all of the program, and those that the settings name."""
    return {name: kind for one in extensions_of(settings) for name, kind in one.transports.items()}


def store_kind(settings: Settings) -> StoreKind | None:
    """Return the store of the settings, None for files. Raises `ConfigInvalid` if nothing here brings it."""
    if (name := settings.store.kind) == "files":
        return None
    for extension in extensions_of(settings):
        if name in extension.stores:
            return extension.stores[name]
    raise ConfigInvalid(f"store.kind: {missing_words(name, name)}")


def groups_of(settings: Settings) -> Sequence[str]:
    """Return where tools of extensions come from, such as the MCP servers by name."""
    return [group for extension in extensions_of(settings) for group in extension.groups(settings)]


def thread_commands(settings: Settings) -> Sequence[ThreadCommand]:
    """Return the commands that extensions bring to threads."""
    return [command for extension in extensions_of(settings) for command in extension.thread_commands]
