"""Count the core path: the code of every function of ours that runs between a transport's event and its reply.

One message that uses a tool is sent through the real bot under a profiler; the functions that ran are listed in the
order of their first call, each with its lines of code (docstrings, comments and blank lines are not code). Nothing is
picked by hand. The model and the transport are stand-ins: what they are is up to each provider and platform.
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

from bot.llm.model import Completion, Request, Usage
from tests.world import Platform, calls, message, running, says
from threads.model import OnEvent, TextDelta

ROOT = Path(__file__).parent.parent
OURS = tuple(str(ROOT / package) for package in ("bot", "threads", "transports"))
LIMIT = 600


class _ToolThenText:
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
    functions = functions_of_one_message()
    for code, lines in functions.items():
        print(f"{lines:5}  {Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}")
    total = sum(functions.values())
    print(f"{total:5}  lines in {len(functions)} functions (limit {LIMIT})")
    sys.exit(total >= LIMIT)


if __name__ == "__main__":
    main()
