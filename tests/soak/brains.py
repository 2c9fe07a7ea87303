"""The models of the soak, behind the providers' own wire: numbered rows for each message, tools, and every fault.

What is answered is drawn from the message's own token, so that it is the same whoever answers, and how often; what goes
wrong on the way is drawn anew for each call.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tests.crash.child import TOKEN
from tests.crash.rows import rows
from tests.fakes import anthropic, openai
from tests.fakes.http import Cut, Reply, Seen, Stall

LONG = {0: 900, 1: 420, 2: 420}
"""Rows of long answers, of 60 each."""
RAW = "canary-of-a-provider Traceback (most recent call last)"
"""In every error of a provider: nobody may ever read it in a thread."""

Said = list[tuple[str, str]]
"""A conversation as roles and texts; "call" is a step with tools."""


@dataclass
class Brains:
    """Both providers. ``faults`` counts what went wrong, by what it was."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    calm: bool = False

    def __post_init__(self) -> None:
        self._fate = random.Random(f"{self.seed} providers")

    def anthropic(self, seen: Seen) -> Reply:
        """Answer a request of the Messages API."""
        self.calls["anthropic"] += 1
        said = [part for message in seen.json["messages"] for part in _of_messages(message)]
        offered = {tool.get("name", "") for tool in seen.json.get("tools", ())}
        reply = self._reply(said, offered, anthropic.answer)
        if reply is None:
            return anthropic.fault(400, "invalid_request_error", RAW)
        match self._draw():
            case "limited":
                return anthropic.fault(429, "rate_limit_error", RAW, retry_after="1")
            case "broken":
                return anthropic.fault(529, "overloaded_error", RAW)
            case drawn:
                return self._spoilt(reply, drawn)

    def openai(self, seen: Seen) -> Reply:
        """Answer a request of the Responses API."""
        self.calls["openai"] += 1
        said = [part for item in seen.json["input"] for part in _of_input(item)]
        offered = {tool.get("name", "") for tool in seen.json.get("tools", ())}
        reply = self._reply(said, offered, openai.response_answer)
        if reply is None:
            return openai.fault(400, "invalid_value", RAW)
        match self._draw():
            case "limited":
                return openai.fault(429, "rate_limit_exceeded", RAW, retry_after="1")
            case "broken":
                return openai.fault(503, None, RAW)
            case drawn:
                return self._spoilt(reply, drawn)

    def _draw(self) -> str:
        kinds = ("", "limited", "broken", "cut", "reset", "stall")
        drawn = "" if self.calm else self._fate.choices(kinds, (90, 3, 2, 2, 1.5, 1.5))[0]
        self.faults[drawn] += bool(drawn)
        return drawn

    def _spoilt(self, reply: Reply, how: str) -> Reply:
        at = self._fate.randrange(1, max(2, len(reply.steps) - 1))
        match how:
            case "cut":
                return reply.keep(at, Cut())
            case "reset":
                return reply.keep(at, Cut("rst"))
            case "stall":
                return reply.keep(at, Stall())
        return reply

    def _reply(self, said: Said, offered: set[str], answer: Any) -> Reply | None:
        tokens, steps = unanswered(said)
        token = tokens[-1] if tokens else ""
        drawn = crc32(token.encode())
        plan = PLANS[drawn % len(PLANS)]
        if token and steps < len(plan) and plan[steps][0] in offered:
            name, given = plan[steps]
            filled = {key: value.format(token=token) for key, value in given.items()}
            return answer(anthropic.Tool(f"call-{token}-{steps}", name, filled))  # type: ignore[no-any-return]
        drawn //= len(PLANS)
        if drawn % 60 == 59 and not self.calm:
            self.faults["refused"] += 1
            return None
        lines = [f"re {' '.join(tokens)}\n\n", *rows(token, LONG.get(drawn % 60, 3 + drawn % 9))]
        return answer(anthropic.Text("".join(lines), 4 + drawn // 1000 % 6))  # type: ignore[no-any-return]


LIST = ("list_files", {"path": "."})
WRITE = ("write_file", {"path": "notes.txt", "content": "of {token}\n" * 20})
READ = ("read_file", {"path": "notes.txt"})
SHELL = ("shell", {"command": "wc -c notes.txt; echo {token}"})
FAULTY = ("read_file", {"path": "../{token}"})

Call = tuple[str, dict[str, str]]
PLANS: tuple[tuple[Call, ...], ...] = (
    *((),) * 12,
    *((LIST,),) * 2,
    *((WRITE,),) * 2,
    (WRITE, READ),
    (FAULTY, LIST),
    (SHELL,),
    (WRITE, SHELL),
)
"""The tools that are called for a message, a step each."""


def unanswered(said: Said) -> tuple[list[str], int]:
    """Return the ids in what people said to the bot since the last answer, and how many steps were made on them.

    Lines that were said without the bot are quoted.
    """
    tokens: list[str] = []
    steps = 0
    for role, text in said:
        if role == "user":
            to_bot = "\n".join(line for line in text.splitlines() if not line.startswith("> "))
            tokens += [token for token in TOKEN.findall(to_bot) if token not in tokens]
        elif role == "call":
            steps += 1
        else:
            tokens, steps = [], 0
    return tokens, steps


def _of_messages(message: dict[str, Any]) -> Said:
    blocks = message["content"]
    if isinstance(blocks, str):
        return [(message["role"], blocks)]
    if any(block["type"] == "tool_use" for block in blocks):
        return [("call", "")]
    return [(message["role"], block["text"]) for block in blocks if block["type"] == "text"]


def _of_input(item: dict[str, Any]) -> Said:
    if item.get("type") == "function_call":
        return [("call", "")]
    if "role" not in item:
        return []
    content = item["content"]
    if isinstance(content, str):
        return [(item["role"], content)]
    return [(item["role"], part["text"]) for part in content if "text" in part]
