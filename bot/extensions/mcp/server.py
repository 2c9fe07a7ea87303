"""The owner of one server's connection: a task that opens it, serves the calls, and closes it.

| from       | event                                                    | to                              |
|------------|----------------------------------------------------------|---------------------------------|
| stopped    | a call, or a request to learn its tools                  | connecting                      |
| connecting | connected, and its tools listed                          | connected                       |
| connecting | failed, or not done in time                              | waiting; the calls fail         |
| connected  | no call for 10 min                                       | stopped                         |
| connected  | it says that its tools changed                           | connected; they are listed      |
| connected  | it ended, or three calls in a row timed out              | waiting; the calls it had fail  |
| connected  | it does not know the session, or is gone before a call   | connecting; the call waits      |
| waiting    | 1, 2, 4 … 60 s are over, a call in the last 10 min       | connecting                      |
| waiting    | the same, no call, but its tools are not known yet       | connecting                      |
| waiting    | the same, no call, and they are known                    | stopped                         |
| any        | the server wants a sign-in that nobody is there for      | stopped; `SignInNeeded`         |

A failure is a connection that failed or ended; an answered call resets the count. The circuit:

| circuit   | when                                          | a call                            |
|-----------|-----------------------------------------------|-----------------------------------|
| closed    | fewer than three failures in a row            | waits for the connection          |
| open      | waiting, after the third                      | is refused at once                |
| half-open | connecting after that: the one probe          | waits for its outcome             |

Callers wait for an event, each until its own deadline. What the SDK raises or cancels ends only the connection: its
calls get `McpUnavailable`, since they may or may not have worked. A call that cannot have run is made again, once.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast

import anyio
from pydantic import JsonValue

from bot.extensions.mcp.connection import ConnectionLost, NotRun, StderrLog, resolve_values, settings_digest
from bot.extensions.mcp.settings import McpServer
from bot.extensions.mcp.tool_list import Listing, RawTool, check_tools
from bot.guards.redaction import Masker
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import McpUnavailable, SignInNeeded, ToolBusy, ToolError, ToolTimeout
from threads.background import background_tasks
from threads.errors import retry_fields
from threads.store.disk import Offload

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from bot.extensions.mcp.http import Guard
    from bot.extensions.mcp.oauth import Auth
    from bot.extensions.mcp.session import McpSession

log = logging.getLogger(__name__)

State = Literal["stopped", "connecting", "connected", "waiting"]

MAX_WAITING = 64
"""Calls that may wait for one server."""
MAX_RUNNING = 16
"""Calls of one server that run at once."""
OPEN_AFTER = 3
"""Failures in a row that open the circuit, and time-outs in a row that end a connection."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds. The first start of a program may have to download it.

    ``relist`` is the pause before tools that have changed are listed: changes come in bursts.
    """

    program: float = 30.0
    address: float = 10.0
    idle: float = 600.0
    leave: float = 5.0
    first_pause: float = 1.0
    longest_pause: float = 60.0
    relist: float = 1.0

    def pause(self, failures: int) -> float:
        """Return the wait after so many failures in a row, 1 or more."""
        return float(min(self.first_pause * 2.0 ** min(failures - 1, 10), self.longest_pause))


DEFAULT_TIMEOUTS = Timeouts()
T = TypeVar("T")


class Authenticator(Protocol):
    """Signs the requests of a server's connections. ``how`` says in a clause how somebody signs in."""

    @property
    def how(self) -> str: ...

    @property
    def guard(self) -> Guard:
        """Return what checks the addresses that a sign-in leads to."""

    async def authenticate(self) -> Auth:
        """Return the authentication of one connection. Raises `StoreUnavailable` and `ConfigInvalid`."""


@dataclass(eq=False, slots=True)
class _Call:
    """One request, from its caller to the owner and back. A result is never None.

    It is ``repeated`` once it was found that it cannot have run.
    """

    make: Callable[[McpSession], Awaitable[object]]
    scope: anyio.CancelScope
    repeated: bool = False
    settled: anyio.Event = field(default_factory=anyio.Event)
    result: object = None
    error: ToolError | None = None

    def settle(self, error: ToolError | None = None) -> None:
        self.error = self.error or error
        self.settled.set()


