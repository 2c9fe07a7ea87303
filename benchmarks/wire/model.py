"""A model behind HTTP on loopback: Chat Completions, streamed to whoever asks for a stream.

It runs in a process of its own, the same for all. A short answer comes at once, a long one a word at a time. It asks
for a tool if the question says so. ``GET /counted`` tells how many requests it has had, and their bytes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from benchmarks.child import ROOT
from benchmarks.wire.questions import STREAM_S, TOOLS, newest_question, words_of_answer

Json = dict[str, Any]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 8, "total_tokens": 1008}
ABOUT: Json = {"id": "c-1", "created": 0, "model": "instant"}
END = b"data: [DONE]\n\n"


class Model:
    """The server, as its caller sees it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}/v1"

    def counted(self) -> tuple[int, int]:
        """Return the requests so far and the bytes of their bodies."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        connection.request("GET", "/counted")
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found["requests"], found["bytes"]


@contextmanager
def model_server() -> Iterator[Model]:
    """Run the server until the block ends."""
    command = [sys.executable, "-m", "benchmarks.wire.model"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Model(int(process.stdout.readline()))
        finally:
            process.kill()


def _chunk(delta: Json, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, **more}
    return _event({"choices": [choice]})


def _event(fields: Json) -> bytes:
    return f"data: {json.dumps({**ABOUT, 'object': 'chat.completion.chunk', **fields})}\n\n".encode()


def _tool_call(tool: str, number: int) -> Json:
    function = {"name": tool, "arguments": json.dumps({"path": "."})}
    return {"index": 0, "id": f"call-{number}", "type": "function", "function": function}


def _last(finish: str) -> list[bytes]:
    return [_chunk({}, finish_reason=finish), _event({"choices": [], "usage": USAGE}), END]


def _asked(request: Json) -> str:
    """Return the text of the last message of a person."""
    said = [message for message in request["messages"] if message["role"] == "user"]
    content = said[-1]["content"] if said else ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _tool_to_call(request: Json) -> str:
    """Return the tool that the model would call now, if any."""
    if request["messages"][-1]["role"] == "tool":
        return ""
    offered = {tool["function"]["name"] for tool in request.get("tools") or ()}
    return next((tool for tool in TOOLS if tool in offered), "")


class _Server:
    def __init__(self) -> None:
        self.requests = self.bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if head.startswith(b"get /counted"):
                    counted = {"requests": self.requests, "bytes": self.bytes}
                    writer.write(_whole(counted))
                    continue
                _, _, length = head.partition(b"\r\ncontent-length:")
                body = await reader.readexactly(int(length.partition(b"\r\n")[0]))
                self.requests += 1
                self.bytes += len(body)
                await _answer(json.loads(body), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _answer(request: Json, writer: asyncio.StreamWriter) -> None:
    kind, number = newest_question(_asked(request)) or ("short", 0)
    tool = _tool_to_call(request) if kind == "tool" else ""
    words = words_of_answer(kind, number)
    if not request.get("stream"):
        writer.write(_whole(_completion("".join(words), tool, number)))
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    if tool:
        call = {"role": "assistant", "content": None, "tool_calls": [_tool_call(tool, number)]}
        _write(writer, [_chunk(call), *_last("tool_calls")])
    else:
        chunks = [
            _chunk({"role": "assistant", "content": ""}),
            *(_chunk({"content": word}) for word in words),
        ]
        if kind == "long":
            await _pace(writer, chunks)
            chunks = []
        _write(writer, [*chunks, *_last("stop")])
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _pace(writer: asyncio.StreamWriter, chunks: list[bytes]) -> None:
    """Write the chunks one at a time, each when it is due."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for number, chunk in enumerate(chunks):
        if (wait := began + number * STREAM_S / len(chunks) - clock()) > 0:
            await asyncio.sleep(wait)
        _write(writer, [chunk])
        await writer.drain()


def _write(writer: asyncio.StreamWriter, events: Iterable[bytes]) -> None:
    data = b"".join(events)
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _completion(text: str, tool: str, number: int) -> Json:
    message: Json = {"role": "assistant", "content": None if tool else text}
    if tool:
        message["tool_calls"] = [_tool_call(tool, number)]
    finish = "tool_calls" if tool else "stop"
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return {**ABOUT, "object": "chat.completion", "choices": choices, "usage": USAGE}


def _whole(body: Json) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def main() -> None:
    server = await asyncio.start_server(_Server().serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
