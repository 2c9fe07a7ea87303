"""A console wired to a scripted bot, run as a program by the tests of the terminal, or by hand.

`python -m tests.transports.console.script [HISTORY_FILE]`; what a message does is its first word below.
"""

import sys
from collections import defaultdict
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from threads.background import background_tasks
from threads.errors import PostFailed, StoreUnavailable
from threads.model import (
    Inbound,
    Incoming,
    Outcome,
    Outgoing,
    OutgoingKind,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.base.transport import Transport
from transports.console import Console

NEW = "forget this conversation and start over"
COMMANDS = {"/stop": "stop", "/status": "show what is going on", "/new": NEW, "/model NAME": "choose a model"}

PAGE = """# A heading

Some **bold** text, `code` and a [link](https://example.org/real).
A second line, <b>with a tag</b>.

- one
  - nested
- two

| name | meaning |
|------|---------|
| alpha | the first letter of the Greek alphabet, and a long cell that must fold on a narrow screen |
| beta | the second |

```python
def answer() -> int:
    return 42
```

> quoted

![picture](https://example.org/p.png)
"""


class ScriptedBot:
    """One turn at a time and thread; `hold` goes on when a message `go` arrives, and ends at `/stop`."""

    def __init__(self, transport: Transport, group: TaskGroup) -> None:
        self.transport = transport
        self.group = group
        self.got: list[Incoming] = []
        self.go = anyio.Event()
        self.turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self.running: dict[str, anyio.CancelScope] = {}
        self.waiting: defaultdict[str, list[Incoming]] = defaultdict(list)

    async def sink(self, event: Inbound) -> None:
        assert isinstance(event, Incoming)
        self.got.append(event)
        if event.text == "full":
            raise StoreUnavailable
        if event.text in {"/stop", "/status"}:
            self.group.start_soon(self.command, event)
        else:
            self.group.start_soon(self.turn, event)

    async def command(self, event: Incoming) -> None:
        scope = self.running.get(event.thread.root)
        if event.text == "/stop" and scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            for waiting in self.waiting.pop(event.thread.root, []):
                self.show(waiting, TurnSettled("stopped"))
        stopped = "Stopped." if scope else "Nothing runs."
        await self.post(event, "All is well." if event.text == "/status" else stopped, "notice")
        self.show(event, TurnSettled("answered"))

    async def turn(self, event: Incoming) -> None:
        waiting = self.waiting[event.thread.root]
        waiting.append(event)
        async with self.turns[event.thread.root]:
            if event in waiting:
                waiting.remove(event)
                await self.run(event)

    async def run(self, event: Incoming) -> None:
        self.show(event, TurnStarted())
        with anyio.CancelScope() as self.running[event.thread.root]:
            try:
                outcome = await self.answer(event)
            except PostFailed:
                outcome = "undelivered"
        shown = ""
        if self.running.pop(event.thread.root).cancelled_caught:
            outcome, shown = "stopped", "first partial"
        self.show(event, TurnSettled(outcome, shown=shown))

    async def answer(self, event: Incoming) -> Outcome:
        match event.text.partition(" ")[0]:
            case "fail":
                await self.post(event, "Something went wrong. (ref abc)", "error")
                return "failed"
            case "refuse":
                return "refused"
            case "page":
                await self.post(event, PAGE)
            case "hold":
                self.show(event, TextDelta("first "))
                self.show(event, TextDelta("partial"))
                await self.post(event, "One moment.", "notice")
                await self.go.wait()
                self.go = anyio.Event()
                await self.post(event, "held to the end")
            case "go":
                self.go.set()
                await self.post(event, "gone")
            case "limited":
                self.show(event, Waiting("rate limited", 20, 2, 6))
                await self.go.wait()
            case "print":
                print("a stray line")
                print("a stray warning", file=sys.stderr)
            case "tools":
                await self.tools(event)
            case _:
                await self.post(event, f"You said: {event.text}")
        return "answered"

    async def tools(self, event: Incoming) -> None:
        self.show(event, ToolStarted("shell", "wc a.txt", "c1", "running wc a.txt"))
        self.show(event, ToolStarted("read_file", "b.txt", "c2", "reading b.txt"))
        self.show(event, ToolFinished("shell", ok=True, call_id="c1"))
        await self.go.wait()
        self.show(event, ToolFinished("read_file", ok=False, call_id="c2"))
        await self.post(event, "done")

    async def post(self, event: Incoming, text: str, kind: OutgoingKind = "reply") -> None:
        await self.transport.post(Outgoing(event.thread, f"{event.key}/reply", text, kind, event.id))

    def show(self, event: Incoming, what) -> None:
        self.transport.show(event.thread, event.id, what)


async def main() -> int:
    history = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(session="s1", history_file=history)
    async with background_tasks() as group:
        await console.serve(ScriptedBot(console, group).sink)
    return console.exit_code


if __name__ == "__main__":
    sys.exit(anyio.run(main))
