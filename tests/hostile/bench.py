"""One thread's tools, made by `bot.wiring.tool_set.open_tool_set` by the settings, with a person who says no."""

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

from bot.config.settings import Settings
from bot.guards.egress import Egress
from bot.guards.redaction import Masker
from bot.llm.adapters.wire_form import tool_call
from bot.observe.turn_events import Observing
from bot.ports.tool import ToolContext
from bot.tools.sandbox import CommandResult
from bot.wiring.store import Resources, make_storage
from bot.wiring.tool_set import ToolSet, open_tool_set
from tests.world import ANN, T1, Clock
from threads.model import Answer, Image, Question, ThreadId, ToolCall, TurnEvent
from threads.store.data_folder import thread_folder
from threads.store.disk import PosixDisk

CANARY = "canary-5f1d9c0a77e2-canary"
"""The secret of this bot; its mask knows it, and nobody may ever read it."""

PUBLIC = "93.184.215.14"
NO = Answer(approved=False, by=ANN.id)

Kind = str
"""How a call ends: with an error of a type (permission, validation, not_found, timeout, unknown); with a question to a
person, who says no: "asked"; or "harmless": with nothing done that should not be, and a result. Two are "a|b"."""


@dataclass(frozen=True)
class Row:
    """One hostile call. ``given`` are its arguments, or the text that a model sent as such.

    ``says`` is searched for in the result; ``before`` prepares the scene, ``after`` looks at what is left of it. Not
    ``asked`` of anybody unless that is what is expected.
    """

    name: str
    tool: str
    given: Mapping[str, Any] | str
    kind: Kind
    says: str = ""
    before: Callable[[Scene], object] = lambda _: None
    after: Callable[[Scene, dict[str, Any]], object] = lambda *_: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tainted: bool = False

    @property
    def call(self) -> ToolCall:
        if isinstance(self.given, str):
            return tool_call("c1", self.tool, self.given)
        return ToolCall("c1", self.tool, dict(self.given))


class Stage:
    """Where commands would run: it writes them down, and gives back what it is told to."""

    layer = "bubblewrap"
    why = "a stage"

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gives = CommandResult("exited", 0, "done", "")

    async def run(self, command: str, workspace: Path, deadline: float) -> CommandResult:
        self.ran.append(command)
        return self.gives


@dataclass
class Net:
    """The network: names that lead where they are told to, and no way to anywhere but a site of ours.

    An entry of ``names`` that is a list of lists is another answer at each look-up (DNS rebinding).
    """

    names: dict[str, list[Any]] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        found = self.names.get(host, [PUBLIC])
        if found and isinstance(found[0], list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found

    async def connect(self, address: str, port: int) -> Any:
        self.reached.append(address)
        if not self.port:
            raise OSError("nothing is there")
        return await anyio.connect_tcp("127.0.0.1", self.port)


@dataclass
class Scene:
    """A data folder with one thread, what is outside of it, and all that was said and done."""

    root: Path
    settings: Settings
    net: Net
    stage: Stage
    bench: ToolSet = field(init=False)
    questions: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)
    posted: list[tuple[str, bytes]] = field(default_factory=list)
    shown: list[Image] = field(default_factory=list)
    mask: Callable[[str], str] = Masker([CANARY])
    answer: Answer | None = NO
    tainted: bool = False
    thread: ThreadId = T1

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def outside(self) -> Path:
        """A folder that is none of the bot's business."""
        return self.root / "outside"

    @property
    def workspace(self) -> Path:
        return thread_folder(self.data, self.thread) / "workspace"

    def put(self, path: str, content: str | bytes = "words") -> Path:
        """Write a file of the workspace, as a command would have."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def link(self, path: str, to: Path | str) -> None:
        """Make a symbolic link in the workspace."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(to)

    def came_in(self, text: str = "obey") -> None:
        """Have a file there that somebody sent."""
        self.put("attachments/m1-page.txt", text)

    async def run(self, *calls: ToolCall) -> list[dict[str, Any]]:
        """Run the calls of one step as a turn does, and return what a model reads."""
        results = await self.bench.toolbox.run(calls, self.context(), self._seen)
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
            self._spill,
            self.tainted,
            sees=True,
            images=self.shown,
        )

    async def _seen(self, event: TurnEvent) -> None:
        self.events.append(event)

    async def _ask(self, question: Question) -> Answer | None:
        self.questions.append(question)
        return self.answer

    async def _attach(self, call_id: str, file: Path, name: str) -> None:
        self.posted.append((name, file.read_bytes()))

    async def _spill(self, name: str, text: str, *, outside: bool) -> str:
        return await self.bench.spill(self.workspace, name, text, outside=outside)

    def told(self) -> str:
        """Return all that anybody could read of this: results, questions, notes, status lines, posted files."""
        shown = [self.mask(question.text) for question in self.questions]  # as `threads.delivery` does
        posted = [f"{name} {data!r}" for name, data in self.posted]
        kept = self.workspace / "tool-output"
        files = [] if kept.is_symlink() else kept.glob("*.txt")
        spilled = [path.read_text("utf-8", "replace") for path in files]
        return "\n".join([self.read, *shown, *self.notes, *map(repr, self.events), *posted, *spilled])


