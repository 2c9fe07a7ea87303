"""What both bare loops share: the model through the openai SDK, streamed, with one tool that lists a folder."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "list_files",
        "description": "List the files of a folder.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


class Agent:
    def __init__(self, model: AsyncOpenAI) -> None:
        self._model = model

    async def answer(self, history: list[Any], text: str) -> AsyncIterator[str]:
        """Yield the answer piece by piece; *history* gets all that was said."""
        history.append({"role": "user", "content": text})
        while True:
            said, calls = "", dict[int, dict[str, str]]()
            async for delta in self._deltas(history):
                if delta.content:
                    said += delta.content
                    yield delta.content
                for call in delta.tool_calls or ():
                    known = calls.setdefault(
                        call.index, {"id": call.id, "name": call.function.name, "given": ""}
                    )
                    known["given"] += call.function.arguments or ""
            if not calls:
                history.append({"role": "assistant", "content": said})
                return
            history += await _run(said, list(calls.values()))

    async def _deltas(self, history: list[Any]) -> AsyncIterator[Any]:
        stream = await self._model.chat.completions.create(
            model="instant",
            messages=history,
            tools=[TOOL],
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.choices:
                yield chunk.choices[0].delta


async def _run(said: str, calls: list[dict[str, str]]) -> list[Any]:
    """Run the calls and return the messages of the step."""
    asked = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["given"]}}
        for call in calls
    ]
    messages: list[Any] = [{"role": "assistant", "content": said or None, "tool_calls": asked}]
    for call in calls:
        files = await asyncio.to_thread(os.listdir, json.loads(call["given"])["path"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "\n".join(files)})
    return messages