class Server:
    """The server called *name*. *on_listed* gets its tools at each connection; ``run`` owns the connection."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        environ: Mapping[str, str],
        *,
        offload: Offload,
        mask: Callable[[str], str],
        on_listed: Callable[[str, Listing], Awaitable[None]],
        times: Timeouts = DEFAULT_TIMEOUTS,
        sign_in: Authenticator | None = None,
    ) -> None:
        self.name, self.origin = name, f"MCP server {name}"
        self.state: State = "stopped"
        self.reason = ""
        """Why the last connection failed or ended, in our own words; empty once there is a connection again."""
        self.last_output = ""
        """What the server wrote last before that, masked; for operators."""
        self.attempted = anyio.Event()
        """Set when the first attempt to connect has an outcome."""
        self.listing: Listing | None = None
        """The tools that it listed at the last connection."""
        self._settings, self._environ = settings, environ
        self._offload, self._mask, self._on_listed, self._times = offload, mask, on_listed, times
        self.mask = mask
        """Masks the secrets of the bot and, from the first connection on, those of the server."""
        self._queue: deque[_Call] = deque()
        self._change = anyio.Event()
        self._running = self._failures = self._timed_out = 0
        self._used_at = self._again_at = -math.inf
        self._usable = self._learning = False
        self._lost: NotRun | None = None
        """Set when a call was not taken: the connection ends once the other calls are over."""
        self._sign_in = sign_in
        self._auth: Auth | None = None

    @property
    def _is_signed_out(self) -> bool:
        return self._auth is not None and self._auth.signed_out

    @property
    def is_down(self) -> bool:
        """Whether it cannot be reached; it stays down while the next try runs."""
        return self.state == "waiting" or (self.state == "connecting" and bool(self.reason))

    async def call(self, tool: str, arguments: dict[str, JsonValue], deadline: float) -> CallToolResult:
        """Run a tool, connecting first if needed; *deadline* is on anyio's clock. Raises `ToolError`."""
        return await self.request(lambda session: session.call(tool, arguments), deadline)

    async def request(self, make: Callable[[McpSession], Awaitable[T]], deadline: float) -> T:
        """Make a request, connecting first if needed; *deadline* is on anyio's clock. Raises `ToolError`."""
        if self.state == "waiting" and self._failures >= OPEN_AFTER:
            left = max(1, math.ceil(self._again_at - anyio.current_time()))
            raise self._unavailable(f"is down: {self.reason}. It is tried again in {left} s")
        if len(self._queue) >= MAX_WAITING:
            raise ToolBusy(f"Too many calls wait for the {self.origin}.", suggestion="Try again later.")
        call = _Call(make, anyio.CancelScope(deadline=deadline))
        self._queue.append(call)
        self.request_connection()
        try:
            with anyio.CancelScope(deadline=deadline):
                await call.settled.wait()
        finally:
            call.scope.cancel()
            with suppress(ValueError):  # it runs already, or is over
                self._queue.remove(call)
        if call.error is not None:
            raise call.error
        if call.result is None:
            raise ToolTimeout(f"The {self.origin} did not answer in time.", suggestion="Try a smaller step.")
        return cast("T", call.result)

    def of(self, _person: str) -> Server:
        """Return the connection that serves a person: all share this one."""
        return self

    def connections(self) -> Sequence[Server]:
        return (self,)

    def request_connection(self) -> None:
        """Ask `run` for a connection if there is none."""
        self._used_at = anyio.current_time()
        self._change.set()

    def learn(self) -> None:
        """Ask `run` for connections until there was one, so that its tools are known."""
        self._learning = True
        self.request_connection()

    async def run(self) -> None:
        """Own the connection until cancelled."""
        while True:
            while not (self._queue or self._is_recent or self._learning):
                self.state = "stopped"
                await self._next_change()
            self.state = "connecting"
            failed = await self._connection()
            self.attempted.set()
            if failed and self._is_signed_out:
                log.info("mcp.signed_out: %s: somebody has to sign in", self.name)
                while self._queue:
                    self._queue.popleft().settle(self._sign_in_needed())
                self._used_at, self._learning = -math.inf, False
            elif failed:
                self._failures += 1
                if self._lost and self._failures == 1:
                    log.info("mcp.session_lost: %s: %s; a new one is opened", self.name, self.reason)
                else:
                    await self._pause()
            else:
                self._used_at = -math.inf

    @property
    def _is_recent(self) -> bool:
        return anyio.current_time() - self._used_at < self._times.idle

    async def _pause(self) -> None:
        was_up = self.state == "connected"
        pause = self._times.pause(self._failures)
        self.state, self._again_at = "waiting", anyio.current_time() + pause
        log.log(
            logging.WARNING if self._is_recent else logging.DEBUG,
            "mcp.down: %s: %s; the next try in %g s%s",
            self.name,
            self.reason,
            pause,
            f" (it said: {self.last_output})" if self.last_output else "",
            extra=retry_fields(McpUnavailable(self.reason), self._failures + 1, pause, server=self.name),
        )
        while self._queue and not was_up:
            self._queue.popleft().settle(self._unavailable(f"cannot be used: {self.reason}"))
        await anyio.sleep(pause)

    async def _connection(self) -> bool:
        """Connect, serve until idle, and leave; returns whether it failed, with the ``reason``."""
        stderr_log = StderrLog(self._log_line, self.mask)
        limit_s = self._times.program if self._settings.command else self._times.address
        # The SDK takes 0.9 s and 60 MB: it is imported off the event loop, and only for those who use a server.
        sdk = await self._offload(importlib.import_module, "bot.extensions.mcp.session")
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as limit:
            try:
                values, secrets = await self._offload(resolve_values, self._settings, self._environ)
                own = Masker(secrets)
                self.mask = lambda text: self._mask(own(text))
                stderr_log = StderrLog(self._log_line, self.mask)
                self._auth = await self._sign_in.authenticate() if self._sign_in else None
                guard = self._sign_in.guard if self._sign_in else None
                wire = (values, stderr_log, self.origin, self._auth, guard)
                async with sdk.open_session(self._settings, *wire) as session:
                    await self._use(session, limit)
            except anyio.get_cancelled_exc_class():
                if anyio.current_effective_deadline() == -math.inf:
                    raise  # ours; any other cancellation is the SDK's, and ends the connection only
                self.reason, self.last_output = "the connection broke", stderr_log.last
            except ConfigInvalid as error:
                self.reason, self.last_output = "its settings cannot be used", str(error)
            except Exception as error:  # the boundary of a connection: what the SDK raises ends nothing else
                message = self.mask(sdk.server_message(error, self.mask))
                self.reason, self.last_output = sdk.failure_reason(error), message or stderr_log.last
                log.debug("mcp.trouble: %s", self.name, exc_info=True)
            else:
                return False
        if limit.cancel_called and self.state == "connecting":
            self.reason, self.last_output = f"it did not answer within {limit_s:g} s", stderr_log.last
        return True

    async def _use(self, session: McpSession, limit: anyio.CancelScope) -> None:
        """List its tools and serve; *limit* counts while connecting and while leaving."""
        await self._take_list(await session.list())
        self._learning = False
        limit.deadline = math.inf
        self.state, self.reason, self._timed_out = "connected", "", 0
        self.attempted.set()
        try:
            await self._serve(session)
        finally:
            limit.deadline = anyio.current_time() + self._times.leave

    async def _take_list(self, raw: Sequence[RawTool]) -> None:
        listing = await self._offload(check_tools, raw, settings_digest(self._settings), self.mask)
        self.listing = Listing.model_validate_json(self.mask(listing.model_dump_json()))
        await self._on_listed(self.name, self.listing)

    async def _serve(self, session: McpSession) -> None:
        """Serve the calls until idle. Raises `ConnectionLost` and whatever the SDK does."""
        self._usable, self._lost = True, None
        async with background_tasks() as tasks:
            tasks.start_soon(session.listen)
            tasks.start_soon(self._follow, session)
            while self._running or not self._lost:
                if self._queue and self._running < MAX_RUNNING and self._usable:
                    self._running += 1
                    tasks.start_soon(self._run_call, session, self._queue.popleft())
                    continue
                with anyio.move_on_after(self._times.leave if self._lost else self._times.idle) as patience:
                    await self._next_change()
                if patience.cancelled_caught and (self._lost or not (self._running or self._queue)):
                    break
        if self._lost:
            raise self._lost

    async def _follow(self, session: McpSession) -> None:
        """List the tools again whenever the server says that they have changed."""
        while True:
            await session.next_change()
            await anyio.sleep(self._times.relist)
            try:
                deadline = anyio.current_time() + self._times.program
                await self._take_list(await self.request(lambda session: session.list(), deadline))
            except ToolError as error:
                log.info("mcp.not_listed: %s: its new tools are not known: %s", self.name, error)

    async def _next_change(self) -> None:
        self._change = anyio.Event()
        await self._change.wait()

    async def _run_call(self, session: McpSession, call: _Call) -> None:
        try:
            with call.scope:
                call.result = await call.make(session)
        except NotRun as error:
            self._lost, self._usable = error, False
            if not (call.repeated or call.scope.cancel_called):
                call.repeated, call.scope = True, anyio.CancelScope(deadline=call.scope.deadline)
                self._queue.appendleft(call)
                return
            call.error = self._unavailable(f"does not take the call: {error}")
        except ToolError as error:
            call.error = error
        except BaseException as error:
            self._usable = False  # no more calls for a connection that is ending
            foreign = anyio.current_effective_deadline() > -math.inf
            if isinstance(error, anyio.get_cancelled_exc_class()) and foreign:
                raise ConnectionLost("the connection broke") from error
            raise
        finally:
            self._running -= 1
            self._change.set()
            if call not in self._queue:
                self._settle(call)
        if call.scope.cancelled_caught:
            self._timed_out += anyio.current_time() >= call.scope.deadline
        elif not self._lost:
            self._failures = self._timed_out = 0
        if self._timed_out >= OPEN_AFTER:
            self._usable = False
            raise ConnectionLost("it stopped answering")

    def _settle(self, call: _Call) -> None:
        lost = self._unavailable("went away during the call, which may or may not have worked")
        # A call beside others may have run before the sign-in ended.
        fault = self._sign_in_needed() if self._is_signed_out and not self._running else lost
        call.settle(None if call.result is not None or call.scope.cancelled_caught else fault)

    def _sign_in_needed(self) -> SignInNeeded:
        suggestion = f"Say that it needs a sign-in: {self._sign_in.how}" if self._sign_in else ""
        return SignInNeeded(
            f"Nobody is signed in at the {self.origin}.", server=self.name, suggestion=suggestion
        )

    def _unavailable(self, what: str) -> McpUnavailable:
        return McpUnavailable(f"The {self.origin} {what}.", suggestion="Go on without it, and say so.")

    def _log_line(self, line: str) -> None:
        log.info("mcp.said: %s: %s", self.name, line)
