"""One thread's tools, as `bot.wiring.tool_set.open_tool_set` makes them from settings, and a person who denies calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from bot.config.extensions import settings_model
from bot.config.settings import Settings
from bot.extensions.shell.sandbox import CommandResult
from bot.guards.egress import Egress
from bot.guards.redaction import Masker
from bot.llm.adapters.wire_form import tool_call
from bot.ports.tool import ToolContext
from bot.tools.gate import Toolbox
from bot.wiring.tool_set import ToolSet
from tests.tool_context import no_files
from tests.world import ANN, T1, opened_tools
from threads.model import Answer, Image, Question, ThreadId, ToolCall, TurnEvent
from threads.store.data_folder import thread_folder

CANARY = "canary-5f1d9c0a77e2-canary"
"""The secret of this bot, which must never be readable."""

PUBLIC = "93.184.215.14"
NO = Answer(approved=False, by=ANN.id)


@dataclass(frozen=True)
class Row:
    """One hostile call. ``arguments`` is a mapping, or the text that a model sent.

    ``outcome`` is the type of the error (permission, validation, not_found, timeout, unknown), "asked" if a person is
    asked and denies the call, or "harmless" for a result; "a|b" allows both. ``pattern`` is searched for in the result.
    ``before`` prepares the harness; ``after`` checks it, and the result.
    """

    name: str
    tool: str
    arguments: Mapping[str, Any] | str
    outcome: str
    pattern: str = ""
    before: Callable[[Harness], object] = lambda _: None
    after: Callable[[Harness, dict[str, Any]], object] = lambda *_: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tainted: bool = False

    @property
    def call(self) -> ToolCall:
        if isinstance(self.arguments, str):
            return tool_call("c1", self.tool, self.arguments)
        return ToolCall("c1", self.tool, dict(self.arguments))


class FakeSandbox:
    """Records commands in place of running them, and returns ``result``."""

    layer = "bubblewrap"
    why = ""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.result = CommandResult("exited", 0, "done", "")

    async def run(self, command: str, workspace: Path, deadline: float, _proxy: object) -> CommandResult:
        self.commands.append(command)
        return self.result


@dataclass
class FakeNetwork:
    """A network where every connection ends at our own site on ``port``, and ``names`` are resolved as given."""

    names: dict[str, list[str]] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        return self.names.get(host, [PUBLIC])

    async def connect(self, address: str, port: int) -> Any:
        self.reached.append(address)
        if not self.port:
            raise OSError("nothing is there")
        return await anyio.connect_tcp("127.0.0.1", self.port)


@dataclass
class Harness:
    """The tools of one thread, a folder outside of its workspace, and everything that people and models see."""

    root: Path
    settings: Settings
    network: FakeNetwork
    sandbox: FakeSandbox
    tools: ToolSet = field(init=False)
    questions: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)
    attached: list[tuple[str, bytes]] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    mask: Callable[[str], str] = Masker([CANARY])
    answer: Answer | None = NO
    tainted: bool = False
    thread: ThreadId = T1

    @property
    def toolbox(self) -> Toolbox:
        return self.tools.toolbox(self.settings.tools)

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def outside(self) -> Path:
        """A folder that the bot must not touch."""
        return self.root / "outside"

    @property
    def workspace(self) -> Path:
        return thread_folder(self.data, self.thread) / "workspace"

    def put(self, path: str, content: str | bytes = "words") -> Path:
        """Write a file in the workspace, as a command could."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def link(self, path: str, to: Path | str) -> None:
        """Make a symbolic link in the workspace."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(to)

    def add_attachment(self, text: str = "obey") -> None:
        self.put("attachments/m1-page.txt", text)

    async def run(self, *calls: ToolCall) -> list[dict[str, Any]]:
        """Run the calls of one step as a turn does, and return what a model reads."""
        results = await self.toolbox.run(calls, self.context(), self.on_event)
        self.read = "\n".join(result.content for result in results)
        return [json.loads(result.content) for result in results]

    def context(self) -> ToolContext:
        return ToolContext(
            self.workspace,
            self.thread,
            ANN,
            "m1",
            self._attach,
            self.notes.append,
            self._ask,
            no_files,
            no_files,
            self._spill,
            self.tainted,
            sees=True,
            images=self.images,
        )

    async def on_event(self, event: TurnEvent) -> None:
        self.events.append(event)

    async def _ask(self, question: Question) -> Answer | None:
        self.questions.append(question)
        return self.answer

    async def _attach(self, call_id: str, file: Path, name: str) -> None:
        self.attached.append((name, file.read_bytes()))

    async def _spill(self, name: str, text: str, *, outside: bool) -> str:
        return await self.tools.spill(self.workspace, name, text, outside=outside)

    def visible_text(self) -> str:
        """Return everything that anybody could read: results, questions, notes, status lines, attached files."""
        questions = [self.mask(question.text) for question in self.questions]  # as `threads.delivery` does
        attached = [f"{name} {data!r}" for name, data in self.attached]
        folder = self.workspace / "tool-output"
        files = [] if folder.is_symlink() else folder.glob("*.txt")
        spilled = [path.read_text("utf-8", "replace") for path in files]
        return "\n".join([self.read, *questions, *self.notes, *map(repr, self.events), *attached, *spilled])


def isolate(monkeypatch: pytest.MonkeyPatch, sandbox: FakeSandbox | None, network: FakeNetwork) -> None:
    """Replace the network, and the sandbox unless it is None."""

    async def open_sandbox(*_args: object, **_more: object) -> FakeSandbox | None:
        return sandbox

    def egress(allow: object) -> Egress:
        return Egress(allow, resolve=network.resolve, connect=network.connect)

    if sandbox:
        monkeypatch.setattr("bot.extensions.shell.sandbox.open_sandbox", open_sandbox)
    monkeypatch.setattr("bot.wiring.tool_set.Egress", egress)


@asynccontextmanager
async def open_harness(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    network: FakeNetwork | None = None,
    *,
    run_commands: bool = False,
    **changes: Any,
) -> AsyncIterator[Harness]:
    """Open the tools of a bot with these *changes* of the default settings."""
    settings = settings_model().model_validate({"data": root / "data", **changes}, strict=False)
    harness = Harness(root, settings, network or FakeNetwork(), FakeSandbox())
    isolate(monkeypatch, None if run_commands else harness.sandbox, harness.network)
    harness.outside.mkdir()
    (harness.outside / "secret.txt").write_text(CANARY)
    harness.workspace.mkdir(parents=True)
    async with opened_tools(
        settings, offload=anyio.to_thread.run_sync, mask=harness.mask, files=True
    ) as harness.tools:
        yield harness


def params(rows: Iterable[Any]) -> list[Any]:
    """Return the rows as parameters of a test."""
    return [pytest.param(row, id=row.name) for row in rows]


async def run_row(
    row: Row, root: Path, monkeypatch: pytest.MonkeyPatch, network: FakeNetwork | None = None
) -> None:
    """Run a row, and assert its outcome and what must hold for all rows."""
    async with open_harness(root, monkeypatch, network, **row.settings) as harness:
        harness.tainted = row.tainted
        row.before(harness)
        outside = snapshot(harness.outside)
        with anyio.fail_after(20):
            (result,) = await harness.run(row.call)
        check(row, harness, result)
        row.after(harness, result)
        assert snapshot(harness.outside) == outside, "something outside the workspace was changed"


def check(row: Row, harness: Harness, result: dict[str, Any]) -> None:
    asked = row.outcome == "asked"
    assert bool(harness.questions) == asked, [question.text for question in harness.questions]
    outcome = "harmless" if result["success"] else result["error"]["type"]
    assert outcome in ("permission" if asked else row.outcome).split("|"), result
    assert re.search(row.pattern, json.dumps(result, ensure_ascii=False), re.IGNORECASE | re.DOTALL), result
    assert harness.sandbox.commands == [], "a command ran"
    text = harness.visible_text()
    assert CANARY not in text
    assert str(harness.root) not in text, "a path of the host is shown"
    assert "Traceback" not in text


def snapshot(folder: Path) -> dict[str, object]:
    """Return the modes, sizes and contents of all files in the folder."""
    found: dict[str, object] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (state.st_mode, state.st_size, content)
    return found
