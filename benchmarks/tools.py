"""What a tool call costs beside the bare thing in the same run, in time and in memory.

The tools run in a process of their own, as a user without privileges: as root there are no commands. Ours and bare
take turns, so that a machine busy with something else is as slow for both. A plain subprocess is `sh -c true`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal

import anyio
import anyio.to_thread
from anyio.abc import ByteStream
from pydantic import JsonValue

from benchmarks.child import resident
from benchmarks.figures import Conditions, Figure, quantile
from bot.extensions.documents.reader import Reader
from bot.extensions.files.read import ReadFile
from bot.extensions.files.write import WriteFile
from bot.extensions.shell.sandbox import Sandbox, open_sandbox
from bot.extensions.shell.sandbox.launcher import descendants
from bot.extensions.shell.sandbox.profile import Limits
from bot.extensions.shell.sandbox.selection import AT_ONCE
from bot.extensions.shell.tool import Shell
from bot.guards.egress import Egress
from bot.guards.redaction import Masker
from bot.ports.tool import Arguments, Tool, ToolContext, ToolOutput
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from bot.tools.gate import Toolbox
from bot.tools.web.http_client import HttpClient
from tests.tool_context import make_toolbox, tool_context
from tests.unprivileged import run_unprivileged
from threads.background import background_tasks
from threads.model import ToolCall, TurnEvent
from threads.store.disk import PosixDisk

GIGABYTE = 1_000_000_000
COMMANDS = 200
LAYERS: tuple[Literal["bubblewrap", "landlock", "unsafe-host"], ...] = (
    "bubblewrap",
    "landlock",
    "unsafe-host",
)
CALLS_OF_THE_GATE = 300
PAGE = "a word and another one\n" * 200

Once = Callable[[], Awaitable[object]]
offload = anyio.to_thread.run_sync


def measure(conditions: Conditions) -> Iterator[Figure]:
    runs = 20 if conditions.quick else 100
    done = run_unprivileged("-m", "benchmarks.tools", str(runs), timeout_s=240)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, float] = json.loads(done.stdout)
    bare = found["plain"]
    yield Figure("a plain subprocess", bare, "ms", note=f"median of {runs}; p95 {found['plain p95']:.1f} ms")
    for layer in LAYERS:
        if layer in found:
            note = f"p95 {found[f'{layer} p95']:.1f} ms; through the gate"
            yield Figure(f"  `true` in {layer}", found[layer], "ms", note=note)
            yield Figure("    over a plain subprocess", found[layer] / bare, "x")
    for what in ("no-op", "no-op of 50,000 characters"):
        yield Figure(
            f"the gate around a {what}",
            found[what],
            "us",
            note="masks, schema, JSON; without policy; per call",
        )
    yield Figure("1 GB of output: memory", found["flood"], "MB", at_most=10, note="read to its end")
    note = f"{found['at once']:.0f} ran at once; each wrote 200 KB"
    yield Figure(f"{COMMANDS} commands at once: memory", found["many"], "MB", at_most=100, note=note)
    for ours in ("read_file", "write_file", "web_fetch"):
        yield Figure(f"{ours}", found[ours], "ms", note=f"{found[f'{ours} bare']:.2f} ms bare")
        yield Figure("  over the bare one", found[ours] / found[f"{ours} bare"], "x")
    yield Figure(
        "a document in its child",
        found["document"],
        "ms",
        note="HTML to Markdown, process and imports included",
    )


@dataclass(frozen=True)
class Nothing:
    """Does nothing, and says *said*."""

    said: str
    name: ClassVar[str] = "nothing"
    description: ClassVar[str] = "Do nothing."
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = Arguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue | ToolOutput:  # noqa: ARG002 - it does
        return ToolOutput(self.said, origin="benchmark")


async def heard(_: TurnEvent) -> None:
    """Take no notice."""


def gate(*tools: Tool) -> Toolbox:
    """Return a gate as the bot has it; nobody is asked."""
    secrets = [f"{n:02}-{'0123456789abcdef' * 2}" for n in range(8)]
    return make_toolbox(tools, timeout_s=120, mask=Masker(secrets))


async def call(toolbox: Toolbox, context: ToolContext, name: str, **arguments: JsonValue) -> None:
    [result] = await toolbox.run([ToolCall("c1", name, arguments)], context, heard)
    assert not result.is_error, result.content[:500]


async def in_turns(runs: int, **things: Once) -> dict[str, list[float]]:
    """Return how long each took, in ms, *runs* times after a first one that does not count."""
    took: dict[str, list[float]] = {name: [] for name in things}
    for _ in range(runs + 1):
        for name, thing in things.items():
            began = time.perf_counter()
            await thing()
            took[name].append((time.perf_counter() - began) * 1e3)
    return {name: all_[1:] for name, all_ in took.items()}


def peak_from_here() -> Callable[[], int]:
    """Return what tells by how many bytes this process has ever been larger since (Linux)."""
    with suppress(OSError):  # where the kernel's mark cannot be set back, the growth of the old one is told
        Path("/proc/self/clear_refs").write_text("5")
    before = resident()

    def grown() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")) - before

    return grown


async def best(folder: Path, **limits: int) -> Sandbox:
    """Return the best sandbox that this machine has; where there is none, one without walls."""
    bounds = replace(Limits(), **limits)
    found = await open_sandbox("auto", folder, offload=offload, limits=bounds)
    if found.layer == "off":
        found = await open_sandbox("unsafe-host", folder, offload=offload, limits=bounds)
    return found


async def flood(folder: Path, size: int) -> int:
    """Have a command write *size* bytes, all of which are read; return by how much that made this process grow."""
    toolbox, context = (
        gate(Shell(await best(folder, output=2 * size), offload)),
        tool_context(folder / "flood"),
    )
    await call(toolbox, context, "shell", command="head -c 300000 /dev/zero")
    grown = peak_from_here()
    await call(toolbox, context, "shell", command=f"head -c {size} /dev/zero")
    return grown()


async def many(folder: Path, commands: int) -> tuple[int, int]:
    """Have so many commands asked for at once; return by how much this process grew, and how many ran at once."""
    toolbox = gate(Shell(await best(folder), offload))
    await call(toolbox, tool_context(folder / "first"), "shell", command="head -c 300000 /dev/zero")
    most, grown = 0, peak_from_here()

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, await offload(_children))
            await anyio.sleep(0.005)

    async with background_tasks() as counting:
        counting.start_soon(count)
        async with anyio.create_task_group() as tasks:
            for n in range(commands):
                context = tool_context(folder / f"many-{n}")
                tasks.start_soon(partial(call, toolbox, context, "shell", command="head -c 200000 /dev/zero"))
    return grown(), most


def _children() -> int:
    """Return how many processes this one has started that live."""
    ours = str(os.getpid())
    found = 0
    for pid in descendants(os.getpid()):
        with suppress(OSError, IndexError):
            found += Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == ours
    return found


async def _starts(folder: Path, runs: int) -> dict[str, float]:
    async def plain() -> None:
        await anyio.run_process(["/bin/sh", "-c", "true"])

    things: dict[str, Once] = {"plain": plain}
    for layer in LAYERS:
        sandbox = await open_sandbox(layer, folder, offload=offload)
        if sandbox.layer == layer:
            toolbox = gate(Shell(sandbox, offload))
            things[layer] = partial(call, toolbox, tool_context(folder / layer), "shell", command="true")
    took = await in_turns(runs, **things)
    p95 = {f"{name} p95": quantile(each, 0.95) for name, each in took.items()}
    return {**{name: median(each) for name, each in took.items()}, **p95}


async def _gate(folder: Path) -> dict[str, float]:
    found = {}
    for what, text in (("no-op", "done"), ("no-op of 50,000 characters", (PAGE * 20)[:49_000])):
        toolbox, context = gate(Nothing(text)), tool_context(folder / "gate")

        async def bare(tool: Tool = Nothing(text), context: ToolContext = context) -> None:
            await tool(Arguments(), context)

        took = await in_turns(CALLS_OF_THE_GATE, ours=partial(call, toolbox, context, "nothing"), bare=bare)
        found[what] = (median(took["ours"]) - median(took["bare"])) * 1e3
    return found


async def _files(folder: Path, runs: int) -> dict[str, float]:
    workspace = folder / "files"
    context, beside = tool_context(workspace), folder / "beside"
    toolbox = gate(ReadFile(offload), WriteFile(Writer(PosixDisk(), offload, Quota(10**9, 10_000))))
    await call(toolbox, context, "write_file", path="page.txt", content=PAGE)

    def write() -> None:
        with beside.open("wb") as file:
            file.write(PAGE.encode())
            os.fsync(file.fileno())
        beside.rename(folder / "bare.txt")
        opened = os.open(folder, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)

    took = await in_turns(
        runs,
        **{
            "read_file": partial(call, toolbox, context, "read_file", path="page.txt"),
            "read_file bare": partial(offload, (workspace / "page.txt").read_text),
            "write_file": partial(call, toolbox, context, "write_file", path="page.txt", content=PAGE),
            "write_file bare": partial(offload, write),
        },
    )
    return {name: median(each) for name, each in took.items()}


@asynccontextmanager
async def _site() -> AsyncIterator[int]:
    body = PAGE.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"

    async def serve(stream: ByteStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
                await stream.send(head.encode() + body)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        background_tasks() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)


async def _web(runs: int) -> dict[str, float]:
    import httpcore2  # noqa: PLC0415 - slow

    async with _site() as port:
        url = f"http://127.0.0.1:{port}/"
        http = HttpClient(Egress(("127.0.0.1",)), offload)

        async def ours() -> None:
            assert (await http.get(url, anyio.current_time() + 10)).status == 200

        async def bare() -> None:
            async with httpcore2.AsyncConnectionPool() as pool:
                assert (await pool.request("GET", url)).status == 200

        took = await in_turns(runs, **{"web_fetch": ours, "web_fetch bare": bare})
    return {name: median(each) for name, each in took.items()}


async def _document(runs: int) -> dict[str, float]:
    page = f"<html><body><main><h1>A page</h1><p>{PAGE}</p></main></body></html>".encode()
    documents = Reader(offload)
    took = await in_turns(runs, document=partial(documents.text_of, page, "text/html", "page.html"))
    return {"document": median(took["document"])}


async def _all(folder: Path, runs: int) -> dict[str, float]:
    found = {**await _starts(folder, runs), **await _gate(folder), **await _files(folder, runs)}
    found |= {**await _web(runs), **await _document(max(5, runs // 10))}
    grown, at_once = await many(folder, COMMANDS)
    flooded = await flood(folder, GIGABYTE)
    assert at_once <= AT_ONCE
    return {**found, "many": grown / 1e6, "at once": at_once, "flood": flooded / 1e6}


def main() -> None:
    """Measure, as who we are; or print only what the memory tests want to know."""
    what = sys.argv[1]
    with TemporaryDirectory() as folder:
        if what == "flood":
            print(json.dumps({"grown": anyio.run(flood, Path(folder), int(sys.argv[2]))}))
        elif what == "many":
            grown, at_once = anyio.run(many, Path(folder), int(sys.argv[2]))
            print(json.dumps({"grown": grown, "at_once": at_once}))
        else:
            print(json.dumps(anyio.run(_all, Path(folder), int(what))))


if __name__ == "__main__":
    main()