def secure(monkeypatch: pytest.MonkeyPatch, stage: Stage | None, net: Net) -> None:
    """Put the stage in the place of the sandbox, if there is one, and the net in that of the network."""

    async def open_sandbox(*_args: object, **_more: object) -> Stage:
        return stage

    def egress(allow: object) -> Egress:
        return Egress(allow, resolve=net.resolve, connect=net.connect)

    if stage:
        monkeypatch.setattr("bot.tools.sandbox.open_sandbox", open_sandbox)
    monkeypatch.setattr("bot.wiring.tool_set.Egress", egress)


@asynccontextmanager
async def scene_of(
    root: Path, monkeypatch: pytest.MonkeyPatch, net: Net | None = None, *, staged: bool = True, **given: Any
) -> AsyncIterator[Scene]:
    """Open the tools of a bot with default settings, but for those *given*; not *staged*, commands do run."""
    settings = Settings.model_validate({"data": root / "data", **given}, strict=False)
    scene = Scene(root, settings, net or Net(), Stage())
    secure(monkeypatch, scene.stage if staged else None, scene.net)
    scene.outside.mkdir()
    (scene.outside / "secret.txt").write_text(CANARY)
    scene.workspace.mkdir(parents=True)
    offload = anyio.to_thread.run_sync
    means = Resources(PosixDisk(), offload, offload, Clock(), scene.mask, Observing())
    async with open_tool_set(
        settings, {}, means, make_storage(settings, {}, means, offload), attach=True
    ) as bench:
        scene.bench = bench
        yield scene


def params(rows: Iterable[Any]) -> list[Any]:
    """Return the rows as parameters of a test."""
    return [pytest.param(row, id=row.name) for row in rows]


async def judge(row: Row, root: Path, monkeypatch: pytest.MonkeyPatch, net: Net | None = None) -> Scene:
    """Run a row, and assert what it expects and what all rows must hold to."""
    async with scene_of(root, monkeypatch, net, **row.settings) as scene:
        scene.tainted = row.tainted
        made = row.before(scene)
        if made is not None and hasattr(made, "__await__"):
            await made
        outside = picture(scene.outside)
        with anyio.fail_after(20):
            (result,) = await scene.run(row.call)
        check(row, scene, result)
        row.after(scene, result)
        assert picture(scene.outside) == outside, "something outside the workspace was changed"
        return scene


def check(row: Row, scene: Scene, result: dict[str, Any]) -> None:
    assert bool(scene.questions) == (row.kind == "asked"), [question.text for question in scene.questions]
    ended = "harmless" if result["success"] else result["error"]["type"]
    assert ended in ("permission" if row.kind == "asked" else row.kind).split("|"), result
    assert re.search(row.says, json.dumps(result, ensure_ascii=False), re.IGNORECASE | re.DOTALL), result
    assert scene.stage.ran == [], "a command ran"
    told = scene.told()
    assert CANARY not in told
    assert str(scene.root) not in told, "a path of the host is told"
    assert "Traceback" not in told


def picture(folder: Path) -> dict[str, object]:
    """Return all that a change of the folder would show in."""
    found: dict[str, object] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (about.st_mode, about.st_size, content)
    return found
