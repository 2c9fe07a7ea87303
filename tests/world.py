"""A whole bot in a test: real orchestrator, actors and storage; a scripted model and a transport that remembers."""

from __future__ import annotations

import errno
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.lowlevel

from bot.agent.loop import Agent
from bot.agent.prompt.token_estimate import request_size
from bot.config.settings import Recovery, Settings
from bot.host.storage import Resources
from bot.observe.audit import Audit, AuditFiles
from bot.observe.turn_events import Observing
from bot.ports.documents import PlainDocuments
from bot.ports.model import Completion, Request, Usage
from bot.ports.tool import Tool
from bot.routing.rate_limit import RateLimiter
from bot.tools.files.workspace import mark_output
from bot.tools.gate import Permits, Recovers, Toolbox
from bot.wiring.core import Core, Parts, link_troubles, open_core
from bot.wiring.store import make_storage
from bot.wiring.tool_set import ToolSet, open_tool_set
from tests.one_model import OneModel
from tests.tool_context import file_tools, make_toolbox, nowhere
from threads import wording
from threads.background import background_tasks
from threads.errors import PostFailed, StoreUnavailable
from threads.file_store import FileStore
from threads.model import (
    Author,
    Incoming,
    Message,
    OnEvent,
    Outcome,
    Outgoing,
    Text,
    TextDelta,
    ThreadId,
    ToolCall,
    TurnEvent,
    TurnLimits,
    TurnSettled,
)
from threads.store.attachments import AttachmentStore
from threads.store.data_folder import Spill, thread_folder
from threads.store.disk import Disk, File, Offload, PosixDisk, replace_file
from threads.store.json_file import F, JsonFile
from transports.base.transport import Capabilities
from transports.shared.delivery.outbox import Outbox

ANN = Author("U1", "ann")
T1 = ThreadId("fake", "W", "C1", "1.0")
T2 = ThreadId("fake", "W", "C2", "2.0")


def message(n: int = 1, text: str = "hello", thread: ThreadId = T1, author: Author = ANN) -> Incoming:
    return Incoming(f"m{n}", thread, author, text, "2026-11-21T10:00:00+00:00")


def says(text: str) -> Message:
    return Message("assistant", (Text(text),), model="fake/one")


def calls(name: str, *, id: str = "c1", **arguments: object) -> Message:
    return Message("assistant", (ToolCall(id, name, arguments),), model="fake/one")


Step = Message | Exception | Callable[[], Awaitable[Message]]


class Scripted(OneModel):
    """A model that plays a script and then says "ok". It keeps every request."""

    def __init__(self, *script: Step) -> None:
        self.script = deque(script)
        self.requests: list[Request] = []

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        self.requests.append(request)
        step = self.script.popleft() if self.script else says("ok")
        if isinstance(step, Exception):
            raise step
        answer = step if isinstance(step, Message) else await step()
        if answer.text:
            await on_event(TextDelta(answer.text))
        return Completion(answer, Usage(10, 5), "tool_calls" if answer.calls else "end")


class Counting(Scripted):
    """A model with a context window, which counts the tokens that it reads."""

    window = 4_000

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        completion = await super().complete(request, on_event)
        return replace(completion, usage=Usage(request_size(request), 5))


class Gate:
    """A model step that waits until `open` is set. `began` is set once the start of the turn is on disk."""

    def __init__(self, answer):
        self.began, self.open, self.answer = anyio.Event(), anyio.Event(), answer

    async def __call__(self):
        await anyio.wait_all_tasks_blocked()
        self.began.set()
        await self.open.wait()
        return self.answer

    async def hold(self, bot: Core, incoming: Incoming) -> None:
        """Bring *incoming* and wait until its turn has reached this step."""
        await bot.orchestrator.receive(incoming)
        await self.began.wait()


class FaultyDisk(PosixDisk):
    """The real disk, but a call that is named in ``refuse`` fails with the error there."""

    def __init__(self) -> None:
        self.refuse: dict[str, OSError] = {}

    def fill_journal(self) -> None:
        """Leave no space for the journal, not in a fresh file either, until ``refuse`` is cleared."""
        full = OSError(errno.ENOSPC, "No space left on device")
        self.refuse |= {"write journal.jsonl": full, "create journal.jsonl.tmp": full}

    def create(self, path: Path) -> File:
        self._check("create", path)
        return super().create(path)

    def append(self, path: Path) -> File:
        self._check("append", path)
        return FaultyFile(super().append(path), partial(self._check, "write", path))

    def read(self, path: Path) -> bytes:
        self._check("read", path)
        return super().read(path)

    def _check(self, call: str, path: Path) -> None:
        for name in (call, f"{call} {path.name}"):
            if name in self.refuse:
                raise self.refuse[name]


