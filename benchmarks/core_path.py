"""Count the core path: the code that runs between a transport's event and its reply.

One message that uses a tool is sent through the real bot under a profiler; the functions that ran are listed in the
order of their first call, each with its lines of code (docstrings, comments and blank lines are not code). The core
path is what ran in the modules that a message passes through, `CORE`. What those stand on (the disk, the records as
values, the conversation in memory, the log for people, the repair of histories) is listed and summed up too, and is
not in the limit. The model and the transport are stand-ins: what they are is up to each provider and platform.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from types import CodeType, FrameType

import anyio

from bot.ports.model import Completion, Request, Usage
from docs.generate.layers_page import CORE
from tests.one_model import OneModel
from tests.world import Platform, calls, message, running, says
from threads.model import OnEvent, TextDelta

ROOT = Path(__file__).parent.parent
OURS = tuple(str(ROOT / package) for package in ("bot", "threads", "transports"))
LIMIT = 600


class _ToolThenText(OneModel):
    name = "fake/one"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        if request.messages[-1].results:
            await on_event(TextDelta("done"))
            return Completion(says("done"), Usage(), "end")
        return Completion(calls("list_files", path="."), Usage(), "tool_calls")


def lines_of_code(code: CodeType) -> int:
    """Return how many lines of the function hold code."""
    tree = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(code)[0])))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    text = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    lines = {function.lineno} | {line.lineno for line in function.decorator_list}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg) and id(node) not in text:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            lines |= {node.lineno, node.end_lineno or node.lineno} if node is not function else {node.lineno}
    return len(lines)


def functions_of_one_message() -> dict[CodeType, int]:
    """Return the code objects that ran, in the order of their first call, with their lines of code."""
    seen: dict[CodeType, int] = {}
    recording = False

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if recording and event == "call" and code.co_filename.startswith(OURS) and code.co_name[0] != "<":
            seen.setdefault(code, 0)

    async def one() -> None:
        nonlocal recording
        platform = Platform()
        with tempfile.TemporaryDirectory() as data:
            async with running(Path(data), platform, _ToolThenText()) as bot:
                await anyio.wait_all_tasks_blocked()  # what a start does is over
                recording = True
                await bot.orchestrator.receive(message())
                await platform.settled("m1")
                recording = False

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        anyio.run(one)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {code: lines_of_code(code) for code in seen}


def main() -> None:
    counted = {True: 0, False: 0}
    for code, lines in functions_of_one_message().items():
        path = str(Path(code.co_filename).relative_to(ROOT))
        counted[path in CORE] += lines
        print(
            f"{lines:5} {'core' if path in CORE else '    '}  {path}:{code.co_firstlineno} {code.co_qualname}"
        )
    print(f"{counted[True]:5} lines of core path (limit {LIMIT}), and {counted[False]} beneath it")
    sys.exit(counted[True] >= LIMIT)


if __name__ == "__main__":
    main()
