"""The library's client for one session of the gateway: it calls its hooks, and never begins a second session.

Hooks are called in the order of the events, from within the library's reading, so they only enqueue. The library
itself starts a task per event, and tasks lose the order at their first wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

import aiohttp
import anyio
import discord
from anyio.abc import TaskGroup
from discord.gateway import DiscordWebSocket, KeepAliveHandler
from discord.http import HTTPClient
from yarl import URL

from transports.discord.api.invalid_requests import InvalidRequests
from transports.discord.api.payloads import readable
from transports.discord.api.sdk import Client, read_message
from transports.shared.link.supervisor import LinkDown

log = logging.getLogger(__name__)

DRAIN_S, CLOSE_WITHIN_S, LEFTOVERS_S = 1.5, 3.0, 0.5
"""At the end: for running answers to interactions, for the close, and for what is left; 5.5 s in all."""
INTERACTIONS_AT_ONCE = 256
VITAL_EVENTS = ("READY", "RESUMED")
"""Events without which there is no session."""


class Hooks(Protocol):
    """Receives the events of one session. What a hook raises is logged, and the session goes on."""

    def prepare(self, client: discord.Client, /) -> None:
        """Attach the slash commands, before the login."""

    def on_session(self) -> None:
        """Note that a session begins. Earlier messages may be missed, later ones are not."""

    def on_ready(self, client: discord.Client, /) -> None:
        """Take the guilds, as far as they have come in."""

    def on_message(self, message: discord.Message, /) -> None: ...

    def on_unread(self, kind: str, /) -> None:
        """Count a part of a message that cannot be read, by its kind."""

    def on_edit(self, payload: discord.RawMessageUpdateEvent, /) -> None: ...

    def on_reaction(self, event: discord.RawReactionActionEvent, /) -> None: ...

    def on_delete(self, channel_id: str, message_ids: Collection[str], /) -> None: ...

    async def on_interaction(self, interaction: discord.Interaction, /) -> None: ...

    def on_guild(self, guild: discord.Guild, /) -> None:
        """Take a guild; its channels and threads come by `on_channel`. May be called again."""

    def on_channel(self, channel: object, /) -> object:
        """Take a new or changed channel or thread."""

    def on_gone(self, channel_id: str, /) -> None:
        """Forget a deleted channel or thread."""


class Gateway(Client):
    """A client for one session. ``failure`` says why the session must end, if it does not end by itself."""

    def __init__(
        self,
        api_url: str,
        url: URL,
        invalid_requests: InvalidRequests,
        hooks: Hooks,
        connected: Callable[[], None],
        begin: Callable[[], None],
        tasks: TaskGroup,
        **options: Any,
    ) -> None:
        super().__init__(api_url, str(url), invalid_requests, enable_debug_events=True, **options)
        self._gateway, self._session_hooks = url, hooks
        self._connected, self._begin, self._tasks = connected, begin, tasks
        self._answers: set[anyio.CancelScope] = set()
        self._idle = anyio.Event()
        self.session_began = self.is_up = self.frame_seen = False
        self.failure: LinkDown | None = None
        self._hook_of = _hook_of(hooks)
        self._sockets: list[aiohttp.ClientWebSocketResponse] = []
        self.http.ws_connect = self._connect_to  # type: ignore[method-assign]
        parsers = self._connection.parsers
        for event in parsers.keys() - VITAL_EVENTS:
            parsers[event] = partial(self._read, event, parsers[event])
        hooks.prepare(self)

    async def _connect_to(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """Open a socket, which `shut_down` closes if nobody else does.

        The library begins each session at Discord's own address and has no setting for another one.
        """
        address = URL(url)
        if address.with_query(None) == DiscordWebSocket.DEFAULT_GATEWAY:
            address = self._gateway.with_query(address.query)
        self._sockets = [socket for socket in self._sockets if not socket.closed]
        try:
            self._sockets.append(await HTTPClient.ws_connect(self.http, str(address), compress=compress))
        except (aiohttp.ClientError, OSError) as error:
            if self.session_began:
                raise  # the library tries to resume
            raise LinkDown(f"no connection to the gateway: {type(error).__name__}: {error}") from None
        return self._sockets[-1]

    async def before_identify_hook(self, _shard: int | None, *, initial: bool = False) -> None:
        if not initial:
            raise LinkDown("Discord has ended the session")
        self._begin()

    def _read(self, event: str, parse: Callable[[Any], None], data: Any) -> None:
        """Have the library read an event. One that it cannot read would end the session, and the next one too."""
        if event == "MESSAGE_CREATE":
            read_message(parse, data, self._session_hooks.on_unread)
            return
        try:
            parse(readable(data) if event == "MESSAGE_UPDATE" else data)
        except Exception:  # the boundary of a transport: one odd event, and the next one is read
            log.exception("link.unreadable: what came cannot be read: %s", event)

    def dispatch(self, event: str, /, *args: Any, **more: Any) -> None:
        if event.startswith("socket_"):
            self.frame_seen = True
            return
        try:
            self._notify(event, *args)
        except Exception:  # the boundary of a transport: one odd event, and the next one is read
            log.exception("link.not_taken: what came was not taken: %s", event)
        super().dispatch(event, *args, **more)

    def _notify(self, event: str, *what: Any) -> None:
        match event:
            case "connect" | "resumed":
                self.session_began = self.is_up = True
                if event == "connect":
                    self._session_hooks.on_session()
                self._connected()
            case "disconnect":
                self.is_up = False
            case "ready":
                self._session_hooks.on_ready(self)
            case "interaction":
                self._start_answer(*what)
            case "guild_available" | "guild_join":
                self._take_guild(*what)
            case _ if hook := self._hook_of.get(event):
                hook(*what)

    def _take_guild(self, guild: discord.Guild) -> None:
        self._session_hooks.on_guild(guild)
        for channel in (*guild.channels, *guild.threads):
            self._session_hooks.on_channel(channel)

    def _start_answer(self, interaction: discord.Interaction) -> None:
        if len(self._answers) >= INTERACTIONS_AT_ONCE:
            log.warning("interaction.full: %d are under way, one is not taken", len(self._answers))
            return
        scope = anyio.CancelScope(shield=True)  # `shut_down` gives it the time it has
        self._answers.add(scope)
        self._tasks.start_soon(self._answer, interaction, scope)

    async def _answer(self, interaction: discord.Interaction, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._session_hooks.on_interaction(interaction)
        except Exception:  # the boundary of a transport: one press, and the next one is taken
            log.exception("interaction.failed: not taken")
        finally:
            self._answers.remove(scope)
            if not self._answers:
                self._idle.set()

    async def shut_down(self) -> None:
        """Close with 1000, and leave no task, thread or socket behind."""
        with anyio.CancelScope(shield=True):
            if self._answers:
                self._idle = anyio.Event()
                with anyio.move_on_after(DRAIN_S):
                    await self._idle.wait()
            for scope in self._answers:
                scope.cancel()
            with anyio.move_on_after(CLOSE_WITHIN_S):
                await self.close()
            with anyio.move_on_after(LEFTOVERS_S):
                for socket in self._sockets:  # one that was not handed over yet
                    await socket.close(code=1000)
            await self.http.close()  # which the library leaves open when its close takes too long
            await self._stop_heartbeats()
        if ready := self._connection._ready_task:  # noqa: SLF001  it waits for guilds, and is not waited for
            ready.cancel()

    async def _stop_heartbeats(self) -> None:
        """Wait for the heartbeat threads: one that is sending needs the loop once more."""
        beating = [
            thread
            for thread in threading.enumerate()
            if isinstance(thread, KeepAliveHandler) and thread.ws._connection is self._connection  # noqa: SLF001
        ]
        for thread in beating:
            thread.stop()
        with anyio.move_on_after(LEFTOVERS_S):
            while any(thread.is_alive() for thread in beating):  # noqa: ASYNC110  a thread has no event
                await anyio.sleep(0.01)


def _hook_of(hooks: Hooks) -> dict[str, Callable[..., object]]:
    """Return the hooks by the library's names of the events."""
    return {
        "message": hooks.on_message,
        "raw_message_edit": hooks.on_edit,
        "raw_reaction_add": hooks.on_reaction,
        "raw_message_delete": lambda gone: hooks.on_delete(str(gone.channel_id), (str(gone.message_id),)),
        "raw_bulk_message_delete": lambda gone: hooks.on_delete(
            str(gone.channel_id), tuple(map(str, gone.message_ids))
        ),
        **dict.fromkeys(("guild_channel_create", "thread_create", "thread_join"), hooks.on_channel),
        **dict.fromkeys(
            ("guild_channel_update", "thread_update", "private_channel_update"),
            lambda _, channel: hooks.on_channel(channel),
        ),
        "guild_channel_delete": lambda channel: hooks.on_gone(str(channel.id)),
        "raw_thread_delete": lambda gone: hooks.on_gone(str(gone.thread_id)),
    }