class FaultyFile:
    def __init__(self, file: File, check: Callable[[], None]) -> None:
        self._file, self._check = file, check

    def write(self, data: bytes | memoryview) -> int:
        self._check()
        return self._file.write(data)

    def fsync(self) -> None:
        self._file.fsync()

    def close(self) -> None:
        self._file.close()


class Platform:
    """A chat platform that outlives the bot: it keeps every post, and can refuse, lose or delay some."""

    name = "fake"
    state = "connected"
    trouble = ""
    silent_s: float | None = None

    def __init__(self, *, find: bool = True) -> None:
        self.capabilities = Capabilities(find=find)
        self.posts: list[Outgoing] = []
        self.events: list[tuple[str, TurnEvent]] = []
        self.outcomes: dict[str, Outcome] = {}
        self.faults: deque[Exception | None] = deque()
        self._changed = anyio.Event()

    async def serve(self, sink: object) -> None:
        await anyio.sleep_forever()

    async def post(self, outgoing: Outgoing) -> str:
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and not (isinstance(fault, PostFailed) and fault.maybe_posted):
            raise fault
        self.posts.append(outgoing)
        self._look()
        if fault is not None:
            raise fault
        return f"p{len(self.posts)}"

    async def find(self, thread: ThreadId, key: str) -> str | None:
        return next((f"p{n}" for n, post in enumerate(self.posts, 1) if post.key == key), None)

    async def reconnected(self) -> None:
        """Return at once."""

    def link(self, thread: ThreadId) -> str:
        return f"https://chat.example/{thread.channel}/{thread.root}"

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        self.events.append((message_id, event))
        if isinstance(event, TurnSettled):
            known = self.outcomes.setdefault(message_id, event.outcome) if event.again else None
            assert message_id not in self.outcomes or known == event.outcome, f"{message_id} settled twice"
            self.outcomes[message_id] = event.outcome
        self._look()

    def _look(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds. It is checked after each post and event."""
        with anyio.fail_after(100_000):
            while not condition():
                await self._changed.wait()

    async def settled(self, *message_ids: str) -> None:
        """Wait until these messages have their outcome, also on disk."""
        await self.until(lambda: all(m in self.outcomes for m in message_ids))
        for _ in range(30):  # more than a record and a log line take to the disk
            await anyio.lowlevel.checkpoint()

    async def exchange(self, bot: Core, *incoming: Incoming) -> None:
        """Bring each message to *bot* and wait for its outcome before the next."""
        for each in incoming:
            await bot.orchestrator.receive(each)
            await self.settled(each.id)

    @property
    def texts(self) -> list[str]:
        return [post.text for post in self.posts]


async def inline(function: Callable[..., object], *args: object) -> object:
    """Run *function* here: there are no threads in virtual time."""
    await anyio.lowlevel.checkpoint()
    return function(*args)


def state_file(path: Path, empty: F, disk: Disk | None = None, offload: Offload = inline) -> JsonFile[F]:
    """Open a state file as the start of the bot does."""
    file = JsonFile(disk or PosixDisk(), path, offload, empty)
    file.open()
    return file


class Clock:
    """Wall time that moves a millisecond at each call, so that instants differ and are the same in every run."""

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return (
            datetime(2026, 11, 21, 10, tzinfo=UTC) + self.offset + timedelta(milliseconds=next(self._ticks))
        )


class NothingAllowed:
    """`Permissions` of a bot without approvals."""

    async def revoke(self, thread: ThreadId, by: str) -> int:
        return 0

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        return False


class NothingAsked:
    """`AskedQuestions` of a bot that asks for no answers."""

    def asks(self, thread: ThreadId, message_id: str) -> bool:
        return False

    def expects(self, incoming: Incoming, received_at: str) -> bool:
        return False

    def answered_by(self, incoming: Incoming) -> str:
        return ""


async def spill(disk: Disk, offload: Offload, workspace: Path, name: str, text: str, *, outside: bool) -> str:
    """Write a long text to a disk of any kind; the product's tools write only to a real one."""

    def write() -> None:
        disk.mkdir(workspace.parent)
        mark_output(workspace, outside=outside)
        for folder in (workspace, workspace / "tool-output"):
            disk.mkdir(folder)
        replace_file(disk, workspace / "tool-output" / name, text.encode())

    try:
        await offload(write)
    except OSError as error:
        raise StoreUnavailable(f"tool-output: {error}") from error
    return f"tool-output/{name}"


def core_parts(
    data: Path,
    transport: object,
    model: object,
    toolbox: Toolbox,
    *,
    disk: Disk,
    offload: Offload,
    journal_offload: Offload | None = None,
    now: Callable[[], datetime],
    agent: Mapping[str, object] = MappingProxyType({}),
    **changes: object,
) -> Parts:
    """Return the parts of a core with one transport; *agent* and *changes* are fields of `Agent` and of `Parts`."""

    files = FileStore(data, disk, offload=offload, journal_offload=journal_offload or offload, now=now)
    store = changes.get("store", files)

    limits, recovery = changes.get("limits", TurnLimits()), changes.get("recovery", Recovery())

    def workspace(thread: ThreadId) -> Path:
        return thread_folder(data, thread) / "workspace"

    def spill_of(thread: ThreadId) -> Spill:
        async def write(name: str, text: str, *, outside: bool) -> str:
            return await spill(disk, offload, workspace(thread), name, text, outside=outside)

        return write

    fields = {
        "models": model,
        "tools": toolbox,
        "system": "You are kind.",
        "workspace": store.workspace,
        "spill": spill_of,
        **agent,
    }
    parts = Parts(
        store=store,
        attachments=AttachmentStore(disk, offload, limits.attachment_bytes),
        now=now,
        mask=str,
        observing=Observing(),
        outboxes={transport.name: Outbox(transport, store.ensure_ownership, recovery.max_age_s)},
        run=Agent(**fields).run,
        limits=limits,
        rates=RateLimiter(None),
        recovery=recovery,
        restored=None,
        allowed=lambda _: True,
        is_admin=lambda _: False,
        models=lambda _: model,
        memory=None,
        permissions=NothingAllowed(),
        asked=NothingAsked(),
        reader=PlainDocuments(offload),
        troubles=lambda: link_troubles([transport]),
        explain=lambda error, _, reference: wording.explain(error, reference),
        escalate=lambda *_: None,
        on_feedback=Audit(AuditFiles(disk, data / "audit", offload).append, now).record_feedback,
        on_stop=lambda *_: None,
    )
    return replace(parts, **changes)


@asynccontextmanager
async def running(
    data: Path,
    platform: Platform,
    model: object,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    tools: Sequence[Tool] = (),
    permits: Permits | None = None,
    recovery: Recovers | None = None,
    **changes: object,
) -> AsyncIterator[Core]:
    """Run a bot over *data* until the block ends. It ends as a killed process does: nothing shuts down."""
    toolbox = make_toolbox([*file_tools(inline), *tools], permits=permits, recovery=recovery)
    surroundings = {"disk": disk or PosixDisk(), "offload": inline, "now": clock or Clock()}
    async with background_tasks() as tasks:
        yield await open_core(tasks, core_parts(data, platform, model, toolbox, **surroundings | changes))


@asynccontextmanager
async def opened_tools(
    settings: Settings, *, offload: Offload = inline, mask: Callable[[str], str] = str, files: bool = False
) -> AsyncIterator[ToolSet]:
    """Open the tools of these settings, where a transport takes *files* or none does."""
    resources = Resources(PosixDisk(), offload, offload, Clock(), mask, Observing())
    storage = make_storage(settings, {}, resources, offload)
    platform = Platform()
    platform.capabilities = Capabilities(files=files)
    async with open_tool_set(
        settings, {}, resources, storage, [platform], is_admin=lambda _: False, post=nowhere
    ) as tool_set:
        yield tool_set


async def converse(
    data: Path, platform: Platform, model: object, *incoming: Incoming, **options: object
) -> None:
    """Run a bot over *data* until each of these messages, sent one after the other, has its outcome."""
    async with running(data, platform, model, **options) as bot:
        await platform.exchange(bot, *incoming)


class Streams(Scripted):
    """A model that writes its answer in two pieces, 2.5 s apart."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last

    async def complete(self, request, on_event):
        await on_event(TextDelta(self.first))
        await anyio.sleep(2.5)
        await on_event(TextDelta(self.last))
        return Completion(says(self.first + self.last), Usage(1, 1), "end")
