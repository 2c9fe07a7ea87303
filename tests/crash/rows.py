"""A model that writes numbered rows, by which a judge sees what is missing, doubled or out of place."""

from __future__ import annotations

from zlib import crc32

import anyio

from bot.ports.errors import BadRequest, ModelUnavailable
from bot.ports.model import Completion, Request, Usage
from tests.crash.child import Paced, unanswered
from threads.model import Message, OnEvent, Text, TextDelta, ToolCall

LONG = {0: 900, 1: 420, 2: 2500}
"""Rows of long answers, of 20 each: some are several messages, some so much that they become a file."""


class Rows(Paced):
    """A model that writes rows that say which of how many they are, and for which message, some of them slowly."""

    name = "rows/one"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        tokens, steps = unanswered(request)
        token = tokens[-1] if tokens else ""
        drawn = crc32(token.encode())
        if steps < (0, 0, 0, 0, 1, 2)[drawn % 6]:
            await anyio.sleep(drawn % 31 / 1000)
            call = ToolCall(f"c-{token}-{steps}", "list_files", {"path": "." if steps == 0 else "x"})
            return Completion(Message("assistant", (call,), model=self.name), Usage(1, 1), "tool_calls")
        drawn //= 6
        count = 3 + drawn % 9
        lines = [
            f"re {' '.join(tokens)}\n\n",
            *rows(token, count if self.brisk else LONG.get(drawn % 20, count)),
        ]
        match drawn // 20 % 50:
            case 0:
                raise BadRequest("canary-of-a-provider")
            case 1:
                raise ModelUnavailable("503")
            case 2:
                lines = lines[:2]
        pieces, pause_s = 4 + drawn // 1000 % 6, (0.0, 0.02, 0.1, 0.25)[drawn // 6000 % 4]
        pause_s = min(pause_s, 0.02) if self.brisk else pause_s
        for piece in range(pieces):
            await on_event(
                TextDelta("".join(lines[len(lines) * piece // pieces : len(lines) * (piece + 1) // pieces]))
            )
            await anyio.sleep(pause_s)
        match drawn // 20 % 50:
            case 2:
                raise RuntimeError("canary-of-a-bug")
            case 3:
                await anyio.sleep(60)
        return Completion(Message("assistant", (Text("".join(lines)),), model=self.name), Usage(1, 1), "end")


def rows(token: str, count: int) -> list[str]:
    return [f"row {number} of {count} {token} abcdefghi\n\n" for number in range(1, count + 1)]
